// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// Rows of an embedding table: each rank has gradients for the few words of its batch, and all get the sums for the words of any, or
// each those for the rows that it keeps.

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <vector>

#include "omni/sparse.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  // In the order of the text: word 3 comes up twice on every rank, and each rank has a word of its own in a vocabulary of millions.
  constexpr std::size_t width = 64;
  const auto own_word = 5'000'000 - static_cast<std::uint32_t>(rank);
  const std::vector<std::uint32_t> words{3, own_word, 17, 3};
  const std::vector<float> gradients(words.size() * width, 1.0F);

  const auto r = omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{words, gradients, width});
  if (rank == 0) {
    std::cout << r.report << "\n";
    std::cout << r.keys.size() << " words, of which the first is " << r.keys.front() << "\n";
  }

  std::size_t wrong = r.keys.size() == 2 + static_cast<std::size_t>(ranks) ? 0 : 1;
  for (std::size_t i = 0; i < r.keys.size(); ++i) {
    const int expected = r.keys[i] == 3 ? 2 * ranks : r.keys[i] == 17 ? ranks : 1;
    for (std::size_t e = 0; e < width; ++e)
      if (r.values[i * width + e] != static_cast<float>(expected)) ++wrong;
  }

  // Where the table is spread over the ranks each gets the rows of its own part.
  const auto part = std::size_t{5'000'000} / static_cast<std::size_t>(ranks) + 1;
  const std::vector<std::size_t> rows_of_each(static_cast<std::size_t>(ranks), part);
  const auto mine =
      omni::reduce_scatter(MPI_COMM_WORLD, omni::sparse_view{words, gradients, width}, omni::part_sizes{rows_of_each});
  std::size_t next = 0;  // in what all got
  while (next < r.keys.size() && r.keys[next] / part < static_cast<std::size_t>(rank)) ++next;
  for (std::size_t i = 0; i < mine.keys.size(); ++i, ++next)
    if (next == r.keys.size() || mine.keys[i] != r.keys[next] || mine.values[i * width] != r.values[next * width]) ++wrong;
  if (next != r.keys.size() && r.keys[next] / part == static_cast<std::size_t>(rank)) ++wrong;
  if (wrong != 0) std::cerr << "rank " << rank << ": " << wrong << " elements are wrong\n";

  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
