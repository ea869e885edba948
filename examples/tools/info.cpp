// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// omni-info: what omni finds where it runs, and what omni::automatic would choose for tensors of floats.
//
//     mpirun -np 4 omni-info

#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>

#include "omni/calibrate.hpp"

namespace {

std::string size_name(std::size_t bytes) {
  if (bytes >= std::size_t{1} << 20U) return std::to_string(bytes >> 20U) + " MiB";
  if (bytes >= std::size_t{1} << 10U) return std::to_string(bytes >> 10U) + " KiB";
  return std::to_string(bytes) + " B";
}

/// As reports name it.
std::string_view choice(std::size_t bytes, double density, const omni::detail::selection_context& here) {
  using omni::automatic;
  using omni::detail::algorithm;
  if (here.ranks == 1) return "local";
  if (here.shares && here.forced == omni::detail::preset::automatic && automatic::is_recorded(bytes, here.ranks) &&
      !automatic::is_too_dense(bytes, density, here.slow_window))
    return automatic::is_folded_by_all(bytes, here.ranks) ? "replicated" : "colocated";
  switch (automatic{}.choose(bytes, density, here)) {
    case algorithm::native:
      return "mpi";
    case algorithm::levels:
      return "hierarchical";
    case algorithm::ring:
      return "ring";
    case algorithm::streams:
      break;
  }
  // Longer tensors go piece by piece, which counts as colocated.
  const bool pieces = here.shares && !here.slow_window && here.forced == omni::detail::preset::automatic &&
                      here.ranks <= automatic::most_sharing_ranks;
  return automatic::is_replicated(here) && !pieces ? "replicated" : "colocated";
}

void print(const omni::transport::mpi& transport, const omni::calibration& measured) {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> library{};
  int length = 0;
  MPI_Get_library_version(library.data(), &length);
  const std::string_view mpi(library.data());
  auto here = omni::detail::context_of(omni::detail::adapted<omni::transport::mpi>(transport));
  here.native = here.commutes = true;
  here.hands_over = transport.agreed_limit().count() == 0;
  std::printf("omni %d.%d.%d, %.*s\n", OMNI_VERSION_MAJOR, OMNI_VERSION_MINOR, OMNI_VERSION_PATCH,
              static_cast<int>(mpi.substr(0, mpi.find_first_of(",\n")).size()), mpi.data());
  std::printf("%-28s %d, %s\n", "ranks", here.ranks,
              here.one_host               ? "on one host"
              : here.ranks_of_a_host == 1 ? "each on a host of its own"
                                          : ("up to " + std::to_string(here.ranks_of_a_host) + " on a host").c_str());
  std::printf("%-28s %s\n", "memory that all share", here.shares ? "yes" : "no");
  if (const auto* const shared = transport.shared_window(); shared != nullptr && shared->distance().known()) {
    const auto& d = shared->distance();
    constexpr std::array stores{"vectors", "strings", "streams"};
    std::printf("%-28s %s: a line goes there and back in %.0f ns, dirty lines are read at %.1f GB/s\n", "cores of the ranks",
                d.is_far() ? "far apart" : "near", d.round_trip * 1e9, d.dirty_read / 1e9);
    std::printf("%-28s %s (64 KiB written and read: vectors %.1f us, strings %.1f us, streams %.1f us)\n",
                "that memory is filled with", stores[static_cast<std::size_t>(d.best())], d.exchange[0] * 1e6, d.exchange[1] * 1e6,
                d.exchange[2] * 1e6);
  }
  std::printf("%-28s %s\n", "zeros are found with", std::string(omni::detail::mark_instructions()).c_str());
  if (measured.known()) {
    std::printf("%-28s %.1f us\n", "latency", measured.latency * 1e6);
    std::printf("%-28s %.1f MB/s a rank, each way, all at once\n", "link", measured.link_rate / 1e6);
    std::printf("%-28s %.1f MB/s a rank, all at once\n", "scan", measured.scan_rate / 1e6);
    if (measured.small_bytes > 0) std::printf("%-28s %zu bytes\n", "MPI has dense tensors up to", measured.small_bytes);
    if (measured.mpi_rate > 0) std::printf("%-28s %.1f MB/s of a tensor of 4 MiB\n", "MPI_Allreduce", measured.mpi_rate / 1e6);
  }
  if (!here.shares && here.ranks > 1)
    std::printf("%-28s %zu bytes\n", "no rank is asked up to", omni::automatic{}.small_limit(here));

  constexpr std::array densities{0.001, 0.01, 0.1, 0.5, 1.0};
  std::printf("\nomni::automatic, blocks that are not null:\n%9s", "");
  for (const double d : densities) std::printf(" %12.1f%%", d * 100);
  for (std::size_t bytes = 4; bytes <= std::size_t{256} << 20U; bytes *= 4) {
    std::printf("\n%9s", size_name(bytes).c_str());
    for (const double d : densities) std::printf(" %13s", std::string(choice(bytes, d, here)).c_str());
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    const bool asked = std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0;
    (asked ? std::cout : std::cerr)
        << "usage: mpirun -np RANKS omni-info\n\nPrints what omni finds where it runs, what it measures "
           "there, and what omni::automatic would choose.\n";
    return asked ? 0 : 2;
  }
  MPI_Init(&argc, &argv);
  try {
    const auto measured = omni::calibrate(MPI_COMM_WORLD);
    const omni::transport::mpi transport(MPI_COMM_WORLD);
    if (transport.rank() == 0) print(transport, measured);
  } catch (const std::exception& e) {
    std::cerr << "omni-info: " << e.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
