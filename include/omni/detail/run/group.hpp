// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "../../report.hpp"
#include "../call/call.hpp"
#include "../call/topology_state.hpp"
#include "../call/trace.hpp"
#include "../call/typed_call.hpp"
#include "argument_checks.hpp"
#include "arguments.hpp"
#include "codes.hpp"
#include "integers.hpp"

// Makes one operation of many tensors (detail/call/tensor_group.hpp).

namespace omni::detail {

/// A range of tensors: std::vector<std::span<T>>, std::vector<std::vector<T>>, std::array<std::span<T>, 3>. What has a length that
/// is part of its type, as std::array has, is an element.
template <class A>
concept grouped = spannable<A> && requires(A& a) {
  std::span(*std::span(a).data());
  requires decltype(std::span(*std::span(a).data()))::extent == std::dynamic_extent;
  requires !requires { typename std::remove_cvref_t<decltype(*std::span(a).data())>::traits_type; };  // a string is no tensor
};
template <class A>
using group_element = span_element<span_element<A>>;

template <class A>
std::vector<std::span<const std::byte>> inputs_of(A& tensors) {
  std::vector<std::span<const std::byte>> all;
  all.reserve(span_over(tensors).size());
  for (auto& tensor : span_over(tensors)) all.emplace_back(std::as_bytes(as_span(tensor)));
  return all;
}
template <class A>
std::vector<std::span<std::byte>> outputs_of(A& tensors) {
  std::vector<std::span<std::byte>> all;
  all.reserve(span_over(tensors).size());
  for (auto& tensor : span_over(tensors)) all.emplace_back(std::as_writable_bytes(as_span(tensor)));
  return all;
}

/// What several calls did together.
inline void add_to(report& sum, const report& one) {
  add_cost(sum, one);
  sum.topology = one.topology;
  sum.blocks_total += one.blocks_total;
  sum.blocks_sent += one.blocks_sent;
  sum.union_blocks += one.union_blocks;
  sum.dense_bytes += one.dense_bytes;
  sum.seconds += one.seconds;
  sum.escaped_blocks += one.escaped_blocks;
  sum.error_bound = std::max(sum.error_bound, one.error_bound);
  if (sum.blocks_total == 0) return;
  sum.density = static_cast<double>(sum.blocks_sent) / static_cast<double>(sum.blocks_total);
  sum.union_density = static_cast<double>(sum.union_blocks) / static_cast<double>(sum.blocks_total);
}

/// What is wrong with the tensors of a group is said before anything is made of them.
inline void expect_group(const std::vector<std::span<const std::byte>>& in, const std::vector<std::span<std::byte>>& out,
                         const element_loops& loops, const void* policies) {
  if (in.size() != out.size()) throw usage(text() << "omni: the input has " << in.size() << " tensors, the output " << out.size());
  for (std::size_t i = 0; i < in.size(); ++i) expect_tensor(in[i], out[i], loops.element_bytes);
  expect_disjoint(in, out);
  expect_blocks(call(loops, policies, {}, {}));
}

/// Makes the call of a group out of its tensors and the other arguments, and gives it to f.
template <collective_kind C, class T, class... A, class F>
auto with_group(std::vector<std::span<const std::byte>> in, std::vector<std::span<std::byte>> out, const F& f, const A&... more) {
  static_assert(C != collective_kind::reduce_scatter && C != collective_kind::allgather,
                "omni: parts are of one tensor; reduce_scatter and allgather take no groups");
  const auto c = choose<C, T>(more...);
  static_assert(!adds_integers<C, T, decltype(c.op), A...>() || is_fabric<typename F::place>,
                "omni: shared_exponent on hosts is for one tensor");
  using group_type = typed_group<T, decltype(c.op), decltype(c.partition), decltype(c.detector)>;
  const typename group_type::policies policies(c.op, c.partition, c.detector);
  expect_group(in, out, group_type::table(), &policies);
  if constexpr (count_of<kind::compressor, T, A...> != 0) {
    return with_codes<C, T>(in, out, f, more...);
  } else {
    group_type made(policies, std::move(in), std::move(out));
    choose_topology(made, c.topology);
    made.limit = c.limit;
    take_roles<C, T>(made, more...);
    note_arithmetic<C, T, decltype(c.op), F>(made, more...);
    return f(made, c.topology);
  }
}

}  // namespace omni::detail
