// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string_view>

namespace omni {

/// What one call did on this rank.
struct report {
  std::string_view topology;       ///< what ran: the name of a topology, "mpi", or "local" (one rank)
  std::size_t blocks_total = 0;    ///< blocks of the tensor
  std::size_t blocks_sent = 0;     ///< this rank's blocks that took part: not null or, in shared memory, among many that are not
  std::size_t union_blocks = 0;    ///< blocks that were not null on some rank, of those that this rank folds or gets
  std::size_t elements_sent = 0;   ///< of this rank, by streams or slots, or in packed pieces; 0 where something else ran
  std::size_t bytes_sent = 0;      ///< bytes handed to the transport, headers included; of "mpi", which does not tell, dense_bytes
  std::size_t bytes_received = 0;  ///< bytes taken from it
  std::size_t bytes_saved = 0;     ///< how much more bytes_sent would be, were blocks not packed; without what is sent again
  std::size_t dense_bytes = 0;     ///< what a bandwidth-optimal dense algorithm would have sent: of an allreduce 2 (N-1)/N S, of a
                                   ///< reduce_scatter or allgather half of that, of a reduce or broadcast S
  std::size_t tensor_bytes = 0;    ///< of the tensor, where the call has a compressor
  std::size_t encoded_bytes = 0;   ///< of what it made of this rank's blocks that are not null; elements where no codes travel
  double relative_error = 0;       ///< where measured_error asks for it: |out - sum| / |sum|, of Euclidean norms
  double error_bound = 0;          ///< of a shared exponent: of each element, relative to the largest magnitude in its block
  std::size_t escaped_blocks = 0;  ///< that no switch could reduce (not finite), and the hosts have
  std::size_t extra_bytes = 0;     ///< buffers that the call used beside the tensor
  double density = 0;              ///< blocks_sent / blocks_total: 1 where nothing was looked for (mpi, ring, local)
  double union_density = 0;        ///< union_blocks / blocks_total
  double seconds = 0;              ///< start to end; the next four are parts of it
  double detect_seconds = 0;       ///< finding and packing the blocks that are not null
  double exchange_seconds = 0;     ///< in the transport, waiting and agreeing included
  double fold_seconds = 0;         ///< reducing
  double deliver_seconds = 0;      ///< writing results of others into the output

  template <class Traits>  // so that only who prints it needs <ostream>
  friend std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& os, const report& r) {
    return r.tell(os);
  }
  /// The same to what is written to like a stream.
  template <class Out>
  Out& tell(Out& to) const {
    to << topology << ": " << blocks_sent << " of " << blocks_total << " blocks (density " << density << ", union " << union_density
       << "), sent " << bytes_sent << " B, received " << bytes_received << " B, dense " << dense_bytes << " B, buffers "
       << extra_bytes << " B, ";
    if (bytes_saved != 0) to << "packed " << elements_sent << " elements to save " << bytes_saved << " B, ";
    if (tensor_bytes != 0) to << "encoded " << tensor_bytes << " B as " << encoded_bytes << " B, ";
    if (relative_error != 0) to << "relative error " << relative_error << ", ";
    if (error_bound != 0) to << "error below " << error_bound << " of a block's largest, ";
    if (escaped_blocks != 0) to << escaped_blocks << " blocks on the hosts, ";
    to << seconds * 1e3 << " ms = detect " << detect_seconds * 1e3 << " + exchange " << exchange_seconds * 1e3 << " + fold "
       << fold_seconds * 1e3 << " + deliver " << deliver_seconds * 1e3 << " ms";
    return to;
  }
};

}  // namespace omni
