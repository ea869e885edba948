// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "qualifiers.hpp"
#include "tiles.hpp"

namespace omni::detail {

/// Reads a vector that will not be read again soon.
template <unsigned Width>
OMNI_DETAIL_DEVICE vector<Width> load_vector(const std::byte* p) {
#if defined(__CUDACC__)
  if constexpr (Width == 16) {
    const uint4 v = __ldcs(reinterpret_cast<const uint4*>(p));
    return {{v.x, v.y, v.z, v.w}};
  } else if constexpr (Width == 8) {
    const uint2 v = __ldcs(reinterpret_cast<const uint2*>(p));
    return {{v.x, v.y}};
  } else {
    return {{__ldcs(reinterpret_cast<const typename vector<Width>::word*>(p))}};
  }
#else
  assert(reinterpret_cast<std::uintptr_t>(p) % Width == 0);
  vector<Width> v{};
  std::memcpy(&v, p, Width);
  return v;
#endif
}
template <unsigned Width>
OMNI_DETAIL_DEVICE void store_vector(std::byte* p, const vector<Width>& v) {
#if defined(__CUDACC__)
  if constexpr (Width == 16) *reinterpret_cast<uint4*>(p) = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
  else if constexpr (Width == 8) *reinterpret_cast<uint2*>(p) = make_uint2(v.w[0], v.w[1]);
  else *reinterpret_cast<typename vector<Width>::word*>(p) = v.w[0];
#else
  assert(reinterpret_cast<std::uintptr_t>(p) % Width == 0);
  std::memcpy(p, &v, Width);
#endif
}

/// Vector number v of a null tensor.
template <unsigned Width>
OMNI_DETAIL_DEVICE vector<Width> null_vector(const null_bits& null, std::uint32_t v) {
  const std::uint32_t byte = v * Width % 16;
  vector<Width> n{};
  OMNI_DETAIL_UNROLL
  for (unsigned i = 0; i < vector<Width>::words; ++i) {
    const auto whole = null.words[byte / 4 + i];
    n.w[i] = static_cast<typename vector<Width>::word>(whole >> (8 * (byte % 4)));
  }
  return n;
}
/// One that has only `bytes` bytes; the rest are those of `rest`. By shifts, of which all are known when it is compiled: an array
/// of bytes would lie in memory.
template <unsigned Width>
OMNI_DETAIL_DEVICE vector<Width> load_part(const std::byte* p, std::uint32_t bytes, vector<Width> rest) {
  using word = typename vector<Width>::word;
  OMNI_DETAIL_UNROLL
  for (unsigned i = 0; i < Width; ++i) {
    const unsigned shift = 8 * (i % sizeof(word));
    auto& w = rest.w[i / sizeof(word)];
    if (i < bytes) w = static_cast<word>((w & ~(0xffU << shift)) | static_cast<std::uint32_t>(p[i]) << shift);
  }
  return rest;
}
template <unsigned Width>
OMNI_DETAIL_DEVICE void store_part(std::byte* p, std::uint32_t bytes, const vector<Width>& v) {
  using word = typename vector<Width>::word;
  OMNI_DETAIL_UNROLL
  for (unsigned i = 0; i < Width; ++i)
    if (i < bytes) p[i] = static_cast<std::byte>(v.w[i / sizeof(word)] >> (8 * (i % sizeof(word))) & 0xffU);
}

/// Where a thread writes vectors of a tensor, of which one may go past the end: that is put off, so that its bytes are written in
/// one place of the code.
template <unsigned Width>
class bounded_output {
 public:
  OMNI_DETAIL_DEVICE bounded_output(std::byte* out, std::uint64_t bytes) : out_(out), bytes_(bytes), last_at_(bytes) {}
  OMNI_DETAIL_DEVICE void put(std::uint64_t at, const vector<Width>& v) {
    if (at + Width <= bytes_) {
      store_vector<Width>(out_ + at, v);
    } else if (at < bytes_) {
      last_ = v;
      last_at_ = at;
    }
  }
  OMNI_DETAIL_DEVICE void finish() const {
    if (last_at_ != bytes_) store_part<Width>(out_ + last_at_, static_cast<std::uint32_t>(bytes_ - last_at_), last_);
  }

 private:
  std::byte* out_;
  std::uint64_t bytes_, last_at_;
  vector<Width> last_{};
};

OMNI_DETAIL_DEVICE std::uint32_t count_bits(std::uint32_t x) {
#if defined(__CUDACC__)
  return static_cast<std::uint32_t>(__popc(x));
#else
  return static_cast<std::uint32_t>(std::popcount(x));
#endif
}

}  // namespace omni::detail
