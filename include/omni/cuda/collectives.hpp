// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../collectives.hpp"
#include "../topology/automatic.hpp"
#include "allreduce.hpp"
#include "staged.hpp"

// The collectives beside allreduce on tensors in device memory. Compiled by nvcc.

namespace omni {
namespace detail {

// The stream is the device's affair, and automatic is colocated here.
template <class A>
auto unless_staged(const A& a) {
  if constexpr (is_stream<A> || std::is_same_v<A, automatic>) return std::tuple<>();
  else return std::tuple<const A&>(a);
}

template <collective_kind C, class Go, class... Policies, class Comm, class T, class... More>
auto stage_between(Comm& comm, device_span<const T> in, device_span<T> out, const More&... more) {
  using E = element_of_device<T>;
  const auto at = device_place::of(in, out, more...);
  const std::span<const E> from(reinterpret_cast<const E*>(in.data()), in.size());
  const std::span<E> to(reinterpret_cast<E*>(out.data()), out.size());
  return on_device_ranks(comm, [&](auto&& transport) {
    return std::apply(
        [&](const auto&... chosen) {
          return stage_tensors<C, Go, E>(std::forward<decltype(transport)>(transport), at.device, at.stream, at.failed, from, to,
                                         chosen...);
        },
        std::tuple_cat(unless_staged(Policies{})..., unless_staged(more)...));
  });
}

template <collective_kind C, class Go, class... Policies, class Comm, class Data, class... More>
auto stage(Comm& comm, Data& data, More&... more) {
  static_assert(C != collective_kind::broadcast || (!on_device<More> && ...),
                "omni: a broadcast has one tensor, which the root reads and the others write");
  return parse_device(
      [&](auto in, auto out, const auto&... rest) { return stage_between<C, Go, Policies...>(comm, in, out, rest...); }, data,
      more...);
}

}  // namespace detail

/// The collectives of omni/collectives.hpp on tensors in device memory: omni::device_span or thrust::device_vector. Arguments,
/// collectiveness, results and errors are theirs, by automatic or colocated, which are the same here; `cuda_error` where CUDA
/// fails, of which the other ranks hear unless they have their results already.
///
/// What a rank gives is copied to pinned memory, sent from there block by block as on the host, and what it gets is copied back:
/// both cross the bus once, dense, whatever is null. Pinned memory of the size of the tensors is kept for the next calls
/// (release_device_buffers()). With omni::on_stream{s} the copies are in the order of s, else of the default stream; the output
/// has been written when the call returns, or the request is done.
template <class... Policies, class Comm, class Data, class... More>
requires detail::on_device<std::remove_reference_t<Data>> report reduce_scatter(Comm&& comm, Data&& data, More&&... more) {
  return detail::stage<detail::collective_kind::reduce_scatter, detail::run_it, Policies...>(comm, data, more...);
}
template <class... Policies, class Comm, class Data, class... More>
requires detail::on_device<std::remove_reference_t<Data>> report allgather(Comm&& comm, Data&& part, More&&... more) {
  return detail::stage<detail::collective_kind::allgather, detail::run_it, Policies...>(comm, part, more...);
}
template <class... Policies, class Comm, class Data, class... More>
requires detail::on_device<std::remove_reference_t<Data>> report reduce(Comm&& comm, Data&& data, More&&... more) {
  return detail::stage<detail::collective_kind::reduce, detail::run_it, Policies...>(comm, data, more...);
}
template <class... Policies, class Comm, class Data, class... More>
requires detail::on_device<std::remove_reference_t<Data>> report broadcast(Comm&& comm, Data&& data, More&&... more) {
  return detail::stage<detail::collective_kind::broadcast, detail::run_it, Policies...>(comm, data, more...);
}

/// The same without waiting: the tensors belong to the operation until the request is done.
template <class... Policies, class Comm, class Data, class... More>
requires detail::on_device<std::remove_reference_t<Data>>
[[nodiscard]] request ireduce_scatter(Comm&& comm, Data&& data, More&&... more) {
  static_assert(detail::outlives_request<Comm&&>,
                "omni: the request would outlive the transport, which is a temporary; give it a name");
  return detail::stage<detail::collective_kind::reduce_scatter, detail::start_it, Policies...>(comm, data, more...);
}
template <class... Policies, class Comm, class Data, class... More>
requires detail::on_device<std::remove_reference_t<Data>>
[[nodiscard]] request iallgather(Comm&& comm, Data&& part, More&&... more) {
  static_assert(detail::outlives_request<Comm&&>,
                "omni: the request would outlive the transport, which is a temporary; give it a name");
  return detail::stage<detail::collective_kind::allgather, detail::start_it, Policies...>(comm, part, more...);
}
template <class... Policies, class Comm, class Data, class... More>
requires detail::on_device<std::remove_reference_t<Data>>
[[nodiscard]] request ireduce(Comm&& comm, Data&& data, More&&... more) {
  static_assert(detail::outlives_request<Comm&&>,
                "omni: the request would outlive the transport, which is a temporary; give it a name");
  return detail::stage<detail::collective_kind::reduce, detail::start_it, Policies...>(comm, data, more...);
}
template <class... Policies, class Comm, class Data, class... More>
requires detail::on_device<std::remove_reference_t<Data>>
[[nodiscard]] request ibroadcast(Comm&& comm, Data&& data, More&&... more) {
  static_assert(detail::outlives_request<Comm&&>,
                "omni: the request would outlive the transport, which is a temporary; give it a name");
  return detail::stage<detail::collective_kind::broadcast, detail::start_it, Policies...>(comm, data, more...);
}

}  // namespace omni
