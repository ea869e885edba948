// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>

#include "reductions.hpp"

namespace preload {

/// Whether omni takes them: MPI has its own words for buffers that are null, special, or overlap. `in` and `out` are the same where
/// MPI_IN_PLACE was said, and only there.
inline bool are_usable(const void* in, const void* out, std::size_t bytes) {
  if (in == nullptr || out == nullptr || in == MPI_BOTTOM || out == MPI_BOTTOM || out == MPI_IN_PLACE) return false;
  const auto* const i = static_cast<const char*>(in);
  const auto* const o = static_cast<const char*>(out);
  const std::less<const char*> before;
  return i == o || !before(o, i + bytes) || !before(i, o + bytes);
}

/// Whether two pieces of memory have nothing in common.
inline bool before_or_behind(const void* a, std::size_t bytes_of_a, const void* b, std::size_t bytes_of_b) {
  const auto* const x = static_cast<const char*>(a);
  const auto* const y = static_cast<const char*>(b);
  const std::less<const char*> before;
  return !before(y, x + bytes_of_a) || !before(x, y + bytes_of_b);
}

/// The memory of a call, or copies of it: MPI takes an array of doubles at any address, omni's loops do not.
class aligned_buffers {
 public:
  /// Of elements of so many bytes.
  aligned_buffers(const memory& m, std::size_t element, std::size_t alignment) : given_(m), bytes_(m.out_count * element) {
    used_ = m;
    const auto misaligned = [&](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % alignment != 0; };
    if (!misaligned(m.in) && !misaligned(m.out)) return;
    copied_ = true;
    const auto copy = [](std::size_t bytes) {
      return std::make_unique_for_overwrite<std::max_align_t[]>(bytes / sizeof(std::max_align_t) + 1);
    };
    in_ = copy(m.in_count * element);
    std::memcpy(in_.get(), m.in, m.in_count * element);
    used_.in = in_.get();
    used_.out = in_.get();
    if (m.in == m.out) return;
    out_ = copy(bytes_);
    used_.out = out_.get();
  }
  [[nodiscard]] const memory& used() const { return used_; }
  /// The result is there.
  void deliver() const {
    if (copied_ && bytes_ != 0 && !given_.is_read) std::memcpy(given_.out, used_.out, bytes_);
  }

 private:
  memory given_, used_{};
  std::size_t bytes_;
  bool copied_ = false;
  std::unique_ptr<std::max_align_t[]> in_, out_;
};

}  // namespace preload
