// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <boost/mpi/communicator.hpp>
#include <boost/mpi/nonblocking.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../concepts.hpp"
#include "../detail/mpi/check.hpp"
#include "../error.hpp"

namespace omni::transport {

/// Transport over Boost.MPI's own messages, for programs that want all traffic to pass through it. (A boost::mpi::communicator
/// given to omni::allreduce directly takes the plain MPI transport and is faster.)
///
/// Talks on a duplicate of the communicator. Making one is collective; it must live until its last operation is done. Errors come
/// as boost::mpi::exception.
class boost_mpi {
 public:
  static constexpr bool may_lose = false;

  explicit boost_mpi(const boost::mpi::communicator& comm) : comm_(comm, boost::mpi::comm_duplicate) {}

  [[nodiscard]] int rank() const { return comm_.rank(); }
  [[nodiscard]] int size() const { return comm_.size(); }
  [[nodiscard]] std::size_t preferred_packet_bytes() const { return std::size_t{62} * 1024; }
  void mark_broken(const std::string& why) {
    if (broken_.empty()) broken_ = why;
  }
  [[nodiscard]] bool is_usable() const { return broken_.empty(); }
  void expect_usable() const {
    if (!is_usable()) throw error("omni: this transport is unusable since an earlier error: " + broken_);
  }

  class mailbox {
   public:
    mailbox(const boost::mpi::communicator& comm, std::uint32_t call) : comm_(&comm), call_(call) {}

    [[nodiscard]] std::uint32_t call() const { return call_; }
    void send(int peer, unsigned stream, std::span<const std::byte> bytes, std::uint64_t token) {
      add(comm_->isend(peer, tag(stream), reinterpret_cast<const char*>(bytes.data()), detail::mpi_count(bytes.size())),
          {token, sending});
    }
    void receive(int peer, unsigned stream, std::span<std::byte> buffer, std::uint64_t token) {
      add(comm_->irecv(peer, tag(stream), reinterpret_cast<char*>(buffer.data()), detail::mpi_count(buffer.size())),
          {token, stream});
    }
    [[nodiscard]] std::span<const completion> poll() {
      done_.clear();
      for (std::size_t i = 0; i < requests_.size();) {
        const auto status = requests_[i].test();
        if (status) {
          finish(i, *status);
        } else {
          ++i;
        }
      }
      return done_;
    }
    [[nodiscard]] std::span<const completion> wait() {
      done_.clear();
      if (requests_.empty()) return {};
      const auto [status, at] = boost::mpi::wait_any(requests_.begin(), requests_.end());
      finish(static_cast<std::size_t>(at - requests_.begin()), status);
      return done_;
    }
    void cancel(unsigned stream) {
      for (std::size_t i = requests_.size(); i-- > 0;) {
        if (kinds_[i].stream != stream) continue;
        requests_[i].cancel();
        requests_[i].wait();
        remove(i);
      }
    }
    void abandon() {
      for (std::size_t i = 0; i < requests_.size(); ++i)
        if (kinds_[i].stream != sending) requests_[i].cancel();
      requests_.clear();
      kinds_.clear();
    }

   private:
    static constexpr unsigned sending = 0xffffffffU;
    struct kind {
      std::uint64_t token;
      unsigned stream;
    };

    [[nodiscard]] int tag(unsigned stream) const { return static_cast<int>((call_ % 8192U) * 4U + stream); }
    void add(boost::mpi::request request, kind k) {
      requests_.push_back(std::move(request));
      kinds_.push_back(k);
    }
    void finish(std::size_t i, const boost::mpi::status& status) {
      const auto count = kinds_[i].stream != sending ? status.count<char>() : boost::optional<int>(0);
      done_.push_back({kinds_[i].token, static_cast<std::size_t>(count.value_or(0))});
      remove(i);
    }
    void remove(std::size_t i) {
      requests_[i] = std::move(requests_.back());
      kinds_[i] = kinds_.back();
      requests_.pop_back();
      kinds_.pop_back();
    }

    const boost::mpi::communicator* comm_;
    std::uint32_t call_;
    std::vector<boost::mpi::request> requests_;
    std::vector<kind> kinds_;
    std::vector<completion> done_;
  };

  [[nodiscard]] mailbox open() {
    expect_usable();
    return {comm_, calls_++};
  }

 private:
  boost::mpi::communicator comm_;
  std::uint32_t calls_ = 0;
  std::string broken_;
};

}  // namespace omni::transport
