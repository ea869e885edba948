// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include "begin.hpp"

namespace preload {

void add_floating(reduction_entries& entries) {
  entry(entries, element::f32, operation::sum) = direct<float, omni::sum>();
  entry(entries, element::f32, operation::min) = direct<float, omni::min>();
  entry(entries, element::f32, operation::max) = direct<float, omni::max>();
  entry(entries, element::f64, operation::sum) = direct<double, omni::sum>();
  entry(entries, element::f64, operation::min) = direct<double, omni::min>();
  entry(entries, element::f64, operation::max) = direct<double, omni::max>();
}

}  // namespace preload
