// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "../../concepts.hpp"
#include "../../deadline.hpp"
#include "../../detect/simd.hpp"
#include "../../partition/fixed_blocks.hpp"
#include "../../roles.hpp"
#include "../../topology/automatic.hpp"
#include "../../topology/colocated.hpp"
#include "../../topology/hierarchical.hpp"
#include "../call/call.hpp"
#include "../call/element_loops.hpp"
#include "../codes/block_codec.hpp"
#include "../codes/remembering.hpp"

// Sorts the arguments of a call: data by position, everything else by what it is, in any order. What is wrong with a call is one
// static_assert here.

namespace omni::detail {

template <class A>
concept spannable = requires(A& a) {
  std::span(a);
};

/// The span that std::span makes of it. As a declaration: g++ 11 takes std::span(a) of a dependent type for a cast.
template <class A>
constexpr auto span_over(A& a) {
  const std::span made(a);
  return made;
}
template <class A>
using span_element = typename decltype(span_over(std::declval<A&>()))::element_type;

/// A span of whatever extent, with dynamic extent.
template <class A>
std::span<span_element<A>> as_span(A& a) {
  return span_over(a);
}

enum class kind { partitioner, detector, topology, compressor, arithmetic, error, limit, operation, root, sizes, null, none };

template <class A>
inline constexpr bool is_null_value = false;
template <class T>
inline constexpr bool is_null_value<null_value<T>> = true;

template <class A>
inline constexpr bool is_copied = std::is_copy_constructible_v<std::decay_t<A>>;  // a function by its address

template <class A, class T>
consteval kind kind_of() {
  if constexpr (partitioner<A>) return kind::partitioner;
  else if constexpr (zero_detector<A>) return kind::detector;
  else if constexpr (topology<A>) return kind::topology;
  else if constexpr (compresses<A>) return kind::compressor;
  else if constexpr (arithmetic<A>) return kind::arithmetic;
  else if constexpr (std::is_same_v<A, measured_error>) return kind::error;
  else if constexpr (std::is_same_v<A, deadline>) return kind::limit;
  else if constexpr (std::is_same_v<A, root>) return kind::root;
  else if constexpr (std::is_same_v<A, part_sizes>) return kind::sizes;
  else if constexpr (is_null_value<A>) return kind::null;
  else if constexpr (element<T> && is_copied<A>) {
    if constexpr (operation<decltype(normalized<A, T>(std::declval<const A&>())), T>) return kind::operation;
    else return kind::none;
  } else {
    return kind::none;
  }
}

template <class A>
inline constexpr int roles = int{partitioner<A>} + int{zero_detector<A>} + int{topology<A>} + int{compresses<A>};

template <kind K, class T, class... A>
inline constexpr std::size_t count_of = (std::size_t{0} + ... + (kind_of<A, T>() == K ? 1U : 0U));

/// The first argument of kind K, or the default.
template <kind K, class T, class Default>
constexpr Default pick(const Default& otherwise) {
  return otherwise;
}
template <kind K, class T, class Default, class First, class... More>
constexpr auto pick(const Default& otherwise, const First& first, const More&... more) {
  if constexpr (kind_of<First, T>() == K) return first;
  else return pick<K, T>(otherwise, more...);
}

/// Topologies by which more than allreduce runs.
template <class A>
inline constexpr bool is_for_family =
    std::is_same_v<A, automatic> || std::is_same_v<A, colocated> || std::is_same_v<A, hierarchical<>>;

/// Whether an argument is no operation but sum.
template <class A, class T>
consteval bool adds_or_not() {
  if constexpr (kind_of<A, T>() == kind::operation)
    return std::is_same_v<std::remove_cvref_t<decltype(normalized<A, T>(std::declval<const A&>()))>, sum>;
  else return true;
}

/// Whether an argument, if it is an operation, says of itself what can be understood.
template <class A, class T>
consteval bool is_clear() {
  if constexpr (kind_of<A, T>() == kind::operation) return has_static_traits<A> && !has_odd_name<A> && !has_odd_identity<A, T>;
  else return true;
}
/// Whether an argument, if it is a detector, finds elements of this type.
template <class A, class T>
consteval bool detects() {
  if constexpr (kind_of<A, T>() == kind::detector)
    return requires(const A& d, std::span<const T> run, std::size_t block, const T& identity) {
      { d.mark(run, block, identity) } -> std::convertible_to<std::uint64_t>;
    };
  else return true;
}

/// Whether A... are a legal tail of a call on elements of type T; says what is wrong if not.
template <collective_kind C, class T, class... A>
consteval bool legal() {
  constexpr bool type = element<T>;
  static_assert(type, "omni: elements must be trivially copyable, not const and not pointers, nor volatile");
  constexpr bool may_copy = !type || ((kind_of<A, T>() != kind::none || is_copied<A>)&&...);
  static_assert(may_copy, "omni: operations and policies are copied, and one of the arguments cannot be");
  constexpr bool known = !type || !may_copy || ((kind_of<A, T>() != kind::none) && ...);
  static_assert(known,
                "omni: an argument is neither an operation on this element type nor a policy (partitioner, zero detector, "
                "topology, compressor) nor a deadline, nor what the collective takes besides (for MPI_SUM write omni::sum{}, for "
                "a root omni::root{r})");
  constexpr bool one_role = ((roles<A> <= 1) && ...);
  static_assert(one_role,
                "omni: a policy models two of partitioner, zero_detector, topology and compressor; it must be exactly one");
  constexpr bool one_partitioner = count_of<kind::partitioner, T, A...> <= 1;
  static_assert(one_partitioner, "omni: two partitioners were given; each kind of policy at most once");
  constexpr bool one_detector = count_of<kind::detector, T, A...> <= 1;
  static_assert(one_detector, "omni: two zero detectors were given; each kind of policy at most once");
  constexpr bool one_arithmetic = count_of<kind::arithmetic, T, A...> <= 1;
  static_assert(one_arithmetic, "omni: two arithmetics were given; each kind of policy at most once");
  constexpr bool one_topology = count_of<kind::topology, T, A...> <= 1;
  static_assert(one_topology, "omni: two topologies were given; each kind of policy at most once");
  constexpr auto compressors = count_of<kind::compressor, T, A...>;
  static_assert(compressors <= 1, "omni: two compressors were given; put a quantiser after a sparsifier with |");
  constexpr bool encodable = !type || !known || compressors == 0 || is_roundable<T>;
  static_assert(encodable, "omni: compressors are for float, double, half and bfloat16");
  constexpr bool sums_codes =
      !type || !known || compressors == 0 || (C == collective_kind::allreduce && (adds_or_not<A, T>() && ...));
  static_assert(sums_codes, "omni: compressors are for allreduce, and for its sums");
  constexpr bool asks = count_of<kind::error, T, A...> <= (compressors == 1 ? 1 : 0) &&
                        (count_of<kind::error, T, A...> == 0 || ((compressor<A> || ...)));
  static_assert(asks, "omni: measured_error is given once, with a compressor that remembers nothing");
  constexpr bool even = !type || !known || compressors == 0 || ((!partitioner<A> || cuts_evenly<A>)&&...);
  static_assert(even, "omni: with a compressor blocks are of one size (fixed_blocks, or a partitioner with uniform())");
  constexpr bool one_limit = count_of<kind::limit, T, A...> <= 1;
  static_assert(one_limit, "omni: two deadlines were given");
  constexpr bool one_operation = !type || count_of<kind::operation, T, A...> <= 1;
  static_assert(one_operation, "omni: two operations were given");
  constexpr bool clear = !type || (is_clear<A, T>() && ...);
  static_assert(clear,
                "omni: what the operation says of itself is not understood: commutative and name are static constexpr, name is a "
                "std::string_view, identity() gives an element");
  constexpr bool finds = !type || (detects<A, T>() && ...);
  static_assert(finds, "omni: the zero detector has no mark() for elements of this type");
  constexpr bool sums = !type || !known || only_copies(C) || count_of<kind::operation, T, A...> == 1 || operation<sum, T>;
  static_assert(sums, "omni: elements of this type have no +; give an operation");

  constexpr bool reduces = !type || !only_copies(C) || count_of<kind::operation, T, A...> == 0;
  static_assert(reduces, "omni: allgather and broadcast reduce nothing, and take no operation");
  constexpr auto roots = count_of<kind::root, T, A...>, sizes = count_of<kind::sizes, T, A...>,
                 nulls = count_of<kind::null, T, A...>;
  constexpr bool has_root = C == collective_kind::reduce || C == collective_kind::broadcast;
  static_assert(roots <= (has_root ? 1 : 0), "omni: a root is given at most once, and to reduce and broadcast only");
  constexpr bool has_sizes = C == collective_kind::reduce_scatter || C == collective_kind::allgather;
  static_assert(sizes <= (has_sizes ? 1 : 0), "omni: part_sizes are given at most once, and to reduce_scatter and allgather only");
  constexpr bool null = nulls == 0 || (nulls == 1 && only_copies(C) && (std::is_same_v<A, null_value<T>> || ...));
  static_assert(null,
                "omni: a null_value is given at most once, to allgather and broadcast only, and is one of the elements' type");
  constexpr bool runs = C == collective_kind::allreduce || ((kind_of<A, T>() != kind::topology || is_for_family<A>)&&...);
  static_assert(runs, "omni: reduce_scatter, allgather, reduce and broadcast run by automatic, colocated or hierarchical<>");
  return type && may_copy && known && clear && finds && one_role && one_partitioner && one_detector && one_arithmetic &&
         one_topology && one_limit && one_operation && sums && compressors <= 1 && encodable && sums_codes && asks && even &&
         reduces && roots <= (has_root ? 1 : 0) && sizes <= (has_sizes ? 1 : 0) && null && runs;
}

/// The parts of a call beside its data, each given or defaulted.
template <class Op, class Partitioner, class Detector, class Topology>
struct choices {
  Op op;
  Partitioner partition;
  Detector detector;
  Topology topology;
  std::chrono::nanoseconds limit;  ///< of a wait; 0: none given
};

template <collective_kind C, class T, class... A>
constexpr auto choose(const A&... more) {
  const auto op = [&] {
    if constexpr (!only_copies(C))
      return normalized<decltype(pick<kind::operation, T>(sum{}, more...)), T>(pick<kind::operation, T>(sum{}, more...));
    else if constexpr (count_of<kind::null, T, A...> == 0) return copies<T>{};
    else return copies<T>{pick<kind::null, T>(0, more...).value};
  }();
  const auto partition = pick<kind::partitioner, T>(fixed_blocks{}, more...);
  const auto detector = pick<kind::detector, T>(simd_detector{}, more...);
  const auto topology = pick<kind::topology, T>(automatic{}, more...);
  return choices<std::remove_const_t<decltype(op)>, std::remove_const_t<decltype(partition)>,
                 std::remove_const_t<decltype(detector)>, std::remove_const_t<decltype(topology)>>{
      op, partition, detector, topology, pick<kind::limit, T>(deadline{}, more...).limit};
}

/// Notes which collective it is, and what goes with it.
template <collective_kind C, class T, class... A>
void take_roles(call& made, const A&... more) {
  made.kind = C;
  made.root = pick<kind::root, T>(root{}, more...).rank;
  made.part_sizes = pick<kind::sizes, T>(part_sizes{}, more...).elements;
}

/// A communicator beside which there is a switch (omni/fabric.hpp).
template <class Comm>
inline constexpr bool is_fabric = false;
template <class Comm>
requires requires { Comm::is_fabric; }
inline constexpr bool is_fabric<Comm> = true;

/// Notes how a switch does it, where there is one and it can. F::place, of what runs calls of users: what the call is on.
template <collective_kind C, class T, class Op, class F, class... A>
void note_arithmetic(call& made, const A&... more) {
  constexpr bool has_switch = requires { requires is_fabric<typename F::place>; };
  if constexpr (has_switch && C == collective_kind::allreduce) {
    made.fixed =
        pick<kind::arithmetic, T>(typename F::place::default_arithmetic{}, more...).template loops<T, std::remove_const_t<Op>>();
  }
}

/// Makes the call out of spans and the other arguments, and gives it to f (dispatch.hpp).
template <collective_kind C, class T, class... A, class F>
auto with_call(std::span<const T> in, std::span<T> out, const F& f, const A&... more);

}  // namespace omni::detail
