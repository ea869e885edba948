// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "../deadline.hpp"
#include "../detail/call/call.hpp"
#include "../detail/call/sign.hpp"
#include "../detail/call/stopwatch.hpp"
#include "../detail/carry/any_transport.hpp"
#include "../detail/memory/workspace.hpp"
#include "../detail/streams/stream_options.hpp"
#include "../error.hpp"
#include "../report.hpp"
#include "device_transfer.hpp"
#include "exchange_chunks.hpp"
#include "exchange_greeting.hpp"

namespace omni::detail {

/// What device_engine keeps on the host from call to call.
struct exchange_state {
  exchange_greeting::memory greeting;
  std::vector<int> peers;
  std::vector<std::size_t> found, united;                  // sections that each peer has sent
  std::vector<std::size_t> expected, given;                // acknowledgements of and for each
  std::vector<std::uint64_t> acknowledged, acknowledging;  // chunks, in rings
  std::vector<std::byte> last_words;
  [[nodiscard]] std::size_t bytes() const { return greeting.bytes(); }
};

/// The engine of tensors that never leave their devices: every rank owns tiles of each chunk, folds on its device what all ranks
/// have of them, and sends the union to everybody (OmniReduce's method, the numbers of blocks told ahead of the blocks).
///
/// To each peer goes a first packet with the call's signature. Then for each chunk a section (slot_places.hpp) says what blocks
/// there are for the peer to fold, and a message from the device's memory has those; the same, to everybody, for what came of it.
/// Where ranks are threads the section says where the blocks lie, and whoever has read them there acknowledges that. The last word
/// of each, for which the others listen from the beginning, is that its output is written or that it gives up: blocks may be on
/// their way to one that takes them no more, and no rank is done as long as another may fail.
///
/// No rank waits in a cycle: a chunk waits only for itself on other ranks, and for the chunk that had its buffers before.
template <class Device>
class device_engine {
  using chunks_type = exchange_chunks<Device>;
  using token = exchange_token;
  using kind = exchange_token::kind;
  static constexpr std::size_t depth = chunks_type::depth;

 public:
  device_engine(std::size_t chunk_bytes, const call& c, const any_transport& transport, any_mailbox& messages)
      : call_(c),
        transfer_(static_cast<device_transfer<Device>&>(*c.elsewhere())),
        chunk_bytes_(chunk_bytes),
        rank_(transport.rank()),
        ranks_(transport.size()),
        greeting_(rank_, c.element_bytes(), sign(c, "device", chunk_bytes, static_cast<int>(depth)), greeting_room(c, transport),
                  c.agreed),
        by_address_(transport.one_process()),
        has_window_(transport.shared_window() != nullptr),
        messages_(messages) {}
  device_engine(const device_engine&) = delete;
  device_engine(device_engine&&) = delete;
  device_engine& operator=(const device_engine&) = delete;
  device_engine& operator=(device_engine&&) = delete;
  ~device_engine() {
    if (!greeting_.started() || done() || is_called_off()) return;
    messages_.abandon();
    if (chunks_ != nullptr) transfer_.leak();
    s_.leak();
  }

