// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <exception>
#include <omni/cuda/staged.hpp>
#include <span>

#include "late_device.hpp"

// The collectives other than allreduce on tensors of a device in software, as cuda/collectives.hpp has them.

namespace testing {

template <omni::detail::collective_kind C, class Go = omni::detail::run_it, class Comm, class Data, class... More>
auto stage(late_machine& machine, Comm& comm, Data& data, const More&... more) {
  const std::span all(data);
  using T = typename decltype(all)::element_type;
  return omni::detail::stage_tensors<C, Go, T>(comm, late_device{&machine}, late_device::stream{}, std::exception_ptr{},
                                               std::span<const T>(all), all, more...);
}
/// Out of place.
template <omni::detail::collective_kind C, class Go = omni::detail::run_it, class Comm, class Data, class Out, class... More>
requires requires(Out& out) { std::span(out); }
auto stage(late_machine& machine, Comm& comm, Data& data, Out& out, const More&... more) {
  const std::span to(out);
  using T = typename decltype(to)::element_type;
  return omni::detail::stage_tensors<C, Go, T>(comm, late_device{&machine}, late_device::stream{}, std::exception_ptr{},
                                               std::span<const T>(data), to, more...);
}

struct staged_calls {
  late_machine& machine;

  template <class... A>
  omni::report reduce_scatter(A&&... a) {
    return stage<omni::detail::collective_kind::reduce_scatter>(machine, a...);
  }
  template <class... A>
  omni::report allgather(A&&... a) {
    return stage<omni::detail::collective_kind::allgather>(machine, a...);
  }
  template <class... A>
  omni::report reduce(A&&... a) {
    return stage<omni::detail::collective_kind::reduce>(machine, a...);
  }
  template <class... A>
  omni::report broadcast(A&&... a) {
    return stage<omni::detail::collective_kind::broadcast>(machine, a...);
  }
};

}  // namespace testing
