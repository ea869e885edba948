// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "allreduce.hpp"

namespace omni {

namespace detail {

/// Whether the host must not touch its elements: a device_span, whose header has the collectives of it.
template <class Data>
concept lies_elsewhere = !spannable<Data> && requires(Data & data) {
  data.subspan(0, data.size());
};

/// A collective of tensors that lie elsewhere, by its name.
template <collective_kind C, class... Arguments>
report run_elsewhere(Arguments&... all) {
  if constexpr (C == collective_kind::reduce_scatter) return reduce_scatter(all...);
  else if constexpr (C == collective_kind::allgather) return allgather(all...);
  else if constexpr (C == collective_kind::reduce) return reduce(all...);
  else return broadcast(all...);
}
template <collective_kind C, class... Arguments>
request start_elsewhere(Arguments&... all) {
  if constexpr (C == collective_kind::reduce_scatter) return ireduce_scatter(all...);
  else if constexpr (C == collective_kind::allgather) return iallgather(all...);
  else if constexpr (C == collective_kind::reduce) return ireduce(all...);
  else return ibroadcast(all...);
}

/// The arguments of a collective, fixed once.
template <collective_kind C, class Comm, class... Choices>
class planned_call {
 public:
  planned_call(Comm& comm, std::size_t elements, const Choices&... more)
      : comm_(handle(comm)), elements_(elements), more_(more...) {
    open();
  }

  /// In place, or from a tensor into another: what the collective takes.
  template <class... Data>
  requires(sizeof...(Data) == 1 || sizeof...(Data) == 2) report run(Data&&... data) {
    expect_size(data...);
    return std::apply(
        [&](const auto&... more) {
          if constexpr (C == collective_kind::allreduce) return allreduce(comm(), data..., more...);  // of tensors on a device, too
          else if constexpr ((lies_elsewhere<Data> || ...)) return run_elsewhere<C>(comm(), data..., more...);
          else return run_collective<C>(comm(), data..., more...);
        },
        more_);
  }
  /// Starts a run without waiting for it.
  template <class... Data>
  requires(sizeof...(Data) == 1 || sizeof...(Data) == 2) [[nodiscard]] request start(Data&&... data) {
    expect_size(data...);
    return std::apply(
        [&](const auto&... more) {
          if constexpr (C == collective_kind::allreduce) return iallreduce(comm(), data..., more...);
          else if constexpr ((lies_elsewhere<Data> || ...)) return start_elsewhere<C>(comm(), data..., more...);
          else return start_collective<C>(comm(), data..., more...);
        },
        more_);
  }
  [[nodiscard]] std::size_t size() const { return elements_; }

 private:
  template <class Data>
  static std::size_t size_of(Data& data) {
    static_assert(spannable<Data> || lies_elsewhere<Data>, "omni: the data is nothing that a std::span can be made from");
    if constexpr (grouped<Data>) {
      std::size_t all = 0;
      for (const auto& tensor : span_over(data)) all += span_over(tensor).size();
      return all;
    } else if constexpr (spannable<Data>) {
      return span_over(data).size();
    } else if constexpr (lies_elsewhere<Data>) {
      return data.size();
    } else {
      return 0;
    }
  }
  // The whole tensor comes first, or, in an allgather that has a part of it, last.
  template <class Data, class... Out>
  void expect_size(Data& data, Out&... out) const {
    if constexpr (C == collective_kind::allgather && sizeof...(Out) != 0) {
      expect_size(out...);
    } else if (const auto n = size_of(data); n != elements_) {
      throw usage(text() << "omni: the plan is for " << elements_ << " elements, the data has " << n);
    }
  }
  // Of the arguments, or none.
  [[nodiscard]] deadline limit() const {
    if constexpr ((std::is_same_v<Choices, deadline> || ...)) return std::get<deadline>(more_);
    else return {};
  }
  void open() {
    if constexpr (is_fabric<std::remove_const_t<Comm>>) open_on(comm().comm());
    else open_on(comm());
  }
  template <class On>
  void open_on(On& on) {
    using plain = std::remove_const_t<On>;
    if constexpr (!is_place<On, automatic>()) return;
    else if constexpr (transport_type<plain>) open_plan(on, limit());
    else communicator<plain>::open_plan(on, limit());
  }

