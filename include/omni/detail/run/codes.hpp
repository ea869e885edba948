// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "../../topology/automatic.hpp"
#include "../../topology/colocated.hpp"
#include "../../topology/dedicated.hpp"
#include "../../topology/replicated.hpp"
#include "../call/topology_state.hpp"
#include "../codes/coded_call.hpp"
#include "../codes/coded_tensor.hpp"
#include "../codes/tensor_pieces.hpp"
#include "argument_checks.hpp"
#include "arguments.hpp"

// From the arguments of a call with a compressor to the call (detail/codes/coded_tensor.hpp).

namespace omni::detail {

/// Whether dedicated servers fold the calls by such a topology on these ranks.
template <class Topology, class Comm>
bool goes_to_servers(const Comm& comm) {
  constexpr bool may = std::is_same_v<Topology, automatic> || std::is_same_v<Topology, dedicated>;
  if constexpr (may && requires { comm.servers(); }) return comm.servers() != 0;
  else return false;
}
/// What travels. Only the owner streams tell what is given from results of another size; servers know the codes of some.
template <class Topology, class Memory, class C, class F>
code_form form_of([[maybe_unused]] const C& c, [[maybe_unused]] const F& f) {
  if constexpr (sparsifier<C>) {
    return code_form::elements;
  } else {
    if (!is_served<C> && goes_to_servers<Topology>(f.comm)) return code_form::elements;
    constexpr bool streams = F::loses_nothing && (std::is_same_v<Topology, automatic> || std::is_same_v<Topology, colocated> ||
                                                  std::is_same_v<Topology, replicated> || std::is_same_v<Topology, dedicated>);
    const bool compresses_results = !Memory::delivers && results_of(c) == result_form::compressed;
    if (!streams && !(compresses_results && has_codes_of_results<C>())) return code_form::elements;
    return compresses_results ? code_form::codes : code_form::codes_once;
  }
}

/// |out - sum| / |sum|, where `sum` has the tensors one after the other.
template <class T>
double relative_error_of(const tensor_pieces<T>& out, const std::vector<T>& sum) {
  double error = 0, all = 0;
  for (const auto& p : out)
    for (std::size_t i = 0; i < p.size; ++i) {
      const auto exact = static_cast<double>(sum[p.position + i]), off = static_cast<double>(p.out[i]) - exact;
      error += off * off;
      all += exact * exact;
    }
  return all == 0 ? std::sqrt(error) : std::sqrt(error / all);
}

/// Makes the call out of tensors and the other arguments, and gives it to f.
template <collective_kind C, class T, class... A, class F>
auto with_codes(std::vector<tensor_piece<T>> pieces, const F& f, const A&... more) {
  const auto c = choose<C, T>(more...);
  const auto& given = pick<kind::compressor, T>(0, more...);
  constexpr bool measures = count_of<kind::error, T, A...> != 0;
  const auto [compressor, memory] = remembered_by(given);
  expect_sound(compressor);
  std::size_t longest = 1;
  for (const auto& p : pieces) longest = std::max(longest, p.size);
  const auto block = std::min<std::size_t>(c.partition.uniform(), longest);
  if (block == 0) throw usage("omni: blocks of 0 elements");
  expect_block(block, sizeof(T));
  std::size_t elements = 0;
  auto sizes = hash("tensors");
  for (const auto& p : pieces) {
    elements += p.size;
    sizes = mixed(sizes, p.size);
  }
  memory.expect(elements);

  using memory_type = std::remove_cvref_t<decltype(memory)>;
  using codec_type = coded_tensor<T, std::remove_cvref_t<decltype(compressor)>, memory_type>;
  using detector_type = std::remove_cvref_t<decltype(c.detector)>;
  using typed = call_policies<T, sum, fixed_blocks, detector_type>;  // of the blocks that are encoded
  auto codec = std::make_shared<codec_type>(
      compressor, memory, std::move(pieces), block, form_of<std::remove_cvref_t<decltype(c.topology)>, memory_type>(compressor, f),
      loops_of<T, sum, fixed_blocks, detector_type>,
      std::make_shared<const typed>(sum{}, fixed_blocks{block, packing_of(c.partition)}, c.detector));
  [[maybe_unused]] std::vector<T> exact;
  if constexpr (measures) {
    static_assert(F::waits, "omni: measured_error is for blocking calls");
    for (const auto& p : codec->pieces()) exact.insert(exact.end(), p.in, p.in + p.size);
  }
  coded_call made(codec);
  choose_topology(made, c.topology);
  // The signature counts codes: what they are of has to be the same on all ranks, too.
  for (const auto part : {hash(compressor.name), compressor_state(compressor), std::uint64_t{block}, sizes, memory.fingerprint(),
                          std::uint64_t{measures}})
    made.encoding = mixed(made.encoding, part);
  made.limit = c.limit;
  auto done = f(made, c.topology);
  if constexpr (measures && F::waits) {
    const deadline limit{c.limit};
    with_call<C, T>(std::span<const T>(exact), std::span<T>(exact), f, c.partition, c.detector, c.topology, limit);
    done.relative_error = relative_error_of(codec->pieces(), exact);
  }
  return done;
}

/// Of one tensor.
template <collective_kind C, class T, class... A, class F>
auto with_codes(std::span<const T> in, std::span<T> out, const F& f, const A&... more) {
  expect_tensor(std::as_bytes(in), std::as_writable_bytes(out), sizeof(T));
  return with_codes<C, T>(std::vector<tensor_piece<T>>{{in.data(), out.data(), in.size()}}, f, more...);
}
/// Of a group.
template <collective_kind C, class T, class... A, class F>
auto with_codes(const std::vector<std::span<const std::byte>>& in, const std::vector<std::span<std::byte>>& out, const F& f,
                const A&... more) {
  std::vector<tensor_piece<T>> pieces;
  for (std::size_t i = 0; i < in.size(); ++i)
    pieces.push_back({reinterpret_cast<const T*>(in[i].data()), reinterpret_cast<T*>(out[i].data()), in[i].size() / sizeof(T)});
  if (pieces.empty()) pieces.emplace_back();
  return with_codes<C, T>(std::move(pieces), f, more...);
}

}  // namespace omni::detail
