// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <typeinfo>

#include "../../block.hpp"
#include "../../concepts.hpp"
#include "../wire/signature.hpp"

namespace omni::detail {

/// Where there is no member.
struct nothing {};

/// Tells operations of one name apart: by their type where they have no name (compilers spell lambdas alike), by what they say of
/// their values with `fingerprint()`, and by an identity that is a value.
template <class T, class Op>
std::uint64_t operation_state(const Op& op) {
  std::uint64_t h = 0;
#if defined(__cpp_rtti)
  if constexpr (!has_name<Op>) {
    static const auto type = hash(typeid(Op).name());
    h = type;
  }
#endif
  if constexpr (requires { op.fingerprint(); }) h = mixed(h, op.fingerprint());
  if constexpr (has_identity_member<Op, T> &&
                (std::has_unique_object_representations_v<T> || std::is_same_v<T, float> || std::is_same_v<T, double>)) {
    const T identity = op.identity();
    h = mixed(h, hash({reinterpret_cast<const char*>(&identity), sizeof(T)}));
  }
  return h;
}

/// Everything about one allreduce that is known before anything is sent: what a topology's engine works on.
template <class T, class Op, class Partitioner, class Detector>
struct call {
  using value_type = T;
  using operation_type = Op;
  using detector_type = Detector;

  std::span<const T> in;
  std::span<T> out;  ///< as long as in, and the same memory or disjoint from it
  Op op;
  Partitioner partition;
  Detector detector;
  bool blocking = true;
  std::string_view topology{};   ///< as the caller named it
  std::uint64_t options = 0;     ///< of the topology, where all ranks must have the same ones
  double density = 1;            ///< of the densest rank, sampled; for a topology that asks for it
  std::size_t packet_bytes = 0;  ///< as the caller chose them for the topology, 0: not
  int window = 0;
  bool agreed = false;               ///< all ranks are known to have called alike
  bool shares = false;               ///< and share memory for packets
  std::chrono::nanoseconds limit{};  ///< of a wait, as the caller chose it; 0: not
  bool is_stage = false;             ///< of another call, that is: neither traced by itself nor left to MPI unseen

  static constexpr bool is_group = false;  ///< of several tensors (group.hpp)

  [[nodiscard]] bool in_place() const { return static_cast<const T*>(out.data()) == in.data(); }
  [[nodiscard]] std::size_t size() const { return in.size(); }
  [[nodiscard]] std::size_t blocks() const { return partition.count(in.size()); }
  [[nodiscard]] std::size_t bytes() const { return in.size_bytes(); }
  [[nodiscard]] block_range range(std::size_t block) const { return partition.block(block, in.size()); }
  [[nodiscard]] std::size_t largest_block() const { return partition.largest(in.size()); }
  /// Where a block's elements lie, and those of the n - 1 after it if they are `together`.
  [[nodiscard]] const T* input(std::size_t block) const { return in.data() + range(block).first; }
  [[nodiscard]] T* output(std::size_t block, std::size_t /*n*/ = 1) const { return out.data() + range(block).first; }
  /// Of n blocks from this one on, those that lie one after the other.
  [[nodiscard]] std::size_t together(std::size_t /*block*/, std::size_t n) const { return n; }
  /// What one rank alone has to do.
  void copy_through() const {
    if (!in_place()) std::copy(in.begin(), in.end(), out.begin());
  }
  /// The caller's memory may be gone.
  void let_go() {
    in = {};
    out = {};
  }

  /// What the caller has to give alike on all ranks.
  [[nodiscard]] signature sign() const { return sign("", packet_bytes, window); }
  /// What this rank tells the others of its call.
  [[nodiscard]] signature sign(std::string_view mode, std::size_t largest_packet, int in_flight) const {
    // Spelled once per instantiation.
    static const short_name<48> type(type_name<T>());
    static const short_name<40> operation(operation_name<Op>());
    signature s;
    s.count = in.size();
    s.element_size = sizeof(T);
    s.blocks = blocks();
    s.largest_block = partition.largest(in.size());
    s.packet_bytes = largest_packet;
    s.window = static_cast<std::uint32_t>(in_flight);
    s.waiting = (blocking ? 1U : 0U) | (limit.count() != 0 ? 2U : 0U);
    s.options = options;
    s.type = type;
    s.operation = operation;
    s.operation_state = operation_state<T>(op);
    s.partition = static_cast<std::uint32_t>(cuts());
    s.topology = short_name<16>(topology);
    s.mode = short_name<16>(mode);
    return s;
  }
  /// Tells partitioners apart: by their type, by what they say of their values, and by every cut where blocks are not equal.
  [[nodiscard]] std::uint64_t cuts() const {
    static const auto type = hash(spelled<Partitioner>());
    auto h = type;
    if constexpr (requires { partition.fingerprint(); }) h = mixed(h, partition.fingerprint());
    if constexpr (!requires { partition.uniform(); }) {
      const auto n = blocks();
      for (std::size_t i = 0; i < n; ++i) h = mixed(h, partition.block(i, in.size()).size);
    }
    return h ^ h >> 32U;
  }
};

/// What ranks must have alike of a topology, beside its name.
template <class Topology>
std::uint64_t topology_options(const Topology& t) {
  if constexpr (requires { t.fingerprint(); }) return t.fingerprint();
  else return 0;
}
/// All that tells two topologies of a kind apart.
template <class Topology>
std::uint64_t topology_state(const Topology& t) {
  auto h = mixed(hash(Topology::name), topology_options(t));
  if constexpr (requires { t.packet_bytes; }) h = mixed(h, t.packet_bytes);
  if constexpr (requires { t.window; }) h = mixed(h, static_cast<std::uint64_t>(t.window));
  return h;
}
/// Makes the call one of that topology.
template <class Call, class Topology>
void choose_topology(Call& call, const Topology& t) {
  call.topology = Topology::name;
  call.options = topology_options(t);
  call.packet_bytes = 0;
  call.window = 0;
  if constexpr (requires { t.packet_bytes; }) call.packet_bytes = t.packet_bytes;
  if constexpr (requires { t.window; }) call.window = t.window;
}

/// Seconds since the last lap.
class stopwatch {
 public:
  [[nodiscard]] double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - last_).count(); }
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace omni::detail
