// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <span>
#include <tuple>
#include <type_traits>

#include "../collectives.hpp"
#include "../topology/automatic.hpp"
#include "../topology/colocated.hpp"
#include "allreduce.hpp"
#include "staged.hpp"

// The collectives beside allreduce on tensors in device memory. Compiled by nvcc.

namespace omni {
namespace detail {

// What is chosen here: the stream is the device's affair, and the tensors go by colocated.
template <class A>
auto unless_staged(const A& a) {
  if constexpr (is_stream<A> || std::is_same_v<A, automatic> || std::is_same_v<A, colocated>) return std::tuple<>();
  else return std::tuple<const A&>(a);
}

template <collective_kind C, class... Policies, class Comm, class T, class... More>
report stage_between(Comm& comm, device_span<const T> in, device_span<T> out, const More&... more) {
  using E = element_of_device<T>;
  const auto at = device_place::of(in, out, more...);
  const std::span<const E> from(reinterpret_cast<const E*>(in.data()), in.size());
  const std::span<E> to(reinterpret_cast<E*>(out.data()), out.size());
  return on_device_ranks(comm, [&](auto&& transport) {
    return std::apply(
        [&](const auto&... chosen) { return run_staged<C, E>(transport, at.device, at.stream, at.failed, from, to, chosen...); },
        std::tuple_cat(unless_staged(Policies{})..., unless_staged(more)...));
  });
}

template <collective_kind C, class... Policies, class Comm, class Data, class... More>
report stage(Comm& comm, Data& data, More&... more) {
  const auto s = as_device_span(data);
  using T = std::remove_const_t<typename decltype(s)::element_type>;
  constexpr bool has_output = [] {
    if constexpr (sizeof...(More) == 0) return false;
    else return on_device<std::tuple_element_t<0, std::tuple<More...>>>;
  }();
  if constexpr (has_output) {
    static_assert(C != collective_kind::broadcast, "omni: a broadcast has one tensor, which the root reads and the others write");
    return [&](auto& out, auto&... rest) {
      const auto to = as_device_span(out);
      static_assert(std::is_same_v<typename decltype(to)::element_type, T>,
                    "omni: the output is const, or has another element type than the input");
      return stage_between<C, Policies...>(comm, device_span<const T>(s), to, rest...);
    }(more...);
  } else {
    static_assert(std::is_same_v<typename decltype(s)::element_type, T>,
                  "omni: in place, and the data is const; give an output as well");
    return stage_between<C, Policies...>(comm, device_span<const T>(s), s, more...);
  }
}

}  // namespace detail

/// The collectives of omni/collectives.hpp on tensors in device memory: omni::device_span or thrust::device_vector. Arguments,
/// collectiveness, results and errors are theirs, by colocated; `cuda_error` where CUDA fails, of which the other ranks hear if it
/// was before they needed this rank. Blocking calls only; null blocks are looked for on the host.
///
/// What a rank gives is copied to pinned memory, sent there block by block as on the host, and what it gets is copied back: the
/// bytes of its tensors once over the bus, dense, besides what the collective sends. Pinned memory of that size is kept for the
/// next calls (release_device_buffers()). With omni::on_stream{s} this is in the order of s, which the call waits for.
template <class... Policies, class Comm, class Data, class... More>
requires detail::on_device<std::remove_reference_t<Data>> report reduce_scatter(Comm&& comm, Data&& data, More&&... more) {
  return detail::stage<detail::collective_kind::reduce_scatter, Policies...>(comm, data, more...);
}
template <class... Policies, class Comm, class Data, class... More>
requires detail::on_device<std::remove_reference_t<Data>> report allgather(Comm&& comm, Data&& part, More&&... more) {
  return detail::stage<detail::collective_kind::allgather, Policies...>(comm, part, more...);
}
template <class... Policies, class Comm, class Data, class... More>
requires detail::on_device<std::remove_reference_t<Data>> report reduce(Comm&& comm, Data&& data, More&&... more) {
  return detail::stage<detail::collective_kind::reduce, Policies...>(comm, data, more...);
}
template <class... Policies, class Comm, class Data, class... More>
requires detail::on_device<std::remove_reference_t<Data>> report broadcast(Comm&& comm, Data&& data, More&&... more) {
  return detail::stage<detail::collective_kind::broadcast, Policies...>(comm, data, more...);
}

}  // namespace omni
