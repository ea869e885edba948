// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>

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

/// The program's buffers, or copies of them: MPI takes an array of doubles at any address, omni's loops do not.
class aligned_buffers {
 public:
  aligned_buffers(const void* in, void* out, std::size_t bytes, std::size_t alignment) : in_(in), out_(out), bytes_(bytes) {
    const auto misaligned = [&](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % alignment != 0; };
    if (!misaligned(in) && !misaligned(out)) return;
    copy_ = std::make_unique_for_overwrite<std::max_align_t[]>(bytes / sizeof(std::max_align_t) + 1);
    std::memcpy(copy_.get(), in, bytes);
  }
  [[nodiscard]] const void* in() const { return copy_ ? copy_.get() : in_; }
  [[nodiscard]] void* out() const { return copy_ ? copy_.get() : out_; }
  /// The result is there.
  void deliver() const {
    if (copy_) std::memcpy(out_, copy_.get(), bytes_);
  }

 private:
  const void* in_;
  void* out_;
  std::size_t bytes_;
  std::unique_ptr<std::max_align_t[]> copy_;
};

}  // namespace preload
