// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// One of the targets, for libFuzzer: -DOMNI_FUZZ=packets, server or slots.
#include <cstddef>
#include <cstdint>

#include "../support/leaks.hpp"
#include "targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const testing::leaks_are_meant meant;
  fuzz::OMNI_FUZZ({data, size});
  return 0;
}
