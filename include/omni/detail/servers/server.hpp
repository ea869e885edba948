// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "../../error.hpp"
#include "../../operation.hpp"
#include "../../reduction.hpp"
#include "../carry/any_transport.hpp"
#include "../memory/workspace.hpp"
#include "../streams/in_stream.hpp"
#include "../streams/out_stream.hpp"
#include "../streams/stream_options.hpp"
#include "../streams/stream_token.hpp"
#include "../wire/packet.hpp"
#include "cluster_parts.hpp"
#include "server_blocks.hpp"
#include "server_pairs.hpp"

namespace omni::detail {

/// What a server keeps from call to call. Bounded by workers x window x packet, whatever the size of the tensors.
struct server_state {
  packet_buffers buffers;
  std::vector<std::span<std::byte>> greetings;  // first packets, from which all else follows
  std::vector<signature> calls;                 // what each worker called with
  std::vector<in_stream> arriving;              // one for each worker
  out_stream results;                           // to all of them
  std::vector<std::array<std::byte, first_packet_overhead>> refusals;
  std::vector<int> workers;
  std::vector<bool> left;        // workers that will not call again
  std::vector<bool> parting;     // those that make a part of the cluster in this call
  std::vector<part_card> cards;  // what these have said of it
  row_folding folding;
};

/// One allreduce, as a server sees it: nothing is known of it before its first packets. Folds this server's share of the blocks, or
/// of the pairs, in rank order as soon as the streams of all workers cover them, and streams the results to all.
class server_call {
 public:
  server_call(any_transport& transport, int servers, reductions& known, server_state& state)
      : s_(state),
        known_(known),
        servers_(static_cast<std::size_t>(servers)),
        index_(static_cast<std::size_t>(transport.rank() - (transport.size() - servers))),
        rank_(transport.rank()),
        // What workers send before a server has heard of their sizes.
        first_bytes_(stream_options{}.limits(transport.size(), transport.preferred_packet_bytes(), 1).first_bytes),
        messages_(transport.open(room_)) {
    const auto n = static_cast<std::size_t>(transport.size() - servers);
    s_.buffers.rewind();
    s_.greetings.resize(n);
    s_.calls.assign(n, {});
    s_.arriving.resize(n);
    s_.refusals.resize(n);
    s_.left.resize(n);
    s_.workers.resize(n);
    s_.cards.clear();
    s_.parting.assign(n, false);
    messages_.reserve(n * 8);
    for (std::size_t w = 0; w < n; ++w) {
      s_.workers[w] = static_cast<int>(w);
      s_.greetings[w] = s_.buffers.take(first_bytes_);
      if (s_.left[w]) ++met_;
      else
        messages_.receive(static_cast<int>(w), stream_of_contributions, s_.greetings[w],
                          stream_token::make(stream_of_contributions, true, w));
    }
  }
  server_call(const server_call&) = delete;
  server_call(server_call&&) = delete;
  server_call& operator=(const server_call&) = delete;
  server_call& operator=(server_call&&) = delete;
  ~server_call() {
    if (is_cut_off()) messages_.abandon();
  }

