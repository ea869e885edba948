// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#endif

namespace omni::detail {

// Packets are written to memory that another core has read last. There the copy of a C library, string instructions above a few
// kilobytes, comes to 12 GB/s where vectors come to 17 to 21 (one core of a Xeon at 2.5 GHz).
#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
__attribute__((target("avx2"))) inline void copy_avx2(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto whole = bytes / 128 * 128;
  for (std::size_t i = 0; i < whole; i += 128) {
    const auto* const s = reinterpret_cast<const __m256i*>(from + i);
    auto* const d = reinterpret_cast<__m256i*>(to + i);
    const auto a = _mm256_loadu_si256(s), b = _mm256_loadu_si256(s + 1);
    const auto c = _mm256_loadu_si256(s + 2), e = _mm256_loadu_si256(s + 3);
    _mm256_storeu_si256(d, a);
    _mm256_storeu_si256(d + 1, b);
    _mm256_storeu_si256(d + 2, c);
    _mm256_storeu_si256(d + 3, e);
  }
  std::memcpy(to + whole, from + whole, bytes - whole);
}
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  static const bool wide = __builtin_cpu_supports("avx2") != 0;
  if (wide && bytes >= 256) copy_avx2(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  else if (bytes != 0) std::memcpy(to, from, bytes);
}
#else
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
#endif

/// How a rank stores what others will read. Each is the fastest somewhere; which, is measured (detail/shared/core_distance.hpp).
enum class stores : unsigned char {
  vectors,  ///< each line is taken from the core that holds it, which on another die lasts
  strings,  ///< the processor's string instruction: large pieces take lines without asking for what is in them
  streams,  ///< past the caches: no line is asked for, and the reader finds the bytes in memory
};
inline constexpr std::size_t kinds_of_stores = 3;

/// Copies to memory that other ranks have read before, and will read again. It is seen by them after publish().
#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
__attribute__((target("avx2"))) inline void stream_avx2(std::byte* to, const std::byte* from, std::size_t lines) {
  for (std::size_t i = 0; i < lines * 64; i += 64) {
    const auto* const s = reinterpret_cast<const __m256i*>(from + i);
    auto* const d = reinterpret_cast<__m256i*>(to + i);
    const auto a = _mm256_loadu_si256(s), b = _mm256_loadu_si256(s + 1);
    _mm256_stream_si256(d, a);
    _mm256_stream_si256(d + 1, b);
  }
}
inline void copy_out(void* to, const void* from, std::size_t bytes, stores how) {
  static const bool wide = __builtin_cpu_supports("avx2") != 0;
  const auto head = (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64;
  constexpr std::size_t least_string = 4096;
  auto* d = static_cast<std::byte*>(to);
  const auto* s = static_cast<const std::byte*>(from);
  if (how == stores::strings && bytes >= least_string) {
    asm volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(bytes) : : "memory");
    return;
  }
  if (how != stores::streams || !wide || bytes < head + 64) return copy_bytes(to, from, bytes);
  const auto lines = (bytes - head) / 64, done = head + lines * 64;
  copy_bytes(d, s, head);
  stream_avx2(d + head, s + head, lines);
  copy_bytes(d + done, s + done, bytes - done);
}
/// What this rank has copied out is there before anything that it stores from now on.
inline void publish(stores how) {
  if (how == stores::streams) _mm_sfence();
}
#else
inline void copy_out(void* to, const void* from, std::size_t bytes, stores /*how*/) { copy_bytes(to, from, bytes); }
inline void publish(stores /*how*/) {}
#endif

/// n times the same element. Compilers make scalar loops of std::fill_n at -O2; most identities are one byte over and over.
template <class T>
void fill_elements(T* to, std::size_t n, const T& value) {
  std::array<unsigned char, sizeof(T)> bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
  std::memcpy(bytes.data(), &value, sizeof(T));
  for (const auto b : bytes)
    if (b != bytes[0]) {
      std::fill_n(to, n, value);
      return;
    }
  if (n != 0) std::memset(static_cast<void*>(to), bytes[0], n * sizeof(T));
}

}  // namespace omni::detail
