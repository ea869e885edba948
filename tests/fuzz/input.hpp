// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

// A fuzzer's input is a list of packets: for each a byte that says whose or which stream, two of length, and the bytes.

namespace fuzz {

struct item {
  unsigned about;
  std::vector<std::byte> bytes;
};

inline std::vector<item> items(std::span<const std::uint8_t> input) {
  std::vector<item> all;
  while (input.size() >= 3) {
    const auto length = std::min<std::size_t>(input[1] + 256U * input[2], input.size() - 3);
    const auto bytes = std::as_bytes(input.subspan(3, length));
    all.push_back({input[0], {bytes.begin(), bytes.end()}});
    input = input.subspan(3 + length);
  }
  return all;
}

inline std::string text(std::span<const item> all) {
  std::string s;
  for (const auto& i : all) {
    s += static_cast<char>(i.about);
    s += static_cast<char>(i.bytes.size() & 255U);
    s += static_cast<char>(i.bytes.size() >> 8U);
    s.append(reinterpret_cast<const char*>(i.bytes.data()), i.bytes.size());
  }
  return s;
}

}  // namespace fuzz
