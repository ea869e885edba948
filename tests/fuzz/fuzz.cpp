// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// For libFuzzer: the environment's OMNI_FUZZ says which target, packets, server, slots or worker.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "../support/leaks.hpp"
#include "targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const char* const named = std::getenv("OMNI_FUZZ");
  static const std::string_view target = named == nullptr ? "" : named;
  const testing::leaks_are_meant meant;
  if (target == "packets") fuzz::packets({data, size});
  else if (target == "server") fuzz::server({data, size});
  else if (target == "slots") fuzz::slots({data, size});
  else if (target == "worker") fuzz::worker({data, size});
  else std::abort();
  return 0;
}
