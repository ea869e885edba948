// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The source of omni::compiled, for who builds it without CMake: a program whose files are all compiled with OMNI_COMPILED has one
// that includes this, and compiles the engines there alone.

#if !defined(OMNI_COMPILED)
#define OMNI_COMPILED
#endif
#define OMNI_COMPILED_SOURCE
#include "detail/run/compiled_calls.hpp"
#include "detail/run/compiled_pairs.hpp"
#include "detail/run/reduce_pairs.hpp"
#include "engines.hpp"