  /// Folds, sends and receives as far as nothing has to be waited for. True if anything moved.
  bool progress() {
    const bool folded = stage_ == stage::folding && fold();
    if (stage_ == stage::folding) flush();
    return take(messages_.poll()) || folded;
  }
  [[nodiscard]] bool done() const {
    if (stage_ == stage::greeting) return false;
    for (std::size_t w = 0; w < s_.arriving.size(); ++w)
      if (!s_.left[w] && !s_.parting[w] && (s_.calls[w].element_size == 0 || !s_.arriving[w].finished())) return false;
    // Nobody may be there to take what goes to one that was dismissed.
    return refusing_ == 0 && (stage_ != stage::folding || (dismisses_ ? s_.results.closed() : s_.results.over()));
  }
  /// A worker has left after an error, wherever it was. The others hear so, unless it has sent all that they need of it.
  void dismiss(std::size_t w) {
    if (s_.left[w]) return;
    s_.left[w] = dismisses_ = true;
    if (stage_ == stage::greeting) {
      if (s_.calls[w].element_size == 0 && !s_.parting[w]) ++met_;
      if (met_ == s_.workers.size()) decide();
    } else if (stage_ == stage::folding && !s_.arriving[w].finished()) {
      gives_up_ = true;
    }
    if (stage_ == stage::refusing || gives_up_) discard();
  }
  /// Whether no worker will call again.
  [[nodiscard]] bool deserted() const { return std::find(s_.left.begin(), s_.left.end(), false) == s_.left.end(); }
  /// Whether messages are under way that nobody waits for: they may still be read from the state, and written to it.
  [[nodiscard]] bool is_cut_off() const { return dismisses_ || !done(); }
  /// Where the workers do not reduce, but make parts of the cluster: what each has said of its own.
  [[nodiscard]] std::span<const part_card> cards() const {
    return stage_ == stage::parting ? std::span<const part_card>(s_.cards) : std::span<const part_card>();
  }
  /// After an error here: tells the workers that no more results will come. False if they have all they need of this call: then
  /// they are to be told in the next one.
  bool give_up() {
    if (stage_ == stage::greeting) {
      refuse_all(refusal::failed, rank_);
      return true;
    }
    if (stage_ != stage::folding || (s_.results.closed() && !gives_up_)) return false;
    gives_up_ = true;
    flush();
    return true;
  }

 private:
  enum class stage { greeting, folding, refusing, parting };

  bool take(std::span<const completion> done) {
    // First, for what has arrived may be an error.
    for (const auto& c : done) {
      const stream_token t{c.token};
      if (t.is_receive()) continue;
      if (t.index() == 0) s_.results.sent(t.slot());
      else --refusing_;
    }
    for (const auto& c : done) {
      const stream_token t{c.token};
      if (!t.is_receive()) continue;
      const auto index = t.index();
      const auto slot = t.slot();
      if (s_.calls[index].element_size == 0) {
        if (!s_.left[index]) greet(index, c);
      } else {
        s_.arriving[index].arrived(slot, c, [] { return true; });
        s_.arriving[index].post(messages_);
      }
    }
    if (stage_ == stage::greeting && met_ == s_.workers.size()) decide();
    if (done.empty()) return false;
    if (stage_ == stage::folding && !gives_up_)
      gives_up_ = std::any_of(s_.arriving.begin(), s_.arriving.end(), [](const in_stream& i) { return i.aborted(); });
    if (stage_ == stage::refusing || gives_up_) discard();
    return true;
  }
  void discard() {
    for (std::size_t w = 0; w < s_.arriving.size(); ++w) {
      if (s_.left[w] || s_.calls[w].element_size == 0) continue;
      s_.arriving[w].discard();
      s_.arriving[w].post(messages_);
    }
  }

