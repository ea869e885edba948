// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Semantic version of the library; `major * 10000 + minor * 100 + patch`.
#define OMNI_VERSION_MAJOR 0
#define OMNI_VERSION_MINOR 1
#define OMNI_VERSION_PATCH 0
#define OMNI_VERSION (OMNI_VERSION_MAJOR * 10000 + OMNI_VERSION_MINOR * 100 + OMNI_VERSION_PATCH)
