// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// What bench/instructions/run.py counts: allreduces among threads. DENSITY in percent, CALLS.

#include <algorithm>
#include <cstdlib>
#include <omni/omni.hpp>
#include <random>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const double density = std::atof(argv[1]) / 100;
  const int calls = std::atoi(argv[2]);
  constexpr std::size_t n = std::size_t{1} << 20U, block = 256;
  omni::transport::threads::run(2, [&](omni::transport::threads& comm) {
    std::mt19937_64 random(static_cast<std::uint64_t>(comm.rank()) + 1);
    std::vector<float> in(n), out(n);
    for (std::size_t b = 0; b < n; b += block)
      if (static_cast<double>(random() >> 11U) * 0x1p-53 < density) std::fill_n(in.data() + b, block, 1.0F);
    for (int i = 0; i < calls; ++i) omni::allreduce(comm, in, out, omni::colocated{});
  });
  return 0;
}
