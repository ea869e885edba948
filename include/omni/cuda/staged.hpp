// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "../block.hpp"
#include "../detail/call/tensor_arrival.hpp"
#include "../detail/run/arguments.hpp"
#include "../detail/run/dispatch.hpp"
#include "../detail/run/there.hpp"
#include "../error.hpp"
#include "../report.hpp"
#include "../request.hpp"
#include "../roles.hpp"
#include "../topology/colocated.hpp"
#include "device_transfer.hpp"

// The collectives other than allreduce on tensors of a device: what a rank gives is copied to pinned memory, ranks do there what
// they do on the host by `colocated`, and what it gets is copied back, all in the order of the caller's stream.

namespace omni::detail {

/// The elements of a rank's tensors that a collective reads and writes.
struct staged_ranges {
  block_range read, written;
};
template <collective_kind C>
staged_ranges ranges_of(std::size_t in, std::size_t out, bool in_place, int rank, int ranks, int root,
                        std::span<const std::size_t> sizes) {
  const auto r = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(ranks);
  // Of parts that are too long nothing is read: the call refuses them.
  const auto own = [&](std::size_t all) -> block_range {
    if (sizes.empty()) return {all / n * r, all / n};
    block_range mine{};
    std::size_t first = 0;
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      if (sizes[k] > all - first) return {};
      if (k == r) mine = {first, sizes[k]};
      first += sizes[k];
    }
    return mine;
  };
  const block_range all_in{0, in}, all_out{0, out}, none{};
  const bool is_root = rank == root;
  switch (C) {
    case collective_kind::reduce_scatter:
      return {all_in, in_place ? own(out) : all_out};
    case collective_kind::allgather:
      return {in_place ? own(in) : all_in, all_out};
    case collective_kind::reduce:
      return {all_in, is_root ? all_out : none};
    case collective_kind::broadcast:
      return {is_root ? all_in : none, is_root ? none : all_out};
    case collective_kind::allreduce:
      break;
  }
  return {all_in, all_out};
}

/// The pinned memory of such a call, and the way there and back.
template <accelerator Device>
class staged_tensors final : public tensor_arrival {
 public:
  using stream = typename Device::stream;

  /// `failed`: an error of the device that the other ranks have to hear of, or nothing.
  staged_tensors(const Device& device, stream callers, std::exception_ptr failed, std::size_t in_bytes, std::size_t out_bytes)
      : device_(device), callers_(callers), buffers_(device), failed_(std::move(failed)) {
    attempt([&] {
      auto& b = *buffers_;
      b.called.make(device_);
      b.staged_in.reserve(device_, in_bytes);
      b.staged_out.reserve(device_, out_bytes);
    });
  }
  staged_tensors(const staged_tensors&) = delete;
  staged_tensors(staged_tensors&&) = delete;
  staged_tensors& operator=(const staged_tensors&) = delete;
  staged_tensors& operator=(staged_tensors&&) = delete;
  /// After an error of the device it may still be reading and writing what would be the next call's.
  ~staged_tensors() override {
    try {
      await();
    } catch (...) {
      if (copies_) buffers_.leak();
    }
  }

  [[nodiscard]] std::byte* in() const { return buffers_->staged_in.data(); }
  [[nodiscard]] std::byte* out() const { return buffers_->staged_out.data(); }

  /// Begins to copy the input.
  void bring(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes != 0) attempt([&] { copy(to, from, bytes); });
  }
  /// What settle() copies.
  void take_back(std::byte* to, const std::byte* from, std::size_t bytes) {
    to_ = to;
    from_ = from;
    bytes_ = bytes;
  }

  [[nodiscard]] bool has_failed() const override { return failed_ != nullptr; }
  [[nodiscard]] std::size_t bytes() const override { return buffers_->bytes(); }
  [[nodiscard]] bool is_here() override {
    expect_begun();
    if (!copies_) return true;
    const auto guard = device_.enter();
    copies_ = !device_.reached(buffers_->called.get());
    return !copies_;
  }
  void await() override {
    expect_begun();
    if (!copies_) return;
    const auto guard = device_.enter();
    device_.synchronize(buffers_->called.get());
    copies_ = false;
  }
  void settle() override {
    await();
    if (bytes_ == 0) return;
    const auto guard = device_.enter();
    copy(to_, from_, bytes_);
    device_.synchronize(buffers_->called.get());  // the next call has the same memory
    copies_ = false;
  }

 private:
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    copies_ = true;
    device_.copy(callers_, to, from, bytes);
    device_.record(buffers_->called.get(), callers_);
  }
  void expect_begun() const {
    if (failed_) std::rethrow_exception(failed_);
  }
  template <class F>
  void attempt(const F& f) {
    if (failed_) return;
    try {
      const auto guard = device_.enter();
      f();
    } catch (...) {
      failed_ = std::current_exception();
    }
  }

  Device device_;
  stream callers_;
  borrowed_buffers<Device> buffers_;
  std::exception_ptr failed_;
  bool copies_ = false;
  std::byte* to_ = nullptr;
  const std::byte* from_ = nullptr;
  std::size_t bytes_ = 0;
};

