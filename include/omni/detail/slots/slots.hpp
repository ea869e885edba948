// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "../../reduction.hpp"
#include "../../report.hpp"
#include "../../topology/automatic.hpp"
#include "../../topology/colocated.hpp"
#include "../../topology/dedicated.hpp"
#include "../../topology/hierarchical.hpp"
#include "../../topology/replicated.hpp"
#include "../call/call.hpp"
#include "../call/sample.hpp"
#include "../call/sign.hpp"
#include "../call/stopwatch.hpp"
#include "../carry/any_transport.hpp"
#include "../streams/call_failure.hpp"
#include "../streams/stream_options.hpp"
#include "slot_owner.hpp"
#include "slot_server.hpp"
#include "slot_worker.hpp"

namespace omni::detail {

/// How many slots a worker has with each owner, if the caller does not say: what all workers send at once should find room in an
/// owner's socket.
inline int slots_wanted(int workers, std::size_t datagram_bytes) {
  constexpr std::size_t room = std::size_t{128} << 10U;
  const auto slots = room / (static_cast<std::size_t>(std::max(workers, 1)) * std::max<std::size_t>(datagram_bytes, 1));
  return static_cast<int>(std::clamp<std::size_t>(slots, 2, 64));
}

/// Bytes of the datagrams of a call.
inline std::size_t datagram_bytes(const call& c, const any_transport& transport) {
  const auto most = transport.preferred_packet_bytes();
  return c.packet_bytes != 0 ? std::min(c.packet_bytes, most) : most;
}
/// What is wrong with a call over a transport that may lose messages: said before anything is sent.
inline void expect_slots(const call& c, const any_transport& transport) {
  const auto n = c.size(), datagram = datagram_bytes(c, transport);
  if (c.blocks() != (n == 0 ? 0 : (n - 1) / std::max<std::size_t>(c.largest_block(), 1) + 1))
    throw usage("omni: where packets may be lost, tensors are cut into blocks of equal size (fixed_blocks)");
  constexpr std::size_t least_bytes = 512;  // the greeting's
  if (datagram < least_bytes)
    throw usage(text() << "omni: where packets may be lost they have at least " << least_bytes << " bytes, not " << datagram);
  if (datagram - slot_overhead(1) < c.element_bytes())
    throw usage(text() << "omni: elements of " << c.element_bytes() << " bytes do not fit in packets of " << datagram);
}

/// One allreduce over a transport that may lose messages: this rank's worker and, unless there are servers, the owner of its share.
class slot_engine {
 public:
  slot_engine(std::string_view name, const stream_options& options, const call& c, const any_transport& transport,
              any_datagrams& messages)
      : call_(c), rank_(transport.rank()), ranks_(transport.size()), servers_(transport.servers()), messages_(messages) {
    const auto datagram = datagram_bytes(c, transport);
    mine_ = sign(c, name, datagram, options.window > 0 ? std::min(options.window, most_slots) : slots_wanted(ranks_, datagram));
    const auto n = c.size(), block = c.largest_block();
    // Blocks that do not fit in a datagram are cut into equal parts that do.
    const auto most = (datagram - slot_overhead(1)) / c.element_bytes();
    const auto parts = std::max<std::size_t>((block + most - 1) / most, 1);
    block_ = (std::min(block, n) + parts - 1) / parts;
    mine_.largest_block = block_;
    mine_.blocks = n == 0 ? 0 : (n - 1) / block_ + 1;
    report_.topology = name;
    if (servers_ == 0) {
      known_.add(c);
      owner_.emplace(ranks_, owners(), static_cast<std::size_t>(rank_), rank_, messages_.call(), &known_);
    }
  }

