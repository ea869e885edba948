// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "composed.hpp"
#include "diana.hpp"
#include "dithering.hpp"
#include "error_feedback.hpp"
#include "natural.hpp"
#include "natural_dithering.hpp"
#include "proximal.hpp"
#include "random_blocks.hpp"
#include "random_k.hpp"
#include "sign.hpp"
#include "to.hpp"
#include "top_blocks.hpp"
#include "top_elements.hpp"
#include "top_k.hpp"
#include "vr_diana.hpp"

// All compressors, error feedback and compressed gradient differences.
