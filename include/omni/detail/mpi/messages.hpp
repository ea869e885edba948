// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "../../concepts.hpp"
#include "check.hpp"
#include "context.hpp"

namespace omni::detail {

/// The messages of one operation over MPI: a mailbox (omni/concepts.hpp).
class mpi_messages {
 public:
  // A number is taken when nothing can fail any more: the ranks count alike.
  explicit mpi_messages(mpi_context& context) : context_(&context), r_(context.borrow()), call_(context.open_call()) {}
  mpi_messages(mpi_messages&&) noexcept = default;
  mpi_messages& operator=(mpi_messages&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(call_, other.call_);
    std::swap(r_, other.r_);
    return *this;
  }
  mpi_messages(const mpi_messages&) = delete;
  mpi_messages& operator=(const mpi_messages&) = delete;
  ~mpi_messages() {
    if (r_ == nullptr) return;
    if (!r_->requests.empty()) abandon();
    context_->close_call(call_);
    context_->give_back(std::move(r_));
  }

  [[nodiscard]] std::uint32_t call() const { return call_; }
  /// Makes room for so many messages at once.
  void reserve(std::size_t n) {
    r_->requests.reserve(n);
    r_->tokens.reserve(n);
    r_->streams.reserve(n);
    r_->indices.reserve(n);
    r_->statuses.reserve(n);
    r_->done.reserve(n);
  }

  void send(int peer, unsigned stream, std::span<const std::byte> bytes, std::uint64_t token) {
    expect_room();
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(bytes.data(), mpi_count(bytes.size()), MPI_BYTE, peer, tag(stream), context_->comm(), &request), "MPI_Isend");
    add(request, token, sending);
  }
  void receive(int peer, unsigned stream, std::span<std::byte> buffer, std::uint64_t token) {
    expect_room();
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(buffer.data(), mpi_count(buffer.size()), MPI_BYTE, peer, tag(stream), context_->comm(), &request), "MPI_Irecv");
    add(request, token, stream);
  }
  [[nodiscard]] std::span<const completion> poll() { return some(false); }
  [[nodiscard]] std::span<const completion> wait() { return some(true); }

  /// In destructors, too: what MPI says to it nobody can mend.
  void cancel(unsigned stream) noexcept {
    for (std::size_t i = r_->requests.size(); i-- > 0;) {
      if (r_->streams[i] != stream) continue;
      // A test that failed may have left it null.
      if (auto& request = r_->requests[i]; request != MPI_REQUEST_NULL) {
        MPI_Cancel(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      }
      remove(i);
    }
  }
  /// Lets MPI move on.
  void nudge() {
    int flag = 0;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, context_->comm(), &flag, MPI_STATUS_IGNORE), "MPI_Iprobe");
  }
  void abandon() noexcept {
    for (std::size_t i = 0; i < r_->requests.size(); ++i) {
      if (r_->requests[i] == MPI_REQUEST_NULL) continue;  // a test that failed may have left it so
      if (r_->streams[i] != sending) MPI_Cancel(&r_->requests[i]);
      MPI_Request_free(&r_->requests[i]);
    }
    r_->requests.clear();
    r_->tokens.clear();
    r_->streams.clear();
  }

 private:
  static constexpr unsigned sending = 0xffffffffU;

  [[nodiscard]] int tag(unsigned stream) const { return static_cast<int>(call_ % mpi_context::calls_in_flight * 4U + stream); }

  // For one more: what MPI has begun must be kept.
  void expect_room() {
    const auto grow = [](auto& all) {
      if (all.size() == all.capacity()) all.reserve(2 * all.size() + 8);
    };
    grow(r_->requests);
    grow(r_->tokens);
    grow(r_->streams);
  }
  void add(MPI_Request request, std::uint64_t token, unsigned stream) noexcept {
    r_->requests.push_back(request);
    r_->tokens.push_back(token);
    r_->streams.push_back(stream);
  }
  // Keeps the array dense: MPI looks at all of it each time.
  void remove(std::size_t i) {
    r_->requests[i] = r_->requests.back();
    r_->tokens[i] = r_->tokens.back();
    r_->streams[i] = r_->streams.back();
    r_->requests.pop_back();
    r_->tokens.pop_back();
    r_->streams.pop_back();
  }
  std::span<const completion> some(bool block) {
    const auto n = r_->requests.size();
    if (n == 0) return {};
    if (r_->indices.size() < n) {
      r_->indices.resize(n);
      r_->statuses.resize(n);
    }
    int found = 0;
    const int code = block ? MPI_Waitsome(mpi_count(n), r_->requests.data(), &found, r_->indices.data(), r_->statuses.data())
                           : MPI_Testsome(mpi_count(n), r_->requests.data(), &found, r_->indices.data(), r_->statuses.data());
    if (code == MPI_ERR_IN_STATUS) {
      for (int k = 0; k < found; ++k) check(r_->statuses[static_cast<std::size_t>(k)].MPI_ERROR, "a message");
    }
    check(code, block ? "MPI_Waitsome" : "MPI_Testsome");
    r_->done.clear();
    if (found == MPI_UNDEFINED) return {};
    for (int k = 0; k < found; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const auto i = static_cast<std::size_t>(r_->indices[at]);
      int bytes = 0;
      if (r_->streams[i] != sending) check(MPI_Get_count(&r_->statuses[at], MPI_BYTE, &bytes), "MPI_Get_count");
      r_->done.push_back({r_->tokens[i], static_cast<std::size_t>(bytes)});
    }
    // From the back, so that a hole is never filled with another hole.
    if (found > 1) std::sort(r_->indices.begin(), r_->indices.begin() + found, [](int a, int b) { return a > b; });
    for (int k = 0; k < found; ++k) remove(static_cast<std::size_t>(r_->indices[static_cast<std::size_t>(k)]));
    return r_->done;
  }

  mpi_context* context_;
  std::unique_ptr<mpi_requests> r_;
  std::uint32_t call_;
};

}  // namespace omni::detail