/// What makes the call of it: parse()'s f.
template <class Transport, class Go>
struct staged_call {
  static constexpr bool waits = Go::waits, loses_nothing = true;
  using place = std::remove_cvref_t<Transport>;
  std::shared_ptr<tensor_arrival> arrival;
  Transport&& transport;

  template <class Call, class Topology>
  auto operator()(Call& call, const Topology& topology) const {
    static_assert(std::is_same_v<Topology, colocated>, "omni: collectives of tensors on a device go by automatic or colocated");
    call.arrives(arrival);
    return Go{}(std::forward<Transport>(transport), call, topology);
  }
};

/// Such a call; the spans are of the device's memory.
template <collective_kind C, class Go, class T, accelerator Device, class Transport, class... A>
auto stage_tensors(Transport&& transport, const Device& device, typename Device::stream stream, const std::exception_ptr& failed,
                   std::span<const T> in, std::span<T> out, const A&... more) {
  static_assert(!may_lose<std::remove_cvref_t<Transport>>,
                "omni: collectives other than allreduce need a transport that loses nothing");
  using result = std::conditional_t<Go::waits, report, request>;
  const auto sizes = pick<kind::sizes, T>(part_sizes{}, more...).elements;
  const auto ranges = [&](std::size_t from, bool in_place) {
    return ranges_of<C>(from, out.size(), in_place, transport.rank(), transport.size(), pick<kind::root, T>(root{}, more...).rank,
                        sizes);
  };
  const bool in_place = in.data() == out.data() && in.size() == out.size();
  const auto part = ranges(in.size(), in_place);
  // A rank's part of an allgather is brought to its place at once.
  constexpr bool gathers = C == collective_kind::allgather;
  const auto place = gathers ? ranges(out.size(), true).read : part.read;
  if (gathers && !in_place && (sizes.empty() || sizes.size() == static_cast<std::size_t>(transport.size())) &&
      place.size != in.size())
    throw usage("omni: this rank's part has " + std::to_string(place.size) + " elements, and the memory for it " +
                std::to_string(in.size()));
  const bool has_one = in_place || gathers;
  auto way = std::make_shared<staged_tensors<Device>>(device, stream, failed, has_one ? 0 : in.size_bytes(), out.size_bytes());
  // Where there is none, the engine hears it before it looks at any.
  T* const to = way->has_failed() ? out.data() : reinterpret_cast<T*>(way->out());
  T* const from = has_one ? to : way->has_failed() ? const_cast<T*>(in.data()) : reinterpret_cast<T*>(way->in());  // NOLINT
  const auto bytes_at = [](auto* p, std::size_t n) { return std::as_writable_bytes(std::span(p, n)).data(); };
  // Parts that do not add up are refused below: there may be no room for what the caller gives.
  if (!gathers || in_place || place.size == in.size())
    way->bring(bytes_at(from, 0) + place.first * sizeof(T), std::as_bytes(in).data() + part.read.first * sizeof(T),
               part.read.size * sizeof(T));
  way->take_back(bytes_at(out.data(), 0) + part.written.first * sizeof(T), bytes_at(to, 0) + part.written.first * sizeof(T),
                 part.written.size * sizeof(T));
  const staged_call<Transport, Go> f{way, std::forward<Transport>(transport)};
  std::span<T> given(from, in.size()), gotten(to, out.size());
  const auto go = [&](const auto&... chosen) -> result {
    if constexpr (C == collective_kind::broadcast || gathers) {
      return parse<C, result>(f, gotten, chosen...);
    } else {
      if (has_one) return parse<C, result>(f, gotten, chosen...);
      return parse<C, result>(f, given, gotten, chosen...);
    }
  };
  if constexpr (count_of<kind::topology, T, A...> == 0) return go(more..., colocated{});
  else return go(more...);
}

}  // namespace omni::detail
