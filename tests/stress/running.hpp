// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <omni/omni.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "../support/oracle.hpp"
#include "../support/patterns.hpp"
#include "drawn.hpp"

// Runs what was drawn on a communicator of any kind, and holds it against the oracle.

namespace stress {

inline constexpr auto longest_wait = std::chrono::seconds(20);

/// Whether a call on it may lose packets: then there are tensors only, and two topologies.
template <class Comm>
constexpr bool loses() {
  if constexpr (requires { Comm::may_lose; }) return Comm::may_lose;
  else return false;
}

/// A call that was started.
class running_call {
 public:
  running_call() = default;
  running_call(const running_call&) = delete;
  running_call(running_call&&) = delete;
  running_call& operator=(const running_call&) = delete;
  running_call& operator=(running_call&&) = delete;
  virtual ~running_call() = default;
  virtual void wait() = 0;
  virtual bool test() = 0;
  /// What is wrong with the result; empty if nothing.
  [[nodiscard]] virtual std::string verdict() const = 0;
};

template <class T, class Op, bool Common = true>
class tensor_call final : public running_call {
 public:
  template <class Comm>
  tensor_call(Comm& comm, const drawn_call& c, int rank, int ranks) : c_(c), rank_(rank), ranks_(ranks) {
    in_ = patterns::tensor<patterns::exact, T>(c.shape, c.seed, rank, ranks, c.n, null());
    if (!c.in_place) out_.assign(c.n, T(7));
    start(comm);
  }
  void wait() override {
    if (request_.valid()) request_.wait();
  }
  bool test() override { return !request_.valid() || request_.test(); }
  [[nodiscard]] std::string verdict() const override {
    const auto inputs = patterns::tensors<patterns::exact, T>(c_.shape, c_.seed, ranks_, c_.n, null());
    const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<Op>{});
    const auto& got = c_.in_place ? in_ : out_;
    if (!oracle::equal(got, wanted)) return "element " + std::to_string(oracle::first_difference(got, wanted)) + " is wrong";
    if (!c_.in_place && !oracle::equal(in_, inputs[static_cast<std::size_t>(rank_)])) return "the input was changed";
    return {};
  }

 private:
  static T null() { return oracle::null_of<Op, T>(); }

  template <class Comm>
  void start(Comm& comm) {
    if (c_.topology == way::automatic && c_.what == form::tensor) return go(comm, omni::automatic{});
    if (c_.topology == way::colocated && c_.what == form::tensor) return go(comm, omni::colocated{c_.packet_bytes, c_.window});
    if constexpr (Common && !loses<Comm>()) start_any(comm);
  }
  template <class Comm>
  void start_any(Comm& comm) {
    if (c_.what == form::group) {
      // Layers of sizes that all ranks draw alike.
      generator g(c_.seed);
      for (std::size_t at = 0; at < c_.n;) {
        const auto size = std::min<std::size_t>(c_.n - at, g() % 5000);
        layers_.emplace_back(std::span(in_).subspan(at, size));
        if (!c_.in_place) results_.emplace_back(std::span(out_).subspan(at, size));
        at += size;
      }
      if (c_.topology == way::replicated) return go(comm, omni::replicated{c_.packet_bytes, c_.window});
      return go(comm, omni::colocated{c_.packet_bytes, c_.window});
    }
    switch (c_.topology) {
      case way::automatic:
      case way::colocated:
        return;
      case way::replicated:
        return go(comm, omni::replicated{c_.packet_bytes, c_.window});
      case way::ring:
        return go(comm, omni::ring{c_.packet_bytes, c_.window});
      case way::hierarchical:
        if constexpr (!omni::transport_type<Comm> && std::is_same_v<T, float> && std::is_same_v<Op, omni::sum>)
          return go(comm, omni::hierarchical<omni::colocated, omni::colocated>{{}, {}, 2});
        else return go(comm, omni::colocated{});
    }
  }
  template <class Comm, class Topology>
  void go(Comm& comm, const Topology& topology) {
    constexpr bool grouped = std::is_same_v<Topology, omni::colocated> || std::is_same_v<Topology, omni::replicated>;
    if constexpr (grouped && Common && !loses<Comm>()) {
      if (c_.what == form::group) return call(comm, topology, layers_, results_);
    }
    call(comm, topology, in_, out_);
  }
  template <class Comm, class Topology, class Data>
  void call(Comm& comm, const Topology& topology, Data& in, Data& out) {
    const omni::fixed_blocks blocks{c_.block};
    const auto limit = c_.deadline ? omni::deadline{longest_wait} : omni::deadline{};
    if (c_.blocking) {
      if (c_.in_place) omni::allreduce(comm, in, Op{}, topology, blocks, limit);
      else omni::allreduce(comm, in, out, Op{}, topology, blocks, limit);
    } else {
      if (c_.in_place) request_ = omni::iallreduce(comm, in, Op{}, topology, blocks, limit);
      else request_ = omni::iallreduce(comm, in, out, Op{}, topology, blocks, limit);
    }
  }

