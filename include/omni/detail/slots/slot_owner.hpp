// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "../../error.hpp"
#include "../../reduction.hpp"
#include "../detect/mark.hpp"
#include "../memory/aligned_bytes.hpp"
#include "../wire/packed_block.hpp"
#include "../wire/packet.hpp"
#include "../wire/slot_packet.hpp"
#include "slot_map.hpp"

namespace omni::detail {

/// The owner's side of one allreduce over datagrams that may be lost, doubled, late and out of order (Algorithm 2 of OmniReduce,
/// SIGCOMM'21): a state machine that knows nothing of time and of transports. What comes in is answered through `send`.
///
/// Each slot has two versions: the step that is being gathered, with what each worker has sent of it, and the step before, of which
/// the result is kept until the last worker has taken part in the next: nobody who lacks it has. A contribution to the one that has
/// been seen before is dropped; one to the other is answered with its result; older ones are dropped. Blocks that come packed are
/// unpacked when they come; then results go packed, too, where they are shorter so.
///
/// Memory: slots x datagram x (workers + 1).
class slot_owner {
 public:
  using send_function = std::function<void(int worker, std::span<const std::byte> datagram)>;

  /// @param index which of the owners. @param rank of it; below `workers` if it is one of them.
  slot_owner(int workers, std::size_t owners, std::size_t index, int rank, std::uint32_t call, reductions* known)
      : known_(known),
        owners_(owners),
        index_(index),
        rank_(rank),
        call_(call),
        calls_(static_cast<std::size_t>(workers)),
        stands_(static_cast<std::size_t>(workers), standing::unknown) {}

  /// A worker's datagram. Precondition: it is of this call.
  void take(int worker, const slot_reader& d, const send_function& send) {
    const auto w = static_cast<std::size_t>(worker);
    switch (d.header.kind) {
      case slot_kind::hello:
        return greet(w, d, send);
      case slot_kind::contribution:
        if (phase_ == phase::folding) return contribution(w, d, send);
        return;  // of a worker that has not heard of the refusal; it says hello again
      case slot_kind::done:
        if (stands_[w] == standing::unknown) throw protocol(worker, "done before it began");
        if (stands_[w] == standing::greeted) stands_[w] = standing::done;
        return answer(w, slot_kind::farewell, send);
      case slot_kind::leave:
        left(worker, send);
        return answer(w, slot_kind::farewell, send);
      default:
        throw protocol(worker, "a datagram that workers do not send");
    }
  }
  /// A worker has told by other means that this call is behind it: it has all it needs, or failed before its greeting came.
  void passed(int worker, const send_function& send) {
    auto& s = stands_[static_cast<std::size_t>(worker)];
    if (s == standing::greeted) s = standing::done;
    if (s != standing::unknown) return;
    s = standing::failed;
    decide(send);
  }
  /// A worker has left, in this call or in one before.
  void left(int worker, const send_function& send) {
    auto& s = stands_[static_cast<std::size_t>(worker)];
    if (s != standing::unknown) return;
    s = standing::left;
    decide(send);
  }
  /// Workers that have not come, or that a slot waits for; or that have all results, and have not said that they are done.
  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> found;
    for (std::size_t w = 0; w < stands_.size(); ++w) {
      const auto waits = [&](const slot& t) { return t.active != 0 && t.missing != 0 && !t.seen[w]; };
      const bool slow =
          phase_ == phase::folding && stands_[w] == standing::greeted && std::any_of(slots_.begin(), slots_.end(), waits);
      if (stands_[w] == standing::unknown || slow) found.push_back(static_cast<int>(w));
    }
    for (std::size_t w = 0; w < stands_.size() && phase_ != phase::greeting && found.empty(); ++w)
      if (stands_[w] == standing::greeted) found.push_back(static_cast<int>(w));
    return found;
  }
  /// Bytes that packing results has saved on the way to each worker.
  [[nodiscard]] std::size_t saved() const { return saved_; }
  /// How often a worker has told anything new.
  [[nodiscard]] std::size_t steps() const { return steps_; }
  /// Nobody needs anything more.
  [[nodiscard]] bool finished() const {
    return phase_ != phase::greeting && std::all_of(stands_.begin(), stands_.end(), [](standing s) { return s >= standing::done; });
  }
  /// All workers have left.
  [[nodiscard]] bool deserted() const {
    return std::all_of(stands_.begin(), stands_.end(), [](standing s) { return s == standing::left; });
  }
  /// Of buffers.
  [[nodiscard]] std::size_t bytes() const {
    auto n = greeting_.size() + 2 * sizeof(slot_header) * calls_.size() + folded_.size() + packer_.kept_bytes();
    for (const auto& t : slots_) {
      n += t.result.size();
      for (const auto& c : t.contributions) n += c.size();
    }
    return n;
  }

