// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include "begin.hpp"

namespace preload {

void add_integers(reduction_entries& entries) {
  // Sums wrap: the sign makes no difference.
  entry(entries, element::i32, operation::sum) = entry(entries, element::u32, operation::sum) = direct<std::int32_t, omni::sum>();
  entry(entries, element::i64, operation::sum) = entry(entries, element::u64, operation::sum) = direct<std::int64_t, omni::sum>();
  entry(entries, element::i32, operation::min) = direct<std::int32_t, omni::min>();
  entry(entries, element::i32, operation::max) = direct<std::int32_t, omni::max>();
  entry(entries, element::i64, operation::min) = direct<std::int64_t, omni::min>();
  entry(entries, element::i64, operation::max) = direct<std::int64_t, omni::max>();
  entry(entries, element::u64, operation::bor) = direct<std::uint64_t, omni::bor>();
}

}  // namespace preload
