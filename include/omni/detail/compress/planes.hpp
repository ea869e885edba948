// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "../call/vectors.hpp"

// Numbers of a few bits each, put into bytes. Numbers of b bits are written as planes of 8, 4, 2 and 1 bits of each number. A byte
// of a plane holds bits of numbers that lie far apart, so that vectors of neighbours are packed by shifts alone.

namespace omni::detail {

/// What a number of the planes is before it is packed.
using level = std::uint16_t;

/// Room for n numbers that is kept from call to call, and zeros behind them for the planes' ends.
inline level* level_room(std::size_t n) {
  thread_local std::vector<level> room;
  if (room.size() < n + 8) room.resize(n + 8);
  std::fill_n(room.begin() + static_cast<std::ptrdiff_t>(n), 8, level{0});
  return room.data();
}

/// Calls f(width, shift) for each plane of numbers of so many bits.
template <class F>
constexpr void for_each_plane(unsigned bits, const F& f) {
  for (unsigned shift = 0; bits != 0;) {
    unsigned width = 8;
    while (width > bits) width /= 2;
    f(width, shift);
    shift += width;
    bits -= width;
  }
}
/// Bytes of a plane: the last one may have fewer numbers.
constexpr std::size_t bytes_of_plane(std::size_t n, unsigned width) { return (n * width + 7) / 8; }
constexpr std::size_t bytes_of_planes(std::size_t n, unsigned bits) {
  std::size_t bytes = 0;
  for_each_plane(bits, [&](unsigned width, unsigned /*shift*/) { bytes += bytes_of_plane(n, width); });
  return bytes;
}

template <unsigned Width>
[[gnu::always_inline]] inline void pack_plane(const level* from, std::size_t n, unsigned shift, std::byte* to) {
  constexpr level mask = (1U << Width) - 1;
  const auto m = bytes_of_plane(n, Width);
  // Written out for each part, and in 16 bits: so it becomes vectors of as many. There is no vector instruction that shifts 16 bits
  // by what is not constant, but the upper half of a product is shifted.
  const auto pack = [&]<std::size_t... K>(const auto& shifted, std::index_sequence<K...> /*parts*/) {
    const auto part = [=](std::size_t j, std::size_t k) {
      return static_cast<level>(static_cast<level>(shifted(from[j + k * m]) & mask) << (k * Width));
    };
    for_each_index<32>(m, [=](std::size_t j) { to[j] = static_cast<std::byte>((part(j, K) | ...)); });
  };
  constexpr std::make_index_sequence<8 / Width> parts;
  if (shift == 0) pack([](level l) { return l; }, parts);
  else if (shift == 8) pack([](level l) { return static_cast<level>(l >> 8U); }, parts);
  else
    pack([times =
              static_cast<level>(0x10000U >> shift)](level l) { return static_cast<level>(unsigned{l} * unsigned{times} >> 16U); },
         parts);
}
template <unsigned Width>
[[gnu::always_inline]] inline void unpack_plane(const std::byte* from, std::size_t n, unsigned shift, level* to) {
  constexpr unsigned parts = 8 / Width, mask = (1U << Width) - 1;
  const auto m = bytes_of_plane(n, Width);
  for (unsigned k = 0; k < parts; ++k) {
    auto* const part = to + k * m;
    if (shift == 0) {
      for_each_index<32>(m, [=](std::size_t j) {
        part[j] = static_cast<level>(unsigned{static_cast<unsigned char>(from[j])} >> (k * Width) & mask);
      });
    } else {
      for_each_index<32>(m, [=](std::size_t j) {
        part[j] = static_cast<level>(part[j] | (unsigned{static_cast<unsigned char>(from[j])} >> (k * Width) & mask) << shift);
      });
    }
  }
}

/// Packs n numbers. `from` is what level_room() has given.
[[gnu::always_inline]] inline void pack_planes(const level* from, std::size_t n, unsigned bits, std::byte* to) {
  for_each_plane(bits, [&](unsigned width, unsigned shift) {
    switch (width) {
      case 8:
        pack_plane<8>(from, n, shift, to);
        break;
      case 4:
        pack_plane<4>(from, n, shift, to);
        break;
      case 2:
        pack_plane<2>(from, n, shift, to);
        break;
      default:
        pack_plane<1>(from, n, shift, to);
    }
    to += bytes_of_plane(n, width);
  });
}
/// The reverse, into what level_room() has given.
[[gnu::always_inline]] inline void unpack_planes(const std::byte* from, std::size_t n, unsigned bits, level* to) {
  for_each_plane(bits, [&](unsigned width, unsigned shift) {
    switch (width) {
      case 8:
        unpack_plane<8>(from, n, shift, to);
        break;
      case 4:
        unpack_plane<4>(from, n, shift, to);
        break;
      case 2:
        unpack_plane<2>(from, n, shift, to);
        break;
      default:
        unpack_plane<1>(from, n, shift, to);
    }
    from += bytes_of_plane(n, width);
  });
}

}  // namespace omni::detail
