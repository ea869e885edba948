// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "allreduce.hpp"

namespace omni {

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
class plan {
 public:
  plan(Comm& comm, std::size_t elements, const Choices&... more) : comm_(handle(comm)), elements_(elements), more_(more...) {
    open();
  }

  /// Reduces in place.
  template <class Data>
  report run(Data&& data) {
    expect_size(as_span_size(data));
    return std::apply([&](const auto&... more) { return allreduce(comm(), data, more...); }, more_);
  }
  /// Reduces `in` into `out`.
  template <class In, class Out>
  report run(In&& in, Out&& out) {
    expect_size(as_span_size(in));
    return std::apply([&](const auto&... more) { return allreduce(comm(), in, out, more...); }, more_);
  }
  /// Starts a run without waiting for it.
  template <class Data>
  [[nodiscard]] request start(Data&& data) {
    expect_size(as_span_size(data));
    return std::apply([&](const auto&... more) { return iallreduce(comm(), data, more...); }, more_);
  }
  template <class In, class Out>
  [[nodiscard]] request start(In&& in, Out&& out) {
    expect_size(as_span_size(in));
    return std::apply([&](const auto&... more) { return iallreduce(comm(), in, out, more...); }, more_);
  }
  [[nodiscard]] std::size_t size() const { return elements_; }

 private:
  template <class Data>
  static std::size_t as_span_size(Data& data) {
    constexpr bool elsewhere = requires { data.subspan(0, data.size()); };  // as a device_span: nothing that the host may touch
    static_assert(detail::spannable<Data> || elsewhere, "omni: the data is nothing that a std::span can be made from");
    if constexpr (detail::grouped<Data>) {
      std::size_t all = 0;
      for (const auto& tensor : detail::span_over(data)) all += detail::span_over(tensor).size();
      return all;
    } else if constexpr (detail::spannable<Data>) {
      return detail::span_over(data).size();
    } else if constexpr (elsewhere) {
      return data.size();
    } else {
      return 0;
    }
  }
  void expect_size(std::size_t n) const {
    if (n != elements_) throw usage(detail::text() << "omni: the plan is for " << elements_ << " elements, the data has " << n);
  }
  // Of the arguments, or none.
  [[nodiscard]] deadline limit() const {
    if constexpr ((std::is_same_v<Choices, deadline> || ...)) return std::get<deadline>(more_);
    else return {};
  }
  void open() {
    if constexpr (detail::is_fabric<std::remove_const_t<Comm>>) open_on(comm().comm());
    else open_on(comm());
  }
  template <class On>
  void open_on(On& on) {
    using plain = std::remove_const_t<On>;
    if constexpr (!detail::is_place<On, automatic>()) return;
    else if constexpr (transport_type<plain>) detail::open_plan(on, limit());
    else detail::communicator<plain>::open_plan(on, limit());
  }

  // A communicator is a handle and kept by value; a transport and a fabric are not.
  static constexpr bool is_transport = transport_type<std::remove_const_t<Comm>> || detail::is_fabric<std::remove_const_t<Comm>>;
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

template <class Comm, class... Choices>
plan(Comm&, std::size_t, const Choices&...) -> plan<Comm, Choices...>;
template <class Comm, class... Choices>
plan(const Comm&, std::size_t, const Choices&...) -> plan<const Comm, Choices...>;

}  // namespace omni
