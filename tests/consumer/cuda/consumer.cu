// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <mpi.h>

#include <omni/cuda/cuda.hpp>

// Finds the headers, compiles and links, and runs whether there is a device or not.
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int wrong = 0;
  try {
    omni::device_span<float> nothing;
    wrong = nothing.size() == 0 ? 0 : 1;
    omni::release_device_buffers();
  } catch (const omni::cuda_error&) {
  }
  MPI_Finalize();
  return wrong;
}
