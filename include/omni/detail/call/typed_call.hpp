// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "call.hpp"
#include "element_loops.hpp"
#include "tensor_group.hpp"

namespace omni::detail {

/// A call whose types are known yet.
template <class T, class Op, class Partitioner, class Detector>
class typed_call : public call {
 public:
  using value_type = T;
  using operation_type = Op;
  using policies = call_policies<T, Op, Partitioner, Detector>;
  static constexpr bool is_group = false;  ///< of several tensors

  typed_call(const policies& p, std::span<const T> i, std::span<T> o)
      : call(loops_of<T, Op, Partitioner, Detector>, &p, std::as_bytes(i), std::as_writable_bytes(o)) {}
};
/// Of several tensors.
template <class T, class Op, class Partitioner, class Detector>
class typed_group : public call {
 public:
  using value_type = T;
  using operation_type = Op;
  using policies = call_policies<T, Op, Partitioner, Detector>;
  static constexpr bool is_group = true;

  [[nodiscard]] static constexpr const element_loops& table() { return loops_of<T, Op, Partitioner, Detector>; }

  typed_group(const policies& p, std::vector<std::span<const std::byte>> i, std::vector<std::span<std::byte>> o)
      : call(table(), &p, std::make_shared<const tensor_group>(table(), &p, std::move(i), std::move(o))) {}
};

}  // namespace omni::detail