  // A communicator is a handle and kept by value; a transport and a fabric are not.
  static constexpr bool is_transport = transport_type<std::remove_const_t<Comm>> || is_fabric<std::remove_const_t<Comm>>;
  static auto handle(Comm& comm) {
    if constexpr (is_transport) return &comm;
    else return comm;
  }
  auto& comm() {
    if constexpr (is_transport) return *comm_;
    else return comm_;
  }

  std::conditional_t<is_transport, Comm*, std::remove_const_t<Comm>> comm_;
  std::size_t elements_;
  std::tuple<Choices...> more_;
};

}  // namespace detail

/// The arguments of a call, fixed once and run often.
///
///     omni::plan p{comm, grad.size(), omni::sum{}};
///     for (...) p.run(grad);
///
/// Making a plan is collective: it opens the library's side of the communicator and, between hosts, measures it the first time, as
/// omni::calibrate does, and makes the communicators of hierarchical; it costs what they cost and throws what they throw. A
/// deadline among the arguments holds for that, too. After the first run of a shape, run() of one tensor allocates nothing, but
/// with a compressor, in two levels and where packets may be lost; start() allocates the request. Cost and errors of a run are
/// those of allreduce; a tensor of another size is a `usage` error. The communicator (or transport) must outlive the plan.
template <class Comm, class... Choices>
class plan : public detail::planned_call<detail::collective_kind::allreduce, Comm, Choices...> {
 public:
  using detail::planned_call<detail::collective_kind::allreduce, Comm, Choices...>::planned_call;
};

template <class Comm, class... Choices>
plan(Comm&, std::size_t, const Choices&...) -> plan<Comm, std::decay_t<Choices>...>;  // a function is kept by its address
template <class Comm, class... Choices>
plan(const Comm&, std::size_t, const Choices&...) -> plan<const Comm, std::decay_t<Choices>...>;

namespace detail {

template <collective_kind C, class Comm, class... Choices>
auto make_plan(Comm&& comm, std::size_t elements, const Choices&... more) {
  using plain = std::remove_cvref_t<Comm>;
  static_assert(std::is_lvalue_reference_v<Comm> || !(transport_type<plain> || is_fabric<plain>),
                "omni: a transport must outlive the plan; give one that has a name");
  return planned_call<C, std::remove_reference_t<Comm>, std::decay_t<Choices>...>(comm, elements, more...);
}

}  // namespace detail

/// Plans of the other collectives, with the arguments of each; `elements`: of the whole tensor, all parts together.
///
///     auto p = omni::plan_reduce_scatter(comm, grad.size(), omni::part_sizes{sizes});
///     for (...) p.run(grad, part);   // or p.run(grad), in place
///
/// A run allocates some words; else they are as omni::plan. What they are given, part_sizes among it, must outlive them.
template <class Comm, class... Choices>
[[nodiscard]] auto plan_reduce_scatter(Comm&& comm, std::size_t elements, const Choices&... more) {
  return detail::make_plan<detail::collective_kind::reduce_scatter>(std::forward<Comm>(comm), elements, more...);
}
template <class Comm, class... Choices>
[[nodiscard]] auto plan_allgather(Comm&& comm, std::size_t elements, const Choices&... more) {
  return detail::make_plan<detail::collective_kind::allgather>(std::forward<Comm>(comm), elements, more...);
}
template <class Comm, class... Choices>
[[nodiscard]] auto plan_reduce(Comm&& comm, std::size_t elements, const Choices&... more) {
  return detail::make_plan<detail::collective_kind::reduce>(std::forward<Comm>(comm), elements, more...);
}
template <class Comm, class... Choices>
[[nodiscard]] auto plan_broadcast(Comm&& comm, std::size_t elements, const Choices&... more) {
  return detail::make_plan<detail::collective_kind::broadcast>(std::forward<Comm>(comm), elements, more...);
}

}  // namespace omni
