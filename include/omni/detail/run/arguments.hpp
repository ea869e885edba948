// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../../concepts.hpp"
#include "../../deadline.hpp"
#include "../../detect/simd.hpp"
#include "../../partition/fixed_blocks.hpp"
#include "../../topology/automatic.hpp"

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

enum class kind { partitioner, detector, topology, limit, operation, none };

template <class A, class T>
consteval kind kind_of() {
  if constexpr (partitioner<A>) return kind::partitioner;
  else if constexpr (zero_detector<A>) return kind::detector;
  else if constexpr (topology<A>) return kind::topology;
  else if constexpr (std::is_same_v<A, deadline>) return kind::limit;
  else if constexpr (element<T>) {
    if constexpr (operation<decltype(normalized<A, T>(std::declval<const A&>())), T>) return kind::operation;
    else return kind::none;
  } else {
    return kind::none;
  }
}

template <class A>
inline constexpr int roles = int{partitioner<A>} + int{zero_detector<A>} + int{topology<A>};

template <kind K, class T, class... A>
inline constexpr std::size_t count_of = (std::size_t{0} + ... + (kind_of<A, T>() == K ? 1U : 0U));

/// The first argument of kind K, or the default.
template <kind K, class T, class Default, class... A>
constexpr auto pick(const Default& otherwise, const std::tuple<const A&...>& all) {
  if constexpr (count_of<K, T, A...> == 0) {
    return otherwise;
  } else {
    constexpr std::size_t at = [] {
      std::size_t i = 0, found = sizeof...(A);
      ((kind_of<A, T>() == K && found == sizeof...(A) ? found = i++ : i++), ...);
      return found;
    }();
    return std::get<at>(all);
  }
}

/// Whether A... are a legal tail of a call on elements of type T; says what is wrong if not.
template <class T, class... A>
consteval bool legal() {
  constexpr bool type = element<T>;
  static_assert(type, "omni: elements must be trivially copyable, not const and not pointers");
  constexpr bool known = !type || ((kind_of<A, T>() != kind::none) && ...);
  static_assert(known,
                "omni: an argument is neither an operation on this element type nor a policy (partitioner, zero detector, "
                "topology) nor a deadline");
  constexpr bool one_role = ((roles<A> <= 1) && ...);
  static_assert(one_role, "omni: a policy models two of partitioner, zero_detector and topology; it must be exactly one");
  constexpr bool one_partitioner = count_of<kind::partitioner, T, A...> <= 1;
  static_assert(one_partitioner, "omni: two partitioners were given; each kind of policy at most once");
  constexpr bool one_detector = count_of<kind::detector, T, A...> <= 1;
  static_assert(one_detector, "omni: two zero detectors were given; each kind of policy at most once");
  constexpr bool one_topology = count_of<kind::topology, T, A...> <= 1;
  static_assert(one_topology, "omni: two topologies were given; each kind of policy at most once");
  constexpr bool one_limit = count_of<kind::limit, T, A...> <= 1;
  static_assert(one_limit, "omni: two deadlines were given");
  constexpr bool one_operation = !type || count_of<kind::operation, T, A...> <= 1;
  static_assert(one_operation, "omni: two operations were given");
  constexpr bool sums = !type || !known || count_of<kind::operation, T, A...> == 1 || operation<sum, T>;
  static_assert(sums, "omni: elements of this type have no +; give an operation");
  return type && known && one_role && one_partitioner && one_detector && one_topology && one_limit && one_operation && sums;
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

template <class T, class... A>
constexpr auto choose(const A&... a) {
  const std::tuple<const A&...> all(a...);
  const auto op = normalized<decltype(pick<kind::operation, T>(sum{}, all)), T>(pick<kind::operation, T>(sum{}, all));
  const auto partition = pick<kind::partitioner, T>(fixed_blocks{}, all);
  const auto detector = pick<kind::detector, T>(simd_detector{}, all);
  const auto topology = pick<kind::topology, T>(automatic{}, all);
  return choices<std::remove_const_t<decltype(op)>, std::remove_const_t<decltype(partition)>,
                 std::remove_const_t<decltype(detector)>, std::remove_const_t<decltype(topology)>>{
      op, partition, detector, topology, pick<kind::limit, T>(deadline{}, all).limit};
}

}  // namespace omni::detail
