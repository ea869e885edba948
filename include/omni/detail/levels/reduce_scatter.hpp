// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "../../block.hpp"
#include "../deal/parts.hpp"
#include "../memory/copy.hpp"
#include "../streams/stream_options.hpp"
#include "../streams/streams.hpp"

namespace omni::detail {

/// A call whose blocks are looked at in another order: dealt out among its parts, so that the owner of a share by `stripes` owns
/// the part of that number, and all owners have something to do at any time.
template <class Call>
class dealt : public Call {
 public:
  dealt(const Call& whole, const parts& cut) : Call(whole), cut_(cut) {}

  [[nodiscard]] const stripes& map() const { return cut_.map(); }
  [[nodiscard]] block_range range(std::size_t block) const { return Call::range(cut_.block(block)); }
  [[nodiscard]] const typename Call::value_type* input(std::size_t block) const { return Call::input(cut_.block(block)); }
  [[nodiscard]] typename Call::value_type* output(std::size_t block, std::size_t n = 1) const {
    return Call::output(cut_.block(block), n);
  }
  /// Of what has been sent nothing stays.
  void clear(std::size_t block, std::size_t elements) const {
    fill_elements(output(block), elements, null_element<typename Call::operation_type, typename Call::value_type>(this->op));
  }
  [[nodiscard]] std::size_t together(std::size_t block, std::size_t n) const { return cut_.map().in_stripe(block, n); }

 private:
  parts cut_;
};

/// Topology of a stage: rank k folds part k of the tensor, in rank order, and nobody gets the rest. The first half of colocated:
/// (N-1)/N d S bytes each way per rank, and N-1 messages for a nearly empty tensor. Its calls are `dealt`. The other parts of
/// the output are cleared.
struct reduce_scatter {
  std::size_t packet_bytes = 0;  ///< largest packet in bytes, 0: as the transport likes it
  int window = 0;                ///< packets of a stream under way at once, 0: chosen

  static constexpr std::string_view name = "reduce-scatter";

  template <class Call, class Transport>
  struct engine : stream_engine<Call, Transport> {
    template <class Mailbox>
    engine(const reduce_scatter& t, const Call& call, Transport& transport, Mailbox mailbox)
        : stream_engine<Call, Transport>(ownership::kept, name, {t.packet_bytes, t.window}, call, transport, std::move(mailbox)) {}
  };
};

}  // namespace omni::detail
