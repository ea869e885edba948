// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>

#include "../../error.hpp"
#include "../../report.hpp"
#include "../../roles.hpp"
#include "environment.hpp"
#include "timeline.hpp"

namespace omni::detail {

/// Whether calls are traced: as OMNI_TRACE says, unless who calls the library tells of them in another way.
inline bool& traces() {
  static bool wanted = environment_flag("OMNI_TRACE");
  return wanted;
}
/// Tells of a call where that is asked for (OMNI_TRACE, OMNI_TIMELINE). `before`: seconds until the ranks had agreed on it.
inline void trace(int rank, const report& r, collective_kind kind, double before = 0) {
  if (rank == 0 && traces()) {
    text line;
    const std::string& all = r.tell(line << "omni: ") << "\n";
    static_cast<void>(std::fputs(all.c_str(), stderr));
  }
  if (auto& t = timeline::instance(); t.wanted()) t.add(rank, collective_names[static_cast<std::size_t>(kind)], r, before);
}

/// Adds what another call cost: bytes and phases, and of buffers the larger.
inline void add_cost(report& sum, const report& one) {
  sum.bytes_sent += one.bytes_sent;
  sum.bytes_received += one.bytes_received;
  sum.elements_sent += one.elements_sent;
  sum.bytes_saved += one.bytes_saved;
  sum.extra_bytes = std::max(sum.extra_bytes, one.extra_bytes);
  sum.detect_seconds += one.detect_seconds;
  sum.exchange_seconds += one.exchange_seconds;
  sum.fold_seconds += one.fold_seconds;
  sum.deliver_seconds += one.deliver_seconds;
}

/// Fills in what follows from the rest.
inline void complete(report& r, std::size_t bytes, int ranks, double seconds, collective_kind kind = collective_kind::allreduce) {
  const auto n = static_cast<double>(ranks);
  const auto share = [&](std::size_t blocks) {
    return r.blocks_total == 0 ? 0.0 : static_cast<double>(blocks) / static_cast<double>(r.blocks_total);
  };
  r.density = share(r.blocks_sent);
  r.union_density = share(r.union_blocks);
  const auto sent = [&] {  // of the tensor, by the best dense algorithm
    switch (kind) {
      case collective_kind::allreduce:
        break;
      case collective_kind::reduce_scatter:
      case collective_kind::allgather:
        return (n - 1) / n;
      case collective_kind::reduce:
      case collective_kind::broadcast:
        return ranks == 1 ? 0.0 : 1.0;
    }
    return 2 * (n - 1) / n;
  };
  r.dense_bytes = static_cast<std::size_t>(sent() * static_cast<double>(bytes));
  r.seconds = seconds;
  if (r.topology == "mpi") r.bytes_sent = r.bytes_received = r.dense_bytes;  // what it does is not known better
}

}  // namespace omni::detail