  void start() {
    auto& s = *s_;
    s.peers.clear();
    s.peers.resize(peers());
    for (int d = 1; d < ranks_; ++d) s.peers[static_cast<std::size_t>(d) - 1] = (rank_ + d) % ranks_;
    s.acknowledged.resize(2 * depth * peers());
    s.acknowledging.resize(2 * depth * peers());
    for (auto* const counts : {&s.found, &s.united, &s.expected, &s.given}) counts->assign(peers(), 0);
    messages_.reserve(peers() * (2 + 6 * depth));
    s.last_words.assign(peers(), unheard);
    transfer_.expect_begun();
    greeting_.start(s.greeting, messages_, s.peers, transfer_.width(), false);
    for (std::size_t i = 0; i < peers(); ++i)
      messages_.receive(s.peers[i], last_words, std::span(&s.last_words[i], 1), token::make(kind::heard_last_word, i));
  }
  /// Goes as far as neither the device nor another rank has to be waited for. True if anything moved.
  bool progress() {
    const auto guard = transfer_.enter();
    bool moved = take(messages_.poll());
    if (chunks_ == nullptr) {
      // A rank that had no memory to begin has sent nothing, and given up where ranks share memory.
      if (!moved && ++in_vain_ % 64 == 0) messages_.nudge();
      if (!greeting_.complete()) return moved;
      if (greeting_.differs()) messages_.cancel(last_words);
      const auto width = greeting_.conclude();
      const auto way = !by_address_ ? passage::sent : transfer_.reaches_others() ? passage::stays : passage::fetched;
      chunks_ = &transfer_.begin_exchange(width, rank_, ranks_, chunk_bytes_, way);
    }
    for (auto c = done_; c < begun_; ++c)
      if (advance(c)) moved = true;
    for (; done_ < begun_ && at(done_).is_over(); ++done_) moved = true;
    for (; begun_ < chunks_->chunks() && begun_ < done_ + depth; ++begun_) {
      at(begun_) = {};
      chunks_->scan(begun_);
      moved = true;
    }
    listen();
    if (done_ == chunks_->chunks() && !finished_) {
      finished_ = moved = true;
      say_last_word(well);
    }
    if (done()) report_.exchange_seconds = watch_.elapsed();
    return moved;
  }
  void wait() {
    for (auto c = done_; c < begun_; ++c)
      if (at(c).is_at_device()) return std::this_thread::yield();             // which does not say when it is done
    if (chunks_ == nullptr && has_window_) return std::this_thread::yield();  // progress() sees there who has given up
    const auto guard = transfer_.enter();
    take(messages_.wait());
  }
  [[nodiscard]] bool done() const { return finished_ && ended_ == peers() && saying_ == 0; }
  /// Tells the others that nothing more will come.
  void give_up() noexcept {
    if (done()) return;
    try {
      if (!greeting_.started()) greeting_.start(s_->greeting, messages_, s_->peers, 16, true);
      if (!finished_) say_last_word(gives_up);
      // Messages so short leave at once, if they leave at all.
      for (int tries = 0; tries < 100; ++tries) static_cast<void>(messages_.poll());
    } catch (...) {  // NOLINT(bugprone-empty-catch): it was an error of the transport, then
    }
  }
  [[nodiscard]] awaited awaits() const {
    awaited a{{}, chunks_ == nullptr ? "the first packet" : finished_ ? "the last word" : "chunk " + std::to_string(done_)};
    const auto await = [&](const auto& has_come) {
      for (std::size_t i = 0; i < peers(); ++i)
        if (!has_come(i)) a.peers.push_back(s_->peers[i]);
    };
    // Who holds up one holds up all: of what is missing the first counts.
    if (chunks_ == nullptr) return await([&](std::size_t i) { return greeting_.has_met(i); }), a;
    if (finished_) return await([&](std::size_t i) { return s_->last_words[i] != unheard; }), a;
    await([&](std::size_t i) { return s_->found[i] > done_; });
    if (a.peers.empty()) await([&](std::size_t i) { return s_->united[i] > done_; });
    return a;
  }
  void finish(report& r) const {
    r = report_;
    r.topology = "colocated";
    r.blocks_total = call_.blocks();
    r.extra_bytes = s_->bytes();
  }

 private:
  enum stream : std::uint8_t { contributions = 0, results = 1, acknowledgements = 2, last_words = 3 };
  static constexpr std::byte gives_up{0}, well{1}, unheard{2};  // the last words

  /// A chunk that is under way.
  struct state {
    bool scanned = false;                                       // and told to the owners
    bool gathering = false, folding = false, folded = false;    // this rank's tiles; folded and returned
    bool collecting = false, writing = false, written = false;  // those of all
    std::size_t found = 0, united = 0;                          // sections that have come
    std::size_t arriving = 0, returning = 0;                    // messages of blocks that have not
    std::size_t leaving = 0;                                    // messages, and acknowledgements of others

    [[nodiscard]] bool is_over() const { return written && leaving == 0; }
    [[nodiscard]] bool is_at_device() const { return !scanned || (folding && !folded) || (writing && !written); }
  };

  static std::size_t greeting_room(const call& c, const any_transport& transport) {
    // Where the ranks have not agreed one may take another way, and begin with a packet that has more in it.
    if (c.agreed) return first_packet_overhead;
    return stream_options{}
        .limits(transport.size(), transport.preferred_packet_bytes(), c.largest_block() * c.element_bytes())
        .packet_bytes;
  }
  [[nodiscard]] std::size_t peers() const { return static_cast<std::size_t>(ranks_) - 1; }
  [[nodiscard]] std::size_t rank_of(std::size_t i) const { return static_cast<std::size_t>(s_->peers[i]); }
  [[nodiscard]] std::size_t peer_of(std::size_t rank) const {
    return (rank + static_cast<std::size_t>(ranks_ - rank_) - 1) % static_cast<std::size_t>(ranks_);
  }
  [[nodiscard]] state& at(std::size_t chunk) { return states_[chunk % depth]; }
  /// Messages leave, and are asked for, in the order of chunks: whether the one before has come so far.
  [[nodiscard]] bool is_next(std::size_t chunk, bool state::*so_far) { return chunk <= done_ || at(chunk - 1).*so_far; }
  /// The ranks have found that their calls differ, and taken all that was sent: nothing can be written any more.
  [[nodiscard]] bool is_called_off() const { return chunks_ == nullptr && greeting_.complete() && greeting_.differs(); }

