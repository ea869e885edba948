// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// A program whose language writes 1.234,5: numbers for other programs are none of its business.

#include <mpi.h>

#include <iostream>
#include <locale>
#include <omni/collectives.hpp>
#include <string>
#include <vector>

namespace {

struct with_commas : std::numpunct<char> {
  [[nodiscard]] char do_decimal_point() const override { return ','; }
  [[nodiscard]] char do_thousands_sep() const override { return '.'; }
  [[nodiscard]] std::string do_grouping() const override { return "\3"; }
};

}  // namespace

int main(int argc, char** argv) {
  std::locale::global(std::locale(std::locale(), new with_commas));  // which owns it
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<int> x(1 << 20), wanted(x.size());
  x[12345] = rank;
  wanted[12345] = ranks * (ranks - 1) / 2;
  auto y = x;
  omni::allreduce(MPI_COMM_WORLD, x);
  omni::broadcast(MPI_COMM_WORLD, x);
  MPI_Allreduce(MPI_IN_PLACE, y.data(), static_cast<int>(y.size()), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (x != wanted || y != wanted) std::cerr << "rank " << rank << ": a wrong sum\n";
  MPI_Finalize();
  return x == wanted && y == wanted ? 0 : 1;
}