  /// Calls f(bytes) with all that the future depends on.
  template <class F>
  void for_each_state(const F& f) const {
    const auto give = [&](const auto& x) { f(std::as_bytes(std::span(&x, 1))); };
    give(phase_);
    for (const auto& s : stands_) give(s);
    for (const auto row : first_) give(row);
    for (const auto& t : slots_) {
      give(t.step);
      give(t.packs);
      for (const auto row : t.rows) give(row);
      for (const auto row : t.next) give(row);
      f(t.result.span().first(t.result_bytes));
      for (std::size_t w = 0; w < t.contributions.size(); ++w) {
        give(static_cast<bool>(t.seen[w]));
        if (!t.seen[w]) continue;
        give(t.present[w]);
        f(t.contributions[w].span().first(t.bytes[w]));
      }
    }
  }

 private:
  enum class phase : std::uint8_t { greeting, folding, refusing };
  enum class standing : std::uint8_t { unknown, greeted, done, failed, left };  // the last three need nothing more
  [[nodiscard]] static bool is_away(standing s) { return s == standing::failed || s == standing::left; }

  struct slot {
    std::uint32_t step = 1;                    // being gathered
    std::uint64_t active = 0;                  // columns that are not at their end
    std::vector<bool> seen;                    // workers that have contributed to the step
    std::size_t missing = 0;                   // how many have not
    std::vector<std::uint32_t> rows;           // of the step, by column
    std::vector<std::uint32_t> next;           // least row after it that a worker has told, by column
    std::vector<aligned_bytes> contributions;  // elements, by worker
    std::vector<std::size_t> bytes;            // of them
    std::vector<std::uint64_t> present;        // which columns they are of
    bool packs = false;                        // some block has come packed
    aligned_bytes result;                      // of the step before: a datagram
    std::size_t result_bytes = 0;
  };