  void start() {
    watch_.lap();
    auto filled = detect();
    worker_.emplace(call_, mine_, owners(), messages_.call(), std::move(filled), messages_.answer_seconds(), packs());
    report_.detect_seconds += watch_.lap();
    worker_->start(now(), messages_.oldest(), to_owners());
    watch_.lap();
  }
  bool progress() { return turn(0); }
  void wait() { turn(std::clamp(worker_->due() - now(), 0.0, 1e-3)); }
  [[nodiscard]] awaited awaits() const {
    auto found = worker_ ? worker_->awaits() : awaited{};
    for (auto& owner : found.peers) owner += servers_ != 0 ? ranks_ : 0;
    // Who owns slots knows best.
    if (const auto missing = owner_ ? owner_->missing() : std::vector<int>(); !missing.empty()) found.peers = missing;
    std::erase(found.peers, rank_);
    if (found.packet.empty()) found.packet = "farewells of workers";
    return found;
  }
  [[nodiscard]] bool done() const { return worker_ && worker_->finished() && (!owner_ || owner_->finished()); }
  /// Tells everybody, more often than all of it is likely to be lost.
  void give_up() noexcept {
    if (done()) return;
    try {
      tell_failure(messages_, ranks_ + servers_, rank_);
    } catch (...) {  // NOLINT(bugprone-empty-catch): it was an error of the transport, then
    }
  }
  void finish(report& r) const {
    r = report_;
    r.blocks_total = static_cast<std::size_t>(mine_.blocks);
    r.union_blocks = worker_->union_blocks();
    for (std::size_t o = 0; o < owners(); ++o) {
      if (servers_ == 0 && o == static_cast<std::size_t>(rank_)) continue;  // which hears of it without a datagram
      r.elements_sent += worker_->elements(o);
      r.bytes_saved += worker_->saved(o);
    }
    if (owner_) r.bytes_saved += owner_->saved() * static_cast<std::size_t>(ranks_ - 1);
    r.extra_bytes = worker_->bytes() + (owner_ ? owner_->bytes() : 0);
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr int most_slots = signature_limits::window;

  [[nodiscard]] std::size_t owners() const { return static_cast<std::size_t>(servers_ != 0 ? servers_ : ranks_); }
  [[nodiscard]] static double now() { return std::chrono::duration<double>(clock::now().time_since_epoch()).count(); }

  // A bit for each block that is not null. Slots go over the tensor in strides: all of it is scanned first.
  std::vector<std::uint64_t> detect() {
    const auto blocks = static_cast<std::size_t>(mine_.blocks);
    std::vector<std::uint64_t> filled(blocks / 64 + 1, ~std::uint64_t{0});
    report_.blocks_sent = blocks;
    call_.encode_all();
    if (!call_.skips()) return filled;
    report_.blocks_sent = 0;
    for (std::size_t first = 0; first < blocks; first += 64) {
      const auto run = call_.in.data() + first * block_ * call_.element_bytes();
      auto mask = call_.mark(run, std::min(64 * block_, call_.size() - first * block_), block_);
      if (blocks - first < 64) mask &= (std::uint64_t{1} << (blocks - first)) - 1;
      filled[first / 64] = mask;
      report_.blocks_sent += static_cast<std::size_t>(std::popcount(mask));
      if (call_.in_place()) continue;
      for (std::size_t b = 0; b < 64 && first + b < blocks; ++b)
        if ((mask >> b & 1U) == 0) {
          const auto at = (first + b) * block_;
          call_.clear_elements(call_.out.data() + at * call_.element_bytes(), std::min(block_, call_.size() - at));
        }
    }
    return filled;
  }

  // Each rank decides for itself: a datagram says of each block whether it is packed.
  [[nodiscard]] bool packs() const {
    if (!call_.may_be_packed() || !call_.may_pack()) return false;
    if (call_.codec() != nullptr || call_.asks_to_pack_everywhere()) return true;
    return call_.asks_to_pack() && call_.is_worth_packing(sample_of(call_).elements);
  }

  std::function<void(int, std::span<const std::byte>)> to_owners() {
    return [this](int owner, std::span<const std::byte> d) { send(servers_ != 0 ? ranks_ + owner : owner, true, d); };
  }
  std::function<void(int, std::span<const std::byte>)> to_workers() {
    return [this](int worker, std::span<const std::byte> d) { send(worker, false, d); };
  }
  void send(int rank, bool to_owner, std::span<const std::byte> bytes) {
    if (rank != rank_) {
      report_.bytes_sent += bytes.size();
      return messages_.send(rank, bytes);
    }
    slot_reader d;
    static_cast<void>(d.parse(bytes));
    if (to_owner) owner_->take(rank, d, to_workers());
    else worker_->take(rank, d, now(), to_owners());
  }
  [[nodiscard]] std::size_t steps() const { return worker_->steps() + (owner_ ? owner_->steps() : 0); }
  // True if anything new has come; what others send again may come for ever.
  bool turn(double seconds) {
    const auto before = steps();
    watch_.lap();
    for (auto a = messages_.receive(seconds); a; a = messages_.receive(0)) {
      report_.bytes_received += a->datagram.bytes().size();
      take(a->peer, a->datagram);
      if (done()) break;
    }
    report_.exchange_seconds += watch_.lap();
    worker_->tick(now(), messages_.oldest(), to_owners());
    for (int r = 0; r < ranks_ + servers_; ++r)
      if (r != rank_ && messages_.gone(r)) throw protocol(r, "the rank gave up");
    if (owner_)
      for (int r = 0; r < ranks_; ++r)
        if (r != rank_ && messages_.passed(r)) owner_->passed(r, to_workers());
    if (done()) {
      messages_.answer_seconds() = worker_->answer_seconds();
      stop_if_refused();
    }
    return steps() != before;
  }
  void take(int peer, const slot_reader& d) {
    switch (d.header.kind) {
      case slot_kind::abort:
        throw protocol(peer, "the rank gave up");
      case slot_kind::welcome:
      case slot_kind::result:
      case slot_kind::refusal:
      case slot_kind::farewell: {
        const auto owner = servers_ != 0 ? peer - ranks_ : peer;
        if (owner < 0 || owner >= static_cast<int>(owners())) throw protocol(peer, "a datagram that workers do not send");
        return worker_->take(owner, d, now(), to_owners());
      }
      default:
        if (!owner_ || peer >= ranks_) throw protocol(peer, "a datagram that owners do not send");
        return owner_->take(peer, d, to_workers());
    }
  }
  void stop_if_refused() const {
    const auto& r = worker_->refused_by();
    if (!r) return;
    const bool differs = r->why == refusal::differs;
    const auto why = call_failure::error_of(differs ? refusal::failed : r->why, r->rank, ranks_ + servers_, mine_);
    if (why == nullptr) throw protocol(r->owner, "a refusal whose reason or rank does not exist");
    if (differs && r->theirs != mine_) throw difference(rank_, mine_, r->rank, r->theirs);
    std::rethrow_exception(why);
  }

  const call& call_;  // of the collective, which outlives its engine
  int rank_, ranks_, servers_;
  std::size_t block_ = 0;    // elements of a block, as it is sent
  any_datagrams& messages_;  // of the collective
  signature mine_;
  reductions known_;
  std::optional<slot_owner> owner_;
  std::optional<slot_worker> worker_;
  report report_;
  stopwatch watch_;
};

template <class Topology>
inline constexpr bool is_hierarchical = false;
template <class Inner, class Outer>
inline constexpr bool is_hierarchical<hierarchical<Inner, Outer>> = true;

/// What a topology is where packets may be lost: slots, of all ranks or of dedicated servers. There is nothing to choose.
template <class Topology>
struct over_slots : Topology {
  static_assert(!std::is_same_v<Topology, replicated>, "omni: replicated needs a transport that loses nothing; use colocated");
  static constexpr bool known = std::is_same_v<Topology, automatic> || std::is_same_v<Topology, colocated> ||
                                std::is_same_v<Topology, dedicated> || is_hierarchical<Topology>;
  static_assert(known || std::is_same_v<Topology, replicated>,
                "omni: where packets may be lost, the topology is automatic, colocated, hierarchical (which is colocated there) or "
                "dedicated");

  static constexpr bool takes_groups = false;

  struct engine : slot_engine {
    engine(const over_slots& t, const call& c, const any_transport& transport, any_datagrams& messages)
        : slot_engine(std::is_same_v<Topology, dedicated> ? dedicated::name : colocated::name, options_of(t), c, transport,
                      messages) {}
  };

  static void expect(const call& c, const any_transport& transport) {
    if (c.group() == nullptr) return expect_slots(c, transport);
    for (std::size_t i = 0; i < c.group()->tensors(); ++i) expect_slots(c.one(i), transport);
  }

 private:
  static stream_options options_of(const Topology& t) {
    if constexpr (std::is_same_v<Topology, colocated> || std::is_same_v<Topology, dedicated>) return {t.packet_bytes, t.window};
    else return {};
  }
};

}  // namespace omni::detail