  bool advance(std::size_t c) {
    auto& s = at(c);
    bool moved = false;
    const auto did = [&](bool& what) { what = moved = true; };
    if (!s.scanned && is_next(c, &state::scanned) && chunks_->is_scanned(c)) {
      tell(c);
      did(s.scanned);
    }
    if (!s.gathering && s.found == peers()) {
      gather(c);
      did(s.gathering);
    }
    if (!s.folding && s.scanned && s.gathering && s.arriving == 0) {
      chunks_->fold(c, transfer_.folds());
      did(s.folding);
    }
    if (s.folding && !s.folded && is_next(c, &state::folded) && chunks_->is_folded(c)) {
      return_results(c);
      did(s.folded);
    }
    if (!s.collecting && s.united == peers()) {
      collect(c);
      did(s.collecting);
    }
    if (!s.writing && s.folded && s.collecting && s.returning == 0) {
      chunks_->expand(c);
      did(s.writing);
    }
    if (s.writing && !s.written && chunks_->is_written(c)) {
      for (std::size_t i = 0; i < peers(); ++i) acknowledge(c, i, chunks_->united(c, rank_of(i)));
      did(s.written);
    }
    return moved;
  }
  void tell(std::size_t c) {
    chunks_->take_found(c);
    for (std::size_t r = 0; r <= peers(); ++r) report_.blocks_sent += chunks_type::head_of(chunks_->mine(c, r)).count;
    for (std::size_t i = 0; i < peers(); ++i) send(c, i, contributions, chunks_->mine(c, rank_of(i)));
  }
  void gather(std::size_t c) {
    for (std::size_t i = 0; i < peers(); ++i)
      if (!chunks_->is_sound(c, chunks_->heard(c, rank_of(i)), static_cast<std::size_t>(rank_), false)) refuse(i);
    chunks_->place_heard(c, [&](std::size_t rank, std::span<std::byte> to, const std::byte* from) {
      if (by_address_) chunks_->fetch_for_fold(to, from);
      else receive(c, peer_of(rank), contributions, to, kind::found_blocks, at(c).arriving);
    });
  }
  void return_results(std::size_t c) {
    const auto* const mine = chunks_->united(c, static_cast<std::size_t>(rank_));
    report_.union_blocks += chunks_type::head_of(mine).count;
    for (std::size_t i = 0; i < peers(); ++i) {
      acknowledge(c, i, chunks_->heard(c, rank_of(i)));
      send(c, i, results, mine);
    }
  }
  void collect(std::size_t c) {
    for (std::size_t i = 0; i < peers(); ++i) {
      const auto* const section = chunks_->united(c, rank_of(i));
      if (!chunks_->is_sound(c, section, rank_of(i), true)) refuse(i);
      report_.union_blocks += chunks_type::head_of(section).count;
    }
    chunks_->place_united(c, [&](std::size_t rank, std::span<std::byte> to, const std::byte* from) {
      if (by_address_) chunks_->fetch_for_writing(to, from);
      else receive(c, peer_of(rank), results, to, kind::united_blocks, at(c).returning);
    });
  }
  [[noreturn]] void refuse(std::size_t i) const { throw protocol(s_->peers[i], "blocks that it cannot have"); }