  void greet(std::size_t w, const slot_reader& d, const send_function& send) {
    if (stands_[w] == standing::left) throw protocol(static_cast<int>(w), "calls, and has left");
    if (stands_[w] == standing::failed) return;  // late
    if (stands_[w] == standing::unknown) {
      const auto e = d.elements();
      if (e.size() != sizeof(signature)) throw protocol(static_cast<int>(w), "a greeting without a signature");
      std::memcpy(&calls_[w], e.data(), sizeof(signature));
      if (const auto wrong = what_is_wrong(calls_[w]); !wrong.empty()) throw protocol(static_cast<int>(w), wrong);
      const auto map = slot_map::of(calls_[w], owners_);
      if (d.header.rows != map.slots * map.columns) throw protocol(static_cast<int>(w), "not a row for each column");
      if (first_.empty()) first_.assign(d.header.rows, slot_map::no_row);
      for (std::size_t i = 0; i < d.header.rows; ++i) {
        const auto row = d.row(i);
        if (row != slot_map::no_row && row >= map.rows()) throw protocol(static_cast<int>(w), "a row past the end");
        if (i < first_.size()) first_[i] = std::min(first_[i], row);
      }
      stands_[w] = standing::greeted;
      ++steps_;
      return decide(send);
    }
    if (phase_ != phase::greeting) welcome(w, send);
  }
  static std::string_view what_is_wrong(const signature& s) {
    if (const auto wrong = wrong_sizes(s); !wrong.empty()) return wrong;
    if (const auto wrong = wrong_blocks(s); !wrong.empty()) return wrong;
    if (slot_map::of(s, 1).columns == 0) return "packets that no block fits in";
    return {};
  }
  void decide(const send_function& send) {
    if (phase_ != phase::greeting) return;
    if (std::find(stands_.begin(), stands_.end(), standing::unknown) != stands_.end()) return;
    if (std::all_of(stands_.begin(), stands_.end(), is_away)) {
      phase_ = phase::refusing;
      return;
    }
    const auto& call = *std::find_if(calls_.begin(), calls_.end(), [](const signature& s) { return s.element_size != 0; });
    const auto alike = [&](const signature& s) { return s == call; };
    fold_ = std::all_of(calls_.begin(), calls_.end(), alike) && call.version == OMNI_VERSION ? known_->find(call) : nullptr;
    if (fold_ != nullptr && fold_->result_size != call.element_size) fold_ = nullptr;  // slots know one size of blocks
    phase_ = fold_ != nullptr ? phase::folding : phase::refusing;
    if (fold_ != nullptr) {
      if (!fold_->null.empty()) null_ = {fold_->null.data(), fold_->null.size()};
      open(call);
    }
    for (std::size_t w = 0; w < calls_.size(); ++w) welcome(w, send);
  }
  void open(const signature& s) {
    map_ = slot_map::of(s, owners_);
    slots_.resize(map_.slots);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      auto& t = slots_[i];
      t.rows.assign(first_.begin() + static_cast<std::ptrdiff_t>(i * map_.columns),
                    first_.begin() + static_cast<std::ptrdiff_t>((i + 1) * map_.columns));
      t.contributions.resize(calls_.size());
      t.bytes.resize(calls_.size());
      t.present.resize(calls_.size());
      restart(t);
    }
  }
  // Begins to gather a step.
  void restart(slot& t) {
    t.active = 0;
    for (std::size_t c = 0; c < map_.columns; ++c)
      if (t.rows[c] != slot_map::no_row) t.active |= std::uint64_t{1} << c;
    t.next.assign(map_.columns, slot_map::no_row);
    t.seen.assign(calls_.size(), false);
    t.missing = calls_.size();
    t.packs = false;
  }
  // What a worker hears once all have been heard.
  void welcome(std::size_t w, const send_function& send) {
    if (is_away(stands_[w])) return;
    if (phase_ == phase::folding) {
      if (greeting_.empty()) {
        greeting_ = aligned_bytes(slot_overhead(first_.size()));
        slot_writer d(greeting_.span(),
                      {.call = call_, .kind = slot_kind::welcome, .rows = static_cast<std::uint32_t>(first_.size())});
        for (std::size_t i = 0; i < first_.size(); ++i) d.row(i, first_[i]);
        static_cast<void>(d.close());
      }
      return send(static_cast<int>(w), greeting_.span());
    }
    auto why = refusal::unknown;
    auto rank = rank_;
    auto theirs = calls_[w];
    const auto gone = std::find_if(stands_.begin(), stands_.end(), is_away);
    const auto other = std::find_if(calls_.begin(), calls_.end(), [&](const signature& s) { return !(s == calls_[w]); });
    if (gone != stands_.end()) {
      why = *gone == standing::left ? refusal::left : refusal::failed;
      rank = static_cast<int>(gone - stands_.begin());
    } else if (other != calls_.end()) {
      why = refusal::differs;
      rank = static_cast<int>(other - calls_.begin());
      theirs = *other;
    } else if (calls_[w].version != OMNI_VERSION) {
      why = refusal::differs;
      theirs.version = OMNI_VERSION;
    }
    std::array<std::byte, slot_overhead(0) + sizeof(theirs)> room{};
    slot_writer d(room, {.call = call_,
                         .kind = slot_kind::refusal,
                         .reason = static_cast<std::uint32_t>(why),
                         .about = static_cast<std::uint32_t>(rank)});
    std::memcpy(d.add(sizeof(theirs)), &theirs, sizeof(theirs));
    send(static_cast<int>(w), d.close());
  }
  void answer(std::size_t w, slot_kind kind, const send_function& send) {
    std::array<std::byte, sizeof(slot_header)> room{};
    send(static_cast<int>(w), slot_writer(room, {.call = call_, .kind = kind}).close());
  }

  [[nodiscard]] std::size_t elements_of(std::size_t block) const {
    const auto& s = calls_[0];
    return static_cast<std::size_t>(std::min(s.largest_block, s.count - block * s.largest_block));
  }
  [[nodiscard]] std::size_t block_bytes(std::size_t number, std::size_t column, std::uint32_t row) const {
    const auto block = map_.block(index_, number, column, row);
    return block < map_.blocks ? elements_of(block) * static_cast<std::size_t>(calls_[0].element_size) : 0;
  }

  void contribution(std::size_t w, const slot_reader& d, const send_function& send) {
    const auto refuse = [&](std::string_view what) { throw protocol(static_cast<int>(w), what); };
    const auto& h = d.header;
    if (h.slot >= slots_.size()) refuse("a slot that there is not");
    auto& t = slots_[h.slot];
    if (h.step + 1 == t.step && h.step != 0) return send(static_cast<int>(w), t.result.span().first(t.result_bytes));
    if (h.step < t.step) return;
    if (h.step > t.step || t.active == 0) refuse("a step of which it cannot know");
    if (t.seen[w]) return;
    if (h.rows != static_cast<std::uint32_t>(std::popcount(t.active))) refuse("not a row for each column");
    if ((h.present & ~t.active) != 0) refuse("blocks of columns that have ended");
    if ((h.packed & ~h.present) != 0) refuse("packed blocks that are not there");
    if (h.packed != 0 && null_.element() == nullptr) refuse("packed blocks where no element is null");
    for_each_column(t.active, [&](std::size_t c, std::size_t i) {
      const auto next = d.row(i);
      if (next != slot_map::no_row && (next <= t.rows[c] || next >= map_.rows())) refuse("rows do not ascend, or are past the end");
      if ((h.present >> c & 1U) != 0 && block_bytes(h.slot, c, t.rows[c]) == 0) refuse("a block past the end");
    });
    auto& kept = t.contributions[w];
    if (kept.empty()) kept = aligned_bytes(static_cast<std::size_t>(calls_[0].packet_bytes));
    auto rest = d.elements();
    std::size_t bytes = 0;
    for_each_column(h.present, [&](std::size_t c, std::size_t) {
      const auto to = kept.span().subspan(bytes, block_bytes(h.slot, c, t.rows[c]));
      const auto taken = d.read_block(c, rest, null_, to);
      if (taken == 0) refuse("length and contents differ");
      rest = rest.subspan(taken);
      bytes += to.size();
    });
    if (!rest.empty()) refuse("length and contents differ");
    for_each_column(t.active, [&](std::size_t c, std::size_t i) { t.next[c] = std::min(t.next[c], d.row(i)); });
    t.packs = t.packs || h.packed != 0;
    t.bytes[w] = bytes;
    t.present[w] = h.present;
    t.seen[w] = true;
    ++steps_;
    if (--t.missing == 0) fold(h.slot, send);
  }
  // All workers have contributed.
  void fold(std::size_t number, const send_function& send) {
    auto& t = slots_[number];
    if (t.result.empty()) t.result = aligned_bytes(static_cast<std::size_t>(calls_[0].packet_bytes));
    slot_writer d(t.result.span(), {.call = call_,
                                    .kind = slot_kind::result,
                                    .slot = static_cast<std::uint32_t>(number),
                                    .step = t.step,
                                    .rows = static_cast<std::uint32_t>(std::popcount(t.active)),
                                    .present = t.active});
    at_.assign(calls_.size(), 0);
    for_each_column(t.active, [&](std::size_t c, std::size_t i) {
      const auto bytes = block_bytes(number, c, t.rows[c]);
      sources_.clear();
      for (std::size_t w = 0; w < calls_.size(); ++w) {
        if ((t.present[w] >> c & 1U) == 0) continue;
        sources_.push_back(t.contributions[w].span().data() + at_[w]);
        at_[w] += bytes;
      }
      // A row is only ever told by a worker that has it.
      if (sources_.empty()) throw protocol(rank_, "a row that nobody has");
      auto* const to = t.packs ? room_for(bytes) : d.add(bytes);
      fold_->fold(std::span<const void* const>(sources_), sources_.size() < calls_.size(), to,
                  bytes / static_cast<std::size_t>(calls_[0].element_size));
      if (t.packs) saved_ += d.add_block(c, {to, bytes}, null_, &packer_);
      d.row(i, t.next[c]);
    });
    const auto result = d.close();
    t.result_bytes = result.size();
    ++t.step;
    t.rows = t.next;
    restart(t);
    // This rank's own comes last: it answers at once.
    for (int w = 0; w < static_cast<int>(calls_.size()); ++w)
      if (w != rank_) send(w, result);
    if (rank_ < static_cast<int>(calls_.size())) send(rank_, result);
  }

  // For a folded block before it is packed.
  std::byte* room_for(std::size_t bytes) {
    if (folded_.size() < bytes) folded_ = aligned_bytes(bytes);
    return folded_.span().data();
  }

  reductions* known_;
  std::size_t owners_, index_;
  int rank_;
  std::uint32_t call_;
  std::vector<signature> calls_;  // what each worker called with
  std::vector<standing> stands_;
  phase phase_ = phase::greeting;
  slot_map map_;
  std::shared_ptr<const reductions::entry> fold_;
  std::vector<std::uint32_t> first_;  // least first row that a worker has told, by slot and column
  aligned_bytes greeting_;            // the answer to all greetings
  std::vector<slot> slots_;
  std::size_t steps_ = 0, saved_ = 0;
  std::vector<const void*> sources_;
  std::vector<std::size_t> at_;
  null_element null_;  // of an operation that has one
  block_packer packer_;
  aligned_bytes folded_;
};

}  // namespace omni::detail