  // A worker's first packet.
  void greet(std::size_t w, const completion& c) {
    const std::span<const std::byte> bytes{c.data != nullptr ? c.data : s_.greetings[w].data(), c.bytes};
    const auto refuse = [&](std::string_view what) {
      if (!what.empty()) throw protocol(static_cast<int>(w), what);
    };
    ++met_;
    if (packet_header h; bytes.size() == sizeof(h)) {
      std::memcpy(&h, bytes.data(), sizeof(h));
      const auto special = h.flags & (packet_leave | packet_part);
      if (h.magic != packet_magic || h.call != messages_.call() || h.flags != (packet_first | packet_last | special) ||
          (special != packet_leave && special != packet_part))
        refuse("shorter than its signature");
      if (special == packet_leave) {
        s_.left[w] = true;
        return;
      }
      s_.cards.resize(s_.workers.size());
      s_.cards[w] = part_card::unpacked(h.reserved);
      s_.parting[w] = true;
      return;
    }
    packet_reader first;
    refuse(first.parse(bytes, messages_.call(), 0));
    auto& call = s_.calls[w];
    call = first.sender();
    const auto problem = what_is_wrong(call);
    if (!problem.empty()) call.element_size = 0;
    refuse(problem);
    const auto rows = call_of(call) == kind::pairs ? call.blocks : blocks_of(call).rows();
    s_.arriving[w].open(stream_of_contributions, stream_token::make(stream_of_contributions, true, w), static_cast<int>(w),
                        limits_of(call), rows, messages_.call(), &s_.buffers);
    s_.arriving[w].expect_first();
    s_.arriving[w].arrived(0, {c.token, c.bytes, bytes.data()}, [] { return true; });
    s_.arriving[w].post(messages_);
  }
  // Everything that buffers and arithmetic depend on.
  static std::string_view what_is_wrong(const signature& s) {
    constexpr std::uint64_t most = std::uint64_t{1} << 62U;
    if (const auto wrong = wrong_sizes(s); !wrong.empty()) return wrong;
    const auto block = call_of(s) == kind::sizes ? 3 * sizeof(std::uint64_t) : s.largest_block * s.element_size;
    if (s.packet_bytes < sizeof(packet_header) + block + sizeof(std::uint32_t)) return "packets that no block fits in";
    if (s.blocks > most) return call_of(s) == kind::pairs ? "more pairs than there can be" : "more blocks than there can be";
    if (call_of(s) == kind::pairs) return "";
    if (call_of(s) == kind::sizes) return s.count != 0 || s.blocks != 0 ? "sizes before they are agreed on" : "";
    return wrong_blocks(s);
  }
  enum class kind { blocks, pairs, sizes };
  static kind call_of(const signature& s) {
    if (s.topology != key_value_topology) return kind::blocks;
    return s.largest_block == 0 ? kind::sizes : kind::pairs;
  }
  [[nodiscard]] block_folder blocks_of(const signature& s) const {
    if (call_of(s) == kind::sizes) return {{3, sizeof(std::uint64_t), 3, 1}, servers_, index_};
    return {{s.count, static_cast<std::size_t>(s.element_size), static_cast<std::size_t>(s.largest_block),
             static_cast<std::size_t>(s.blocks)},
            servers_,
            index_};
  }
  [[nodiscard]] packet_limits limits_of(const signature& s) const {
    return {first_bytes_, static_cast<std::size_t>(s.packet_bytes), static_cast<int>(s.window)};
  }

