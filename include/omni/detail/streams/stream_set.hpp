// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <vector>

#include "../../deadline.hpp"
#include "../../report.hpp"
#include "../memory/workspace.hpp"
#include "in_stream.hpp"
#include "out_stream.hpp"
#include "stream_token.hpp"

namespace omni::detail {

/// What an engine keeps from call to call, made before its other parts.
template <class State>
struct lent_state {
  borrowed<State> s_;
};

/// The streams of a rank, kept from call to call.
struct stream_set {
  packet_buffers buffers;
  std::vector<out_stream> contributions;
  out_stream results;
  std::vector<in_stream> arriving, returning;  // contributions to fold; results of others
  std::vector<int> peers;                      // nearest above first, so that not all send to the same rank at once
  std::vector<int> owners, receivers;          // of those, who send results to this rank, and who get its

  [[nodiscard]] std::size_t bytes() const {
    std::size_t all = buffers.bytes() + results.kept_bytes();
    for (const auto& o : contributions) all += o.kept_bytes();
    return all;
  }
  /// The stream that sends with such tokens.
  [[nodiscard]] out_stream& sending(stream_token t) { return t.is_result() ? results : contributions[t.index()]; }
  [[nodiscard]] bool all_contributed() const {
    return std::all_of(contributions.begin(), contributions.end(), [](const out_stream& o) { return o.over(); });
  }
  [[nodiscard]] static bool all_finished(const std::vector<in_stream>& streams) {
    return std::all_of(streams.begin(), streams.end(), [](const in_stream& i) { return i.finished(); });
  }
  /// Those that are furthest behind: who owns one is missing, or waits for who is.
  [[nodiscard, gnu::cold]] awaited awaits() const {
    awaited found;
    const in_stream* behind = nullptr;
    const auto look = [&](const std::vector<in_stream>& streams, const char* what) {
      for (const auto& i : streams) {
        if (i.finished() || (behind != nullptr && i.covers() > behind->covers())) continue;
        if (behind == nullptr || i.covers() < behind->covers()) found = {{}, i.awaits(what)};
        behind = &i;
        found.peers.push_back(i.peer());
      }
    };
    look(arriving, "contributions");
    if (behind == nullptr) look(returning, "results");
    return behind != nullptr ? found : awaited{{}, "packets of this rank to be taken"};
  }
  void count_bytes(report& r) const {
    for (const auto& o : contributions) r.bytes_sent += o.bytes_sent();
    for (const auto& i : arriving) r.bytes_received += i.bytes_received();
    for (const auto& i : returning) r.bytes_received += i.bytes_received();
  }
};

}  // namespace omni::detail
