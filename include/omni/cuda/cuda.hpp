// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Everything of the component omni::cuda.

#include "../detail/mpi/device_memory.hpp"
#include "allreduce.hpp"
#include "collectives.hpp"
#include "device_span.hpp"
#include "error.hpp"
