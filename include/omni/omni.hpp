// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Everything that needs no more than a compiler and mpi.h.

#include "allreduce.hpp"
#include "arithmetic/native.hpp"
#include "arithmetic/shared_exponent.hpp"
#include "calibrate.hpp"
#include "cluster.hpp"
#include "collectives.hpp"
#include "concepts.hpp"
#include "detect/scalar.hpp"
#include "detect/simd.hpp"
#include "element.hpp"
#include "error.hpp"
#include "operation.hpp"
#include "partition/fixed_blocks.hpp"
#include "plan.hpp"
#include "report.hpp"
#include "roles.hpp"
#include "sparse.hpp"
#include "topology/automatic.hpp"
#include "topology/colocated.hpp"
#include "topology/dedicated.hpp"
#include "topology/hierarchical.hpp"
#include "topology/replicated.hpp"
#include "topology/ring.hpp"
#include "transport/testing/threads.hpp"
#include "version.hpp"
