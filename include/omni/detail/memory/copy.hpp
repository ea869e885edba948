// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

namespace omni::detail {

// Packets are written to memory that another core has read last. There the copy of a C library, string instructions above a few
// kilobytes, comes to 12 GB/s where vectors come to 17 to 21 (one core of a Xeon at 2.5 GHz).
#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
// The compilers' own vectors: immintrin.h is as long as all that the library includes beside it.
using copied [[gnu::vector_size(32)]] = long long;

__attribute__((target("avx2"))) inline void copy_avx2(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto whole = bytes / 128 * 128;
  for (std::size_t i = 0; i < whole; i += 128) {
    copied a, b, c, d;
    std::memcpy(&a, from + i, sizeof(a));
    std::memcpy(&b, from + i + 32, sizeof(b));
    std::memcpy(&c, from + i + 64, sizeof(c));
    std::memcpy(&d, from + i + 96, sizeof(d));
    std::memcpy(to + i, &a, sizeof(a));
    std::memcpy(to + i + 32, &b, sizeof(b));
    std::memcpy(to + i + 64, &c, sizeof(c));
    std::memcpy(to + i + 96, &d, sizeof(d));
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

/// Asks for memory that will be read soon.
inline void prefetch(std::span<const std::byte> soon) {
  for (std::size_t i = 0; i < soon.size(); i += 64) __builtin_prefetch(&soon[i]);
}

#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
using line_half [[gnu::vector_size(32), gnu::may_alias]] = long long;

/// Past the caches.
__attribute__((target("avx2"))) inline void store_past(std::byte* to, line_half half) {
#if defined(__clang__)
  __builtin_nontemporal_store(half, reinterpret_cast<line_half*>(to));
#else
  __builtin_ia32_movntdq256(reinterpret_cast<line_half*>(to), half);
#endif
}
__attribute__((target("avx2"))) inline void stream_avx2(std::byte* to, const std::byte* from, std::size_t lines) {
  for (std::size_t i = 0; i < lines * 64; i += 64) {
    line_half a, b;
    std::memcpy(&a, from + i, sizeof(a));
    std::memcpy(&b, from + i + sizeof(a), sizeof(b));
    store_past(to + i, a);
    store_past(to + i + sizeof(a), b);
  }
}
__attribute__((target("avx2"))) inline void stream_byte_avx2(std::byte* to, std::size_t lines, std::byte value) {
  line_half all;
  std::memset(&all, static_cast<int>(value), sizeof(all));
  for (std::size_t i = 0; i < lines * 64; i += sizeof(all)) store_past(to + i, all);
}
/// Copies to memory that other ranks have read before, and will read again. It is seen by them after publish().
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
/// Fills memory that nobody reads soon: no line is fetched to be overwritten. publish(stores::streams) comes after it.
inline void fill_out(std::byte* to, std::size_t bytes, std::byte value) {
  static const bool wide = __builtin_cpu_supports("avx2") != 0;
  const auto head = std::min((64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64, bytes);
  const auto lines = wide ? (bytes - head) / 64 : 0, done = head + lines * 64;
  if (bytes == 0) return;
  std::memset(to, static_cast<int>(value), head);
  if (wide) stream_byte_avx2(to + head, lines, value);
  std::memset(to + done, static_cast<int>(value), bytes - done);
}
/// What this rank has copied out is there before anything that it stores from now on.
inline void publish(stores how) {
  if (how == stores::streams) __builtin_ia32_sfence();
}
#else
inline void copy_out(void* to, const void* from, std::size_t bytes, stores /*how*/) { copy_bytes(to, from, bytes); }
inline void fill_out(std::byte* to, std::size_t bytes, std::byte value) {
  if (bytes != 0) std::memset(to, static_cast<int>(value), bytes);
}
inline void publish(stores /*how*/) {}
#endif

/// Bytes of the third cache that a core has; 0 where the system does not tell. (sysconf() adds up those of all cores.)
inline std::size_t third_cache_bytes() {
  std::array<char, 32> text{};
  if (auto* const file = std::fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re")) {
    static_cast<void>(std::fread(text.data(), 1, text.size() - 1, file));
    static_cast<void>(std::fclose(file));
  }
  char* unit = nullptr;
  const auto number = std::strtoull(text.data(), &unit, 10);
  return static_cast<std::size_t>(number) << (*unit == 'K' ? 10U : *unit == 'M' ? 20U : 0U);
}
/// Whether so many bytes of a result are written past the caches, where they are null or not read again: there is no room for them
/// beside the input.
inline bool goes_past_caches(std::size_t bytes) {
  constexpr auto least = std::size_t{16} << 20U, most = std::size_t{64} << 20U;
  if (bytes < least) return false;
  static const auto cache = third_cache_bytes();
  return bytes >= (cache == 0 ? most : std::clamp(cache / 2, least, most));
}

}  // namespace omni::detail
