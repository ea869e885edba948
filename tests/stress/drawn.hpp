// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include "../support/patterns.hpp"

// Random programs: what each rank calls, in which order, and when it waits. All of it follows from a seed.

namespace stress {

enum class type { int32, float32, uint64, real64, bf16, byte };
constexpr std::uint64_t common_types = 3;  // the first: with all topologies, where the others have two
enum class operation { sum, other };       // each combination with a type and a topology is compiled: few of each
enum class way { automatic, colocated, replicated, ring, hierarchical };
enum class form { tensor, group, pairs };

struct drawn_call {
  form what = form::tensor;
  type elements = type::int32;
  operation op = operation::sum;
  way topology = way::automatic;
  std::size_t n = 0;
  std::size_t block = 256;
  std::size_t packet_bytes = 0;
  int window = 0;
  bool in_place = true;
  bool blocking = true;
  bool deadline = true;
  patterns::shape shape = patterns::shape::uniform;
  std::uint64_t seed = 0;
};

inline std::string describe(const drawn_call& c) {
  constexpr std::array forms{"tensor", "group", "pairs"};
  constexpr std::array types{"int32", "float", "uint64", "double", "bfloat16", "uint8"};
  constexpr std::array ops{"sum", "another operation"};
  constexpr std::array ways{"automatic", "colocated", "replicated", "ring", "hierarchical"};
  const auto name = [](const auto& names, auto e) { return std::string(names[static_cast<std::size_t>(e)]); };
  return name(forms, c.what) + " of " + std::to_string(c.n) + " " + name(types, c.elements) + ", " + name(ops, c.op) + ", " +
         name(ways, c.topology) + ", blocks of " + std::to_string(c.block) + ", packets of " + std::to_string(c.packet_bytes) +
         ", window " + std::to_string(c.window) + ", " + patterns::name(c.shape) + (c.in_place ? ", in place" : "") +
         (c.blocking ? "" : ", not blocking");
}

using generator = std::mt19937_64;

template <class T, std::size_t N>
T one_of(generator& g, const std::array<T, N>& all) {
  return all[g() % N];
}

/// Sizes at which something changes, and others; now and then one that takes many packets.
inline std::size_t draw_size(generator& g) {
  switch (g() % 8) {
    case 0:
      return one_of(g, std::array<std::size_t, 8>{0, 1, 2, 255, 256, 257, 1021, 4096});
    case 1:
      return g() % 300000;
    case 2:
    case 3:
      return g() % 30000;
    default:
      return g() % 3000;
  }
}

inline drawn_call draw_call(generator& g, bool levels) {
  drawn_call c;
  c.what = one_of(g, std::array{form::tensor, form::tensor, form::tensor, form::tensor, form::group, form::pairs});
  c.elements = static_cast<type>(g() % common_types);
  c.op = static_cast<operation>(g() % 2);
  c.topology = static_cast<way>(g() % (levels ? 5 : 4));
  c.n = draw_size(g);
  c.block = one_of(g, std::array<std::size_t, 5>{256, 256, 16, 100, 1024});
  c.packet_bytes = one_of(g, std::array<std::size_t, 4>{0, 0, 5000, 20000});
  c.window = one_of(g, std::array{0, 0, 1, 3});
  c.in_place = g() % 2 == 0;
  c.blocking = c.what == form::pairs || g() % 2 == 0;
  c.shape = patterns::all[g() % patterns::all.size()];
  c.seed = g();
  return c;
}

/// The same of one of the other types.
inline drawn_call draw_uncommon_call(generator& g) {
  auto c = draw_call(g, false);
  c.what = form::tensor;
  c.elements = static_cast<type>(common_types + g() % 3);
  if (c.topology != way::automatic) c.topology = way::colocated;
  return c;
}

/// What makes a rank's call another than those of the others.
enum class fault { count, type, operation, topology, block, packet, window, kind, deadline, none };
inline constexpr std::array faults{fault::count,  fault::type,   fault::operation, fault::topology, fault::block,
                                   fault::packet, fault::window, fault::kind,      fault::deadline};

/// Changes one thing; returns the field that `mismatch` has to name.
inline std::string spoil(drawn_call& c, fault f, generator& g) {
  const auto other = [&](auto e, std::uint64_t values) {
    return static_cast<decltype(e)>((static_cast<std::uint64_t>(e) + 1 + g() % (values - 1)) % values);
  };
  switch (f) {
    case fault::count:
      c.n += 1 + g() % 1000;
      return "count";
    case fault::type:
      c.elements = other(c.elements, common_types);
      return "type";
    case fault::operation:
      c.op = other(c.op, 2);
      return "operation";
    case fault::topology:
      c.topology = other(c.topology, 4);
      return "topology";
    case fault::block:
      c.block = c.block == 32 ? 48 : 32;
      return "block size";
    case fault::packet:
      c.packet_bytes = c.packet_bytes == 9000 ? 9500 : 9000;
      return "packet size";
    case fault::window:
      c.window = c.window == 7 ? 9 : 7;  // neither is what 0 comes to
      return "window";
    case fault::kind:
      c.blocking = !c.blocking;
      return "kind of call";
    case fault::deadline:
      c.deadline = !c.deadline;
      return "deadline";
    case fault::none:
      break;
  }
  return "";
}

/// What a mismatch has to say that the call has in that place; nothing where omni chooses.
inline std::string spelled(const drawn_call& c, fault f) {
  const auto name = [](const auto& names, auto e) { return std::string(names[static_cast<std::size_t>(e)]); };
  const auto chosen = [](std::uint64_t n) { return n == 0 ? std::string() : std::to_string(n); };
  switch (f) {
    case fault::count:
      return std::to_string(c.n);
    case fault::type:
      return name(std::array{"int32", "float", "uint64"}, c.elements);
    case fault::operation:
      if (c.op == operation::sum) return "sum";
      return c.elements == type::float32 ? "min" : "max";
    case fault::topology:
      return name(std::array{"automatic", "colocated", "replicated", "ring", "hierarchical"}, c.topology);
    case fault::block:
      return std::to_string(c.block);
    case fault::packet:
      return chosen(c.packet_bytes < 100 + c.block * sizeof(std::uint64_t) ? 0 : c.packet_bytes);  // a packet holds a block
    case fault::window:
      return chosen(static_cast<std::uint64_t>(c.window));
    case fault::kind:
      return c.blocking ? "allreduce" : "iallreduce";
    case fault::deadline:
      return c.deadline ? "one" : "none";
    case fault::none:
      break;
  }
  return {};
}

}  // namespace stress