  // All workers have been heard: reduces if they called alike.
  void decide() {
    if (const auto parting = std::count(s_.parting.begin(), s_.parting.end(), true); parting != 0) {
      // They have agreed among themselves before they told.
      if (static_cast<std::size_t>(parting) != s_.workers.size())
        throw protocol(0, "some workers make parts of the cluster, and others do not");
      stage_ = stage::parting;
      for (std::size_t w = 0; w < s_.workers.size(); ++w)
        answer(w, {.call = messages_.call(), .flags = packet_first | packet_last | packet_part}, {});
      return;
    }
    if (const auto gone = std::find(s_.left.begin(), s_.left.end(), true); gone != s_.left.end())
      return refuse_all(refusal::left, static_cast<int>(gone - s_.left.begin()));
    const auto& first = s_.calls[0];
    if (std::any_of(s_.calls.begin(), s_.calls.end(), [&](const signature& s) { return !(s == first); })) {
      for (std::size_t w = 0; w < s_.calls.size(); ++w) {
        const auto other = std::find_if(s_.calls.begin(), s_.calls.end(), [&](const signature& s) { return !(s == s_.calls[w]); });
        refuse(w, refusal::differs, static_cast<int>(other - s_.calls.begin()), *other);
      }
      stage_ = stage::refusing;
      return;
    }
    if (first.version != OMNI_VERSION) {
      auto mine = first;
      mine.version = OMNI_VERSION;
      for (std::size_t w = 0; w < s_.calls.size(); ++w) refuse(w, refusal::differs, rank_, mine);
      stage_ = stage::refusing;
      return;
    }
    fold_ = known_.find(first);
    if (fold_ == nullptr) return refuse_all(refusal::unknown, rank_);
    auto rows = std::uint64_t{0};
    if (call_of(first) == kind::pairs) {
      pairs_.emplace(server_pairs{first.count, first.blocks, static_cast<std::size_t>(first.largest_block), fold_->element_size},
                     s_.workers.size(), servers_, index_);
      if (first.packet_bytes < sizeof(packet_header) + pairs_->least_bytes(fold_->alignment) + sizeof(std::uint32_t))
        throw protocol(0, "packets that no pair fits in");
      rows = pairs_->result_rows();
    } else {
      static const auto largest = std::make_shared<const reductions::entry>(reductions::make<std::uint64_t>(max{}));
      if (call_of(first) == kind::sizes) fold_ = largest;
      if (first.packet_bytes < sizeof(packet_header) + first.largest_block * fold_->result_size + sizeof(std::uint32_t))
        throw protocol(0, "packets that no result fits in");
      blocks_ = blocks_of(first);
      rows = blocks_.rows();
    }
    // Packed, if a worker found that worth while.
    const auto packer = std::find_if(s_.arriving.begin(), s_.arriving.end(),
                                     [](const in_stream& i) { return (i.first().header().flags & packet_packed) != 0; });
    const bool packs = call_of(first) == kind::blocks && packer != s_.arriving.end();
    const auto refuse_packed = [&](std::string_view what) { throw protocol(packer->peer(), what); };
    if (packs && fold_->null.empty()) refuse_packed("packed blocks where no element is null");
    const auto most = block_packer::most_bytes(static_cast<std::size_t>(first.largest_block * first.element_size));
    if (packs && first.packet_bytes < sizeof(packet_header) + most + sizeof(std::uint32_t))
      refuse_packed("packets that no packed block fits in");
    s_.results.open(stream_of_results, stream_token::make(stream_of_results, false, 0), std::span<const int>(s_.workers),
                    limits_of(first), rows, messages_.call(), first, packs ? packet_packed : 0U);
    s_.results.make_room([this](std::size_t bytes) { return s_.buffers.take(bytes); });
    s_.results.meet_all();
    s_.folding.fold = &fold_->fold;
    s_.folding.result_size = fold_->result_size;
    s_.folding.null = fold_->null.empty() ? null_element() : null_element(fold_->null.data(), fold_->null.size());
    s_.folding.packs = packs;
    stage_ = stage::folding;
  }
  void refuse_all(refusal why, int rank) {
    stage_ = stage::refusing;
    for (std::size_t w = 0; w < s_.calls.size(); ++w) refuse(w, why, rank, s_.calls[w]);
  }
  void refuse(std::size_t w, refusal why, int rank, const signature& theirs) {
    if (s_.left[w]) return;
    packet_header h{.call = messages_.call(), .flags = packet_first | packet_last | packet_abort};
    h.reserved = {static_cast<std::uint64_t>(why), static_cast<std::uint64_t>(rank)};
    answer(w, h, theirs);
  }
  void answer(std::size_t w, const packet_header& h, const signature& theirs) {
    auto& packet = s_.refusals[w];
    std::memcpy(packet.data(), &h, sizeof(h));
    std::memcpy(packet.data() + sizeof(h), &theirs, sizeof(theirs));
    messages_.send(static_cast<int>(w), stream_of_results, packet, stream_token::make(stream_of_results, false, w + 1));
    ++refusing_;
  }

  bool fold() {
    if (gives_up_) return false;
    if (pairs_) return pairs_->fold(s_.arriving, s_.results, messages_, *fold_);
    return blocks_.fold(s_.arriving, s_.results, messages_, s_.folding);
  }
  // Sends what should not wait for a full packet.
  void flush() {
    const auto ended = [](const in_stream& i) { return i.finished(); };
    if (gives_up_) s_.results.close(messages_, packet_abort);
    // A stream that covers everything may still end in an abort.
    else if ((pairs_ ? pairs_->done() : blocks_.done()) && std::all_of(s_.arriving.begin(), s_.arriving.end(), ended))
      s_.results.close(messages_);
    else if (s_.results.idle() && s_.results.worthwhile())
      s_.results.flush(messages_, pairs_ ? pairs_->covers() : blocks_.covers());
  }

  server_state& s_;
  reductions& known_;
  std::size_t servers_, index_;
  int rank_;
  std::size_t first_bytes_;
  mailbox_room room_;
  any_mailbox& messages_;
  stage stage_ = stage::greeting;
  block_folder blocks_;
  std::optional<pair_folder> pairs_;  // of a key-value call, once its sizes are known
  std::shared_ptr<const reductions::entry> fold_;
  std::size_t met_ = 0;       // workers heard
  std::size_t refusing_ = 0;  // refusals under way
  bool gives_up_ = false, dismisses_ = false;
};

}  // namespace omni::detail
