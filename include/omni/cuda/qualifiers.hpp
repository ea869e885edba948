// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What kernels are made of compiles twice: by nvcc for a device, and by any compiler for tests that go through a tile thread by
// thread. These macros are all that differs.

#if defined(__CUDACC__)
#define OMNI_DETAIL_DEVICE __device__ __forceinline__
#define OMNI_DETAIL_BOTH __host__ __device__ __forceinline__
#define OMNI_DETAIL_UNROLL _Pragma("unroll")
#else
#define OMNI_DETAIL_DEVICE inline
#define OMNI_DETAIL_BOTH inline
#define OMNI_DETAIL_UNROLL
#endif
