// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <clocale>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__GNUC__) && !defined(__cpp_exceptions)
#error "omni needs exceptions: by them ranks that fail tell the others"
#endif

namespace omni {

/// Base of everything the library throws.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The call itself is wrong: null data, overlapping buffers, an invalid communicator. Thrown before anything is sent.
class usage : public error {
 public:
  using error::error;
};

namespace detail {

/// What a message is put together of. Not inlined: what is said when something is wrong would be as much code as all the rest.
class text {
 public:
  [[gnu::noinline]] text& operator<<(std::string_view words) {
    said_ += words;
    return *this;
  }
  template <std::integral Number>
  text& operator<<(Number n) {
    if constexpr (std::is_signed_v<Number>)
      return n < 0 ? (*this << "-").digits(0 - static_cast<std::uint64_t>(n)) : digits(static_cast<std::uint64_t>(n));
    else return digits(n);
  }
  /// As a stream of the classic locale writes it.
  [[gnu::noinline]] text& operator<<(double x) { return number("%g", x); }
  /// A number with three digits behind the point.
  struct fixed {
    double x;
  };
  [[gnu::noinline]] text& operator<<(fixed f) { return number("%.3f", f.x); }
  operator const std::string&() const { return said_; }  // NOLINT(google-explicit-constructor): it is one

 private:
  text& number(const char* how, double x) {
    std::array<char, 350> digits{};                                      // of the largest double
    const auto n = std::snprintf(digits.data(), digits.size(), how, x);  // NOLINT(cppcoreguidelines-pro-type-vararg)
    const std::string_view written(digits.data(), static_cast<std::size_t>(std::max(n, 0)));
    const std::string_view point = std::localeconv()->decimal_point;  // NOLINT(concurrency-mt-unsafe): the locale's own
    const auto at = written.find(point);
    if (at == std::string_view::npos) return *this << written;
    return *this << written.substr(0, at) << "." << written.substr(at + point.size());
  }
  [[gnu::noinline]] text& digits(std::uint64_t n) {
    said_ += std::to_string(n);
    return *this;
  }
  std::string said_;
};

/// A call that servers will not reduce: found before anything was folded, and tidied up.
class refused_call : public usage {
 public:
  using usage::usage;
};
}  // namespace detail

/// The ranks called with different arguments. Thrown on every rank; the communicator stays usable and no output is written
/// beyond what an out-of-place call, or a broadcast on another rank than the root, may already have set to the identity, and an
/// allgather's own part.
class mismatch : public error {
 public:
  [[gnu::cold]] mismatch(int this_rank, std::string here, int other_rank, std::string there, std::string field)
      : error(detail::text() << "omni: ranks disagree about the " << field << ": rank " << this_rank << " called with " << here
                             << ", rank " << other_rank << " with " << there),
        rank_(other_rank),
        field_(std::move(field)),
        here_(std::move(here)),
        there_(std::move(there)) {}

  /// The lowest rank whose arguments differ from this rank's.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// Which argument: "count", "type", "operation", "blocks", "topology", ...
  [[nodiscard]] const std::string& field() const noexcept { return field_; }
  [[nodiscard]] const std::string& here() const noexcept { return here_; }
  [[nodiscard]] const std::string& there() const noexcept { return there_; }

 private:
  int rank_;
  std::string field_, here_, there_;
};

namespace detail {
/// That of the call under way: found before anything was folded, and tidied up. It leaves the call as a mismatch, so another one
/// comes out of an operation or a detector of the user's, and is an error as any other.
class mismatch_of_call : public mismatch {
 public:
  explicit mismatch_of_call(mismatch m) : mismatch(std::move(m)) {}
};
}  // namespace detail

/// A wait took longer than its deadline (deadline.hpp). The communicator is unusable for omni afterwards.
class timeout : public error {
 public:
  /// `came_late`: the others had given up when this rank came.
  [[gnu::cold]] timeout(int this_rank, double seconds, std::string stage, std::string packet, std::vector<int> peers,
                        bool came_late = false)
      : error(detail::text() << "omni: rank " << this_rank << (came_late ? gave_up : waited(seconds, peers)) << ": " << stage
                             << (packet.empty() ? "" : ", ") << packet),
        seconds_(seconds),
        stage_(std::move(stage)),
        packet_(std::move(packet)),
        peers_(std::move(peers)) {}

  /// The ranks that did not answer, ascending. Empty if all did, and wait for each other, or if that could not be found out.
  [[nodiscard]] const std::vector<int>& peers() const noexcept { return peers_; }
  /// What the call was about: "opening the communicator", "agreement", "exchange", ...
  [[nodiscard]] const std::string& stage() const noexcept { return stage_; }
  /// What was to come next from whom, where the stage has packets.
  [[nodiscard]] const std::string& packet() const noexcept { return packet_; }
  [[nodiscard]] double seconds() const noexcept { return seconds_; }

 private:
  static constexpr const char* gave_up = " came when the other ranks had given up";
  static std::string waited(double seconds, const std::vector<int>& peers) {
    return " waited " + rounded(seconds) + " s " + named(peers);
  }
  static std::string rounded(double seconds) {
    const auto hundredths = static_cast<long long>(seconds * 100 + 0.5);
    return detail::text() << hundredths / 100 << (hundredths % 100 < 10 ? ".0" : ".") << hundredths % 100;
  }
  static std::string named(const std::vector<int>& peers) {
    if (peers.empty()) return "for the other ranks";
    detail::text all;
    constexpr std::size_t most = 16;
    for (std::size_t i = 0; i < std::min(peers.size(), most); ++i)
      all << (i != 0 ? ", " : peers.size() == 1 ? "for rank " : "for ranks ") << peers[i];
    if (peers.size() > most) all << " and " << peers.size() - most << " more";
    return all;
  }

  double seconds_;
  std::string stage_, packet_;
  std::vector<int> peers_;
};

/// A packet that lies: a length, index or order that no correct peer sends. The communicator is unusable for omni afterwards.
class protocol : public error {
 public:
  [[gnu::cold]] protocol(int peer, std::string_view what)
      : error(detail::text() << "omni: packet from rank " << peer << " refused: " << what), peer_(peer), fault_(what) {}

  [[nodiscard]] int peer() const noexcept { return peer_; }
  /// What is wrong with it.
  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }

 private:
  int peer_;
  std::string fault_;
};

/// An MPI routine failed.
class mpi_error : public error {
 public:
  [[gnu::cold]] mpi_error(std::string routine, int code, int error_class, const std::string& text)
      : error(detail::text() << "omni: " << routine << " failed: " << text),
        routine_(std::move(routine)),
        code_(code),
        class_(error_class) {}

  [[nodiscard]] const std::string& routine() const noexcept { return routine_; }
  [[nodiscard]] int code() const noexcept { return code_; }
  [[nodiscard]] int error_class() const noexcept { return class_; }

 private:
  std::string routine_;
  int code_, class_;
};

}  // namespace omni
