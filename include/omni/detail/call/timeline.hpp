// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "../../report.hpp"
#include "environment.hpp"

namespace omni::detail {

/// OMNI_TIMELINE=file: what each call of each rank did when, as Chrome's trace JSON (chrome://tracing, Perfetto). All processes of
/// a host, or of a shared file system, add to one file, which is whole whenever one of them is done with it.
class timeline {
 public:
  static timeline& instance() {
    static timeline all;
    return all;
  }
  timeline(const timeline&) = delete;
  timeline(timeline&&) = delete;
  timeline& operator=(const timeline&) = delete;
  timeline& operator=(timeline&&) = delete;

  [[nodiscard]] bool wanted() const { return !file_.empty(); }
  /// A call that has just ended. `before`: seconds until the ranks had agreed on it.
  [[gnu::cold]] void add(int rank, std::string_view collective, const report& r, double before) {
    const auto end = std::chrono::duration<double, std::micro>(std::chrono::system_clock::now().time_since_epoch()).count();
    const auto start = end - r.seconds * 1e6, agreed = start + before * 1e6;
    text os;
    const auto event = [&](std::string_view name, double from, double to) -> text& {
      return os << ",\n{\"name\":\"" << name << R"(","cat":"omni","ph":"X","pid":)" << process_ << ",\"tid\":" << rank
                << ",\"ts\":" << text::fixed{from} << ",\"dur\":" << text::fixed{to - from};
    };
    const auto microseconds = [](double seconds) { return text::fixed{seconds * 1e6}; };
    event(std::string(collective) + ", " + std::string(r.topology), start, end)
        << R"(,"args":{"blocks":)" << r.blocks_total << ",\"sent\":" << r.blocks_sent << ",\"union\":" << r.union_blocks
        << ",\"bytes_sent\":" << r.bytes_sent << ",\"bytes_received\":" << r.bytes_received << ",\"dense_bytes\":" << r.dense_bytes
        << ",\"detect_us\":" << microseconds(r.detect_seconds) << ",\"exchange_us\":" << microseconds(r.exchange_seconds)
        << ",\"fold_us\":" << microseconds(r.fold_seconds) << ",\"deliver_us\":" << microseconds(r.deliver_seconds) << "}}";
    if (before > 0) event("agree", start, agreed) << "}";
    event("run", agreed, end) << "}";
    // The stages of the engine are interleaved a thousand times: their shares of its time are drawn one after the other.
    double at = agreed;
    const auto share = [&](std::string_view name, double seconds) {
      if (seconds <= 0) return;
      event(name, at, at + seconds * 1e6) << "}";
      at += seconds * 1e6;
    };
    share("detect", r.detect_seconds);
    share("fold", r.fold_seconds);
    share("deliver", r.deliver_seconds);
    share("exchange", r.exchange_seconds - before);
    const std::lock_guard lock(mutex_);
    events_ += static_cast<const std::string&>(os);
    constexpr std::size_t plenty = 1 << 20U;
    if (events_.size() > plenty) write();
  }

 private:
  [[gnu::cold]] timeline() : file_(environment("OMNI_TIMELINE")), process_(::getpid()) {}
  ~timeline() { write(); }

  // The file ends with "\n]" at all times; what is new goes before that. Trouble with the file is no trouble of the program: what
  // cannot be written is lost, and not kept.
  [[gnu::cold]] void write() {
    const auto events = std::exchange(events_, {});
    if (events.empty()) return;
    const int file = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);  // NOLINT(cppcoreguidelines-pro-type-vararg)
    if (file < 0) return;
    if (::flock(file, LOCK_EX) == 0) {
      const auto size = ::lseek(file, 0, SEEK_END);
      const bool is_new = size < 4;
      const std::string text = (is_new ? "[\n" + events.substr(2) : events) + "\n]";
      static_cast<void>(::pwrite(file, text.data(), text.size(), is_new ? 0 : size - 2) < 0);
    }
    ::close(file);
  }

  std::string file_;
  long process_;
  std::mutex mutex_;
  std::string events_;
};

}  // namespace omni::detail
