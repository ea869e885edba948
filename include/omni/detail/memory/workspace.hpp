// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace omni::detail {

/// Packet buffers, handed out from first to last in each call, so that a call of the same shape allocates nothing.
class packet_buffers {
 public:
  void rewind() { next_ = 0; }

  [[nodiscard]] std::span<std::byte> take(std::size_t bytes) {
    if (next_ == all_.size()) all_.emplace_back();
    auto& b = all_[next_++];
    if (b.size < bytes) {
      total_ -= b.size;
      b = buffer{};
      b.memory.reset(static_cast<std::byte*>(::operator new(bytes, alignment)));
      b.size = bytes;
      total_ += bytes;
    }
    return {b.memory.get(), bytes};
  }
  [[nodiscard]] std::size_t bytes() const { return total_; }

 private:
  static constexpr std::align_val_t alignment{64};
  struct release {
    void operator()(std::byte* p) const { ::operator delete(p, alignment); }
  };
  struct buffer {
    std::unique_ptr<std::byte, release> memory;
    std::size_t size = 0;
  };
  std::vector<buffer> all_;
  std::size_t next_ = 0, total_ = 0;
};

/// One T of this thread. None where the thread ends: statics, and whatever else borrows, may be destroyed after it.
template <class T>
T* kept_by_thread() {
  thread_local bool gone = false;  // trivially destructible: can be looked at later
  struct kept {
    kept() = default;
    kept(const kept&) = delete;
    kept(kept&&) = delete;
    kept& operator=(const kept&) = delete;
    kept& operator=(kept&&) = delete;
    ~kept() { gone = true; }
    T value;
  };
  if (gone) return nullptr;
  thread_local kept one;
  return &one.value;
}

/// State kept from call to call. Borrowed from a pool of the thread, returned when the borrower ends.
template <class State>
class borrowed {
 public:
  borrowed() {
    auto* const pool = spare();
    if (pool != nullptr) pool->reserve(keep);  // while it may fail
    if (pool == nullptr || pool->empty()) {
      state_ = std::make_unique<State>();
    } else {
      state_ = std::move(pool->back());
      pool->pop_back();
    }
  }
  borrowed(borrowed&&) noexcept = default;
  borrowed& operator=(borrowed&&) noexcept = default;
  borrowed(const borrowed&) = delete;
  borrowed& operator=(const borrowed&) = delete;
  ~borrowed() {
    if (state_ == nullptr || state_->bytes() > most_kept()) return;
    auto* const pool = spare();
    if (pool != nullptr && pool->size() < std::min(keep, pool->capacity())) pool->push_back(std::move(state_));
  }

  State* operator->() const { return state_.get(); }
  State& operator*() const { return *state_; }
  /// Never frees it: messages that were given up may still be written to it.
  void leak() { static_cast<void>(state_.release()); }

 private:
  static constexpr std::size_t keep = 4;
  // A state may say how large it may be to be kept.
  static constexpr std::size_t most_kept() {
    if constexpr (requires { State::keep_bytes; }) return State::keep_bytes;
    else return std::size_t{64} << 20U;
  }

  static std::vector<std::unique_ptr<State>>* spare() { return kept_by_thread<std::vector<std::unique_ptr<State>>>(); }
  std::unique_ptr<State> state_;
};

}  // namespace omni::detail