  void say_last_word(const std::byte& word) {
    for (const int peer : s_->peers) {
      messages_.send(peer, last_words, std::span(&word, 1), token::make(kind::last_word, 0));
      ++saying_;
    }
  }
  // Sends a section, and the blocks that it tells of.
  void send(std::size_t c, std::size_t i, stream way, const std::byte* section) {
    const auto leave = [&](std::span<const std::byte> bytes) {
      messages_.send(s_->peers[i], way, bytes, token::make(kind::left, i, c % depth));
      ++at(c).leaving;
    };
    const auto blocks = chunks_->slots(section);
    leave({section, chunks_->section_bytes()});
    report_.bytes_sent += chunks_->section_bytes() + blocks.size();
    if (blocks.empty()) return;
    if (by_address_) {
      const auto k = i * 2 * depth + s_->expected[i]++ % (2 * depth);
      messages_.receive(s_->peers[i], acknowledgements, std::as_writable_bytes(std::span(&s_->acknowledged[k], 1)),
                        token::make(kind::acknowledged, i, k % (2 * depth)));
      ++at(c).leaving;
    } else {
      leave(blocks);
    }
  }
  void receive(std::size_t c, std::size_t i, stream way, std::span<std::byte> to, kind what, std::size_t& under_way) {
    messages_.receive(s_->peers[i], way, to, token::make(what, i, c % depth));
    ++under_way;
  }
  // Tells a peer that its blocks have been read.
  void acknowledge(std::size_t c, std::size_t i, const std::byte* section) {
    if (by_address_) {
      if (chunks_->slots(section).empty()) return;
      auto& what = s_->acknowledging[i * 2 * depth + s_->given[i]++ % (2 * depth)];
      what = c;
      messages_.send(s_->peers[i], acknowledgements, std::as_bytes(std::span(&what, 1)), token::make(kind::left, i, c % depth));
      ++at(c).leaving;
    }
  }
  // Asks for the sections of the chunks that are under way: of each after the blocks of the one before.
  void listen() {
    for (; listening_ < begun_ && is_next(listening_, &state::gathering); ++listening_)
      for (std::size_t i = 0; i < peers(); ++i)
        messages_.receive(s_->peers[i], contributions, {chunks_->heard(listening_, rank_of(i)), chunks_->section_bytes()},
                          token::make(kind::found, i, listening_ % depth));
    for (; listening_to_results_ < begun_ && is_next(listening_to_results_, &state::collecting); ++listening_to_results_)
      for (std::size_t i = 0; i < peers(); ++i)
        messages_.receive(s_->peers[i], results, {chunks_->united(listening_to_results_, rank_of(i)), chunks_->section_bytes()},
                          token::make(kind::united, i, listening_to_results_ % depth));
  }

  bool take(std::span<const completion> done) {
    for (const auto& c : done) {
      const token t{c.token};
      auto& s = states_[t.slot() % depth];
      switch (t.what()) {
        case kind::first_packet:
          greeting_.arrived(t.peer(), c.bytes);
          break;
        case kind::greeting:
          greeting_.left();
          break;
        case kind::found:
          take_section(t, c.bytes, chunks_->heard(t.slot(), rank_of(t.peer())));
          ++s.found;
          ++s_->found[t.peer()];
          break;
        case kind::united:
          take_section(t, c.bytes, chunks_->united(t.slot(), rank_of(t.peer())));
          ++s.united;
          ++s_->united[t.peer()];
          break;
        case kind::found_blocks:
          take_blocks(t, c.bytes, chunks_->heard(t.slot(), rank_of(t.peer())));
          --s.arriving;
          break;
        case kind::united_blocks:
          take_blocks(t, c.bytes, chunks_->united(t.slot(), rank_of(t.peer())));
          --s.returning;
          break;
        case kind::left:
          --s.leaving;
          break;
        case kind::acknowledged: {
          const auto chunk = s_->acknowledged[t.peer() * 2 * depth + t.slot()];
          if (c.bytes != sizeof(chunk) || chunk < done_ || chunk >= begun_ || at(chunk).leaving == 0)
            throw protocol(s_->peers[t.peer()], "acknowledges what it was not given");
          --at(chunk).leaving;
          break;
        }
        case kind::heard_last_word:
          ++ended_;
          if (c.bytes == 1 && s_->last_words[t.peer()] == well) break;
          greeting_.gave_up(t.peer());
          if (chunks_ != nullptr) static_cast<void>(greeting_.conclude());
          break;
        case kind::last_word:
          --saying_;
          break;
      }
    }
    return !done.empty();
  }
  void take_section(const token& t, std::size_t bytes, const std::byte* section) {
    const auto sender = s_->peers[t.peer()];
    if (bytes != chunks_->section_bytes()) throw protocol(sender, "tells of a chunk in " + std::to_string(bytes) + " bytes");
    report_.bytes_received += bytes;
    if (by_address_) report_.bytes_received += chunks_->slots(section).size();
  }
  void take_blocks(const token& t, std::size_t bytes, const std::byte* section) {
    if (bytes != chunks_->slots(section).size()) throw protocol(s_->peers[t.peer()], "sends fewer blocks than it told of");
    report_.bytes_received += bytes;
  }

  const call& call_;  // of the collective, which outlives its engine
  device_transfer<Device>& transfer_;
  std::size_t chunk_bytes_;
  int rank_, ranks_;
  exchange_greeting greeting_;
  bool by_address_;  // ranks can copy from each other's memory on a device
  bool has_window_;
  unsigned in_vain_ = 0;
  any_mailbox& messages_;
  borrowed<exchange_state> s_;
  chunks_type* chunks_ = nullptr;  // once all ranks have been met
  std::array<state, depth> states_{};
  std::size_t begun_ = 0, done_ = 0;  // chunks
  std::size_t listening_ = 0, listening_to_results_ = 0;
  bool finished_ = false;               // the output is written
  std::size_t ended_ = 0, saying_ = 0;  // last words that have come; that have not left
  report report_;
  stopwatch watch_;
};

}  // namespace omni::detail