  drawn_call c_;
  int rank_, ranks_;
  std::vector<T> in_, out_;
  std::vector<std::span<T>> layers_, results_;
  omni::request request_;
};

template <class T, class Op>
class pairs_call final : public running_call {
 public:
  template <class Comm>
  pairs_call(Comm& comm, const drawn_call& c, int rank, int ranks) : c_(c), ranks_(ranks) {
    const auto mine = pairs(rank);
    std::vector<std::uint32_t> keys;
    std::vector<T> values;
    for (const auto& [key, value] : mine) {
      keys.push_back(key);
      values.push_back(value);
    }
    const auto limit = c.deadline ? omni::deadline{longest_wait} : omni::deadline{};
    result_ = omni::allreduce(comm, omni::sparse_view{keys, values}, Op{}, omni::colocated{c.packet_bytes, c.window}, limit);
  }
  void wait() override {}
  bool test() override { return true; }
  [[nodiscard]] std::string verdict() const override {
    std::map<std::uint32_t, T> wanted;
    for (int r = 0; r < ranks_; ++r)
      for (const auto& [key, value] : pairs(r)) {
        const auto [at, is_new] = wanted.emplace(key, value);
        if (!is_new) at->second = oracle::twin<Op>{}(at->second, value);
      }
    if (wanted.size() != result_.keys.size()) return "not as many keys";
    std::size_t i = 0;
    for (const auto& [key, value] : wanted) {
      if (result_.keys[i] != key || !(result_.values[i] == value)) return "key " + std::to_string(key) + " is wrong";
      ++i;
    }
    return {};
  }

 private:
  [[nodiscard]] std::map<std::uint32_t, T> pairs(int rank) const {
    auto g = patterns::make_generator(c_.seed, rank);
    std::map<std::uint32_t, T> all;
    const auto n = std::min<std::size_t>(c_.n / 16, 3000);
    for (std::size_t i = 0; i < n; ++i) all.emplace(static_cast<std::uint32_t>(g() % (c_.n + 1)), patterns::exact::make<T>(g));
    return all;
  }

  drawn_call c_;
  int ranks_;
  omni::sparse_tensor<std::uint32_t, T> result_;
};

template <class T, class Comm>
std::unique_ptr<running_call> start_on(Comm& comm, const drawn_call& c, int rank, int ranks) {
  if constexpr (!loses<Comm>()) {
    if (c.what == form::pairs) return std::make_unique<pairs_call<T, omni::sum>>(comm, c, rank, ranks);
  }
  using other = std::conditional_t<std::is_same_v<T, float>, omni::min, omni::max>;
  if (c.op == operation::other) return std::make_unique<tensor_call<T, other>>(comm, c, rank, ranks);
  return std::make_unique<tensor_call<T, omni::sum>>(comm, c, rank, ranks);
}

/// Makes a rank's call. What it throws is for the caller.
template <class Comm>
std::unique_ptr<running_call> start(Comm& comm, const drawn_call& c, int rank, int ranks) {
  switch (c.elements) {
    case type::int32:
      return start_on<std::int32_t>(comm, c, rank, ranks);
    case type::float32:
      return start_on<float>(comm, c, rank, ranks);
    default:
      return start_on<std::uint64_t>(comm, c, rank, ranks);
  }
}
/// The same of one of the other types.
template <class Comm>
std::unique_ptr<running_call> start_uncommon(Comm& comm, const drawn_call& c, int rank, int ranks) {
  const auto make = [&]<class T, class Other>(T, Other) -> std::unique_ptr<running_call> {
    if (c.op == operation::other) return std::make_unique<tensor_call<T, Other, false>>(comm, c, rank, ranks);
    return std::make_unique<tensor_call<T, omni::sum, false>>(comm, c, rank, ranks);
  };
  switch (c.elements) {
    case type::real64:
      return make(double(), omni::max());
    case type::bf16:
      return make(omni::bfloat16(), omni::min());
    default:
      return make(std::uint8_t(), omni::bxor());
  }
}

}  // namespace stress
