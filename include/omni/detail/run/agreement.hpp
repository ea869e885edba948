// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "../../concepts.hpp"
#include "../../error.hpp"
#include "../call/call.hpp"
#include "../call/own_record.hpp"
#include "../call/sample.hpp"
#include "../call/sign.hpp"
#include "../carry/any_mailbox.hpp"
#include "../memory/copy.hpp"
#include "../memory/workspace.hpp"

namespace omni::detail {

/// The messages of an agreement.
struct agreement_room {
  packet_buffers memory;
  std::vector<std::span<const std::byte>> words;  // of each rank

  [[nodiscard]] std::size_t bytes() const { return memory.bytes(); }
};

/// What the ranks of a call agree on before it starts, on transports that want it: the largest of a few numbers over all ranks. A
/// digest of the call and its negative tell whether all called alike; the third and the fourth are a sample of the
/// densest rank, for topologies that ask for it and for packing; a call's own numbers, if it has any, are in the fourth and after
/// it. A call may have words for all ranks (own_record): they come after the numbers.
///
/// By dissemination (Hensgen, Finkel and Manber, 1988) with radix 4: in round k every rank tells the ranks 4^k, 2 4^k and 3 4^k
/// above it the largest that it has heard of, and the words of as many ranks as it has heard of. ceil(log4 N) rounds, each at most
/// three messages of 48 bytes, and of the words, to send and to receive: up to four ranks wait for each other only once.
class agreement {
 public:
  agreement(int rank, int ranks) : rank_(rank), ranks_(ranks) {
    for (std::int64_t step = 1; step < ranks; step *= radix) ++rounds_;
  }
  agreement(const agreement&) = delete;  // its messages are under way from here
  agreement(agreement&&) = delete;
  agreement& operator=(const agreement&) = delete;
  agreement& operator=(agreement&&) = delete;
  ~agreement() {
    if (room_ && (under_way_ != 0 || expected_ != 0)) room_->leak();
  }

  /// Notes what this rank has to say of the call.
  void look(const call& call, bool samples) {
    record_ = call.record;
    const auto d = digest(sign(call));
    const auto s = samples ? try_sample(call, looks_at(call)) : sample{};
    largest_ = {d, -d, static_cast<std::int64_t>(s.density * whole), static_cast<std::int64_t>(s.elements * whole)};
    has_shares_ = !call.is_summary;
    most_own_ = call.most_of_summary;
    if (call.is_summary) {
      std::array<std::uint64_t, 3> own{};
      std::memcpy(own.data(), call.in.data(), std::min(sizeof(own), call.in.size()));
      for (std::size_t i = 0; i < own.size(); ++i) largest_[first_own + i] = static_cast<std::int64_t>(own[i] ^ sign_bit);
    }
  }
  /// Precondition: it has looked.
  void start(any_mailbox& messages) {
    // Whoever calls something else may be told words, too: there is room for any.
    std::size_t all = 0;
    for (std::size_t k = 0; k < rounds_; ++k) all += peers(k) * message_bytes(k) + told_bytes(k);
    auto& room = *room_.emplace();
    room.memory.rewind();
    memory_ = room.memory.take(all);
    room.words.assign(most_words() == 0 ? 0 : static_cast<std::size_t>(ranks_), {});
    for (std::size_t k = 0; k < rounds_; ++k)
      for (std::size_t i = 0; i < peers(k); ++i, ++expected_)
        messages.receive(peer(k, i, -1), stream, buffer(k, i), (k << 3U | i << 1U | 1U));
    tell(messages);
  }
  /// Takes what has arrived; true if anything had.
  bool progress(any_mailbox& messages) { return take(messages, messages.poll()); }
  void wait(any_mailbox& messages) { take(messages, messages.wait()); }
  [[nodiscard]] bool done() const { return round_ == rounds_ && under_way_ == 0; }
  /// This rank cannot go on. Those that still wait for a message of it get an empty one, and refuse it.
  [[gnu::cold]] void give_up(any_mailbox& messages) noexcept {
    try {
      std::size_t n = 0;
      for (std::size_t k = 0; k < rounds_; ++k)
        for (std::size_t i = 0; i < peers(k); ++i)
          if (n++ >= told_) messages.send(peer(k, i, 1), stream, {}, 0);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): an error of the transport, or no memory at all
    }
  }

  /// Memory of its messages.
  [[nodiscard]] std::size_t bytes() const { return (*room_)->bytes(); }

  // Once it is done:
  [[nodiscard]] bool same_call() const { return largest_[0] == -largest_[1]; }
  [[nodiscard]] sample densest() const {
    return {static_cast<double>(largest_[2]) / whole, static_cast<double>(largest_[3]) / whole};
  }
  /// The largest of each of the call's numbers.
  [[nodiscard]] std::array<std::uint64_t, 3> largest_own() const {
    std::array<std::uint64_t, 3> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint64_t>(largest_[first_own + i]) ^ sign_bit;
    return all;
  }
  /// The words of all ranks, of a call that has some; nothing where there are too many ranks.
  [[nodiscard]] std::span<const std::span<const std::byte>> words() const {
    if (record_ == nullptr || most_words() == 0) return {};
    const auto& words = (*room_)->words;
    for (std::size_t r = 0; r < words.size(); ++r)
      if (words[r].data() == nullptr) throw protocol(static_cast<int>(r), "agrees without its words");
    return words;
  }

 private:
  // Blocks to look at: more of a tensor that takes long on its way. The ranks go by the largest share that one of them has found,
  // and of short samples that is too large.
  static std::size_t looks_at(const call& call) { return call.bytes() < std::size_t{16} << 20U ? 128 : 256; }

  static constexpr double whole = 1e6;  // what a share is of
  static constexpr std::size_t first_own = 3;
  static constexpr std::uint64_t sign_bit = std::uint64_t{1} << 63U;  // unsigned numbers in the order of signed ones
  using numbers = std::array<std::int64_t, first_own + 3>;
  static constexpr unsigned stream = 3;
  static constexpr int radix = 4;
  static constexpr std::size_t most_rounds = 16;
  static constexpr std::size_t line = 64;  // words begin on one, and so does what is before them

  /// Of one rank. One message of them is sent at once by what is below MPI on Ethernet, up to a few ranks.
  [[nodiscard]] std::size_t most_words() const {
    constexpr std::size_t of_all = std::size_t{128} << 10U, most = std::size_t{32} << 10U;
    constexpr int most_ranks = 64;
    return ranks_ <= most_ranks ? std::min(of_all / static_cast<std::size_t>(ranks_) / line * line, most) : 0;
  }
  static std::int64_t step(std::size_t k) { return std::int64_t{1} << (2 * k); }
  /// Of how many ranks a message of round k has the words.
  [[nodiscard]] std::size_t told_of(std::size_t k) const {
    return static_cast<std::size_t>(std::min<std::int64_t>(step(k), ranks_));
  }
  [[nodiscard]] std::size_t message_bytes(std::size_t k) const {
    return line + (most_words() == 0 ? 0 : told_of(k) * (line + most_words()));
  }
  [[nodiscard]] std::size_t told_bytes(std::size_t k) const {
    if (record_ == nullptr) return line;
    return message_bytes(k) * (goes_straight() ? peers(k) + 1 : 1);
  }
  /// Whether every rank's message goes to every other: words may then differ, and this rank's own come after theirs.
  [[nodiscard]] bool goes_straight() const { return rounds_ == 1; }
  /// For what number i tells in round k; after them, for what is told.
  [[nodiscard]] std::span<std::byte> buffer(std::size_t k, std::size_t i) const {
    std::size_t before = 0;
    for (std::size_t j = 0; j < k; ++j) before += peers(j) * message_bytes(j) + told_bytes(j);
    return memory_.subspan(before + i * message_bytes(k), i == peers(k) ? told_bytes(k) : message_bytes(k));
  }
  /// To how many ranks this one talks in round k.
  [[nodiscard]] std::size_t peers(std::size_t k) const {
    return static_cast<std::size_t>(std::min<std::int64_t>(radix - 1, (ranks_ - 1) / step(k)));
  }
  /// Number i of them above (1), or the one for which this rank is that (-1).
  [[nodiscard]] int peer(std::size_t k, std::size_t i, int direction) const {
    return above(rank_, direction * static_cast<std::int64_t>(i + 1) * step(k));
  }
  [[nodiscard]] int above(int rank, std::int64_t distance) const {
    const auto n = std::int64_t{ranks_};
    return static_cast<int>(((rank + distance) % n + n) % n);
  }
  // Each rank what it has to know. False if all are told the same.
  bool tell_apart(any_mailbox& messages) {
    if (record_ == nullptr || most_words() == 0 || !goes_straight()) return false;
    const auto n = peers(0);
    const auto room_of = [&](std::size_t i) { return buffer(0, n).subspan(i * message_bytes(0), message_bytes(0)); };
    std::array<told_rank, radix> all;
    for (std::size_t i = 0; i <= n; ++i) all[i] = {i == n ? rank_ : peer(0, i, 1), room_of(i).subspan(2 * line, most_words()), 0};
    if (!record_->write_messages(std::span(all).first(n + 1))) return false;
    (*room_)->words[static_cast<std::size_t>(rank_)] = all[n].room.first(all[n].bytes);
    for (std::size_t i = 0; i < n; ++i, ++under_way_, ++told_) {
      const auto message = room_of(i);
      const std::uint64_t bytes = all[i].bytes;
      std::memcpy(message.data(), largest_.data(), sizeof(numbers));
      std::memcpy(message.data() + line, &bytes, sizeof(bytes));
      messages.send(all[i].rank, stream, message.first(2 * line + rounded(all[i].bytes)), 0);
    }
    return true;
  }
  void tell(any_mailbox& messages) {
    if (tell_apart(messages)) return;
    const auto message = buffer(round_, peers(round_)).first(record_ != nullptr ? message_bytes(round_) : line);
    std::memcpy(message.data(), largest_.data(), sizeof(numbers));
    auto bytes = sizeof(numbers);
    if (record_ != nullptr && most_words() != 0) {
      // Its own words, and those of the ranks below it.
      bytes = line;
      for (std::size_t j = 0; j < told_of(round_); ++j) {
        auto& words = (*room_)->words[static_cast<std::size_t>(above(rank_, -static_cast<std::int64_t>(j)))];
        const auto room = message.subspan(bytes + line, most_words());
        if (round_ == 0) words = room.first(record_->write_message(room));
        else copy_bytes(room.data(), words.data(), words.size());
        const std::uint64_t n = words.size();
        std::memcpy(message.data() + bytes, &n, sizeof(n));
        bytes += line + rounded(words.size());
      }
    }
    for (std::size_t i = 0; i < peers(round_); ++i, ++under_way_, ++told_)
      messages.send(peer(round_, i, 1), stream, message.first(bytes), round_ << 3U);
  }
  bool take(any_mailbox& messages, std::span<const completion> done) {
    for (const auto& c : done) {
      if ((c.token & 1U) == 0) {
        --under_way_;
        continue;
      }
      const auto k = static_cast<std::size_t>(c.token >> 3U);
      const auto i = static_cast<std::size_t>(c.token >> 1U & 3U);
      if (c.bytes < sizeof(numbers)) throw protocol(peer(k, i, -1), "agrees on something else");
      ++arrived_[k];
      --expected_;
      bytes_[k][i] = c.bytes;
    }
    const bool moved = !done.empty();
    // A round tells what was heard in the rounds before it, so they are taken in order.
    while (round_ < rounds_ && arrived_[round_] == peers(round_)) {
      for (std::size_t i = 0; i < peers(round_); ++i) hear(round_, i);
      if (++round_ < rounds_) tell(messages);
    }
    return moved;
  }
  void hear(std::size_t k, std::size_t i) {
    const auto message = buffer(k, i).first(bytes_[k][i]);
    numbers theirs{};
    std::memcpy(theirs.data(), message.data(), sizeof(theirs));
    for (std::size_t n = 0; n < largest_.size(); ++n) largest_[n] = std::max(largest_[n], theirs[n]);
    const int from = peer(k, i, -1);
    const auto is_share = [](std::int64_t n) { return n >= 0 && static_cast<double>(n) <= whole; };
    if (has_shares_ && same_call() && !(is_share(theirs[2]) && is_share(theirs[3])))
      throw protocol(from, "agrees on a share that is none");
    if (const auto own = largest_own(); !has_shares_ && same_call())
      for (std::size_t n = 0; n < own.size(); ++n)
        if (own[n] > most_own_[n]) throw protocol(from, "agrees on a number that is too large");
    // A rank that has called something else has none.
    for (std::size_t j = 0, at = line; j < told_of(k) && at < message.size(); ++j) {
      std::uint64_t n = 0;
      if (message.size() - at < line) throw protocol(from, "agrees with words that are cut");
      std::memcpy(&n, message.data() + at, sizeof(n));
      at += line;
      if (n > most_words() || rounded(n) > message.size() - at) throw protocol(from, "agrees with words that are cut");
      auto& words = (*room_)->words[static_cast<std::size_t>(above(from, -static_cast<std::int64_t>(j)))];
      if (words.data() == nullptr) words = message.subspan(at, n);  // some come twice, where N is no power of 4
      at += rounded(n);
    }
  }
  static std::size_t rounded(std::size_t bytes) { return (bytes + line - 1) / line * line; }

  own_record* record_ = nullptr;
  std::optional<borrowed<agreement_room>> room_;
  std::span<std::byte> memory_;
  numbers largest_{};
  bool has_shares_ = false;  // and no numbers of the call's own
  std::array<std::uint64_t, 3> most_own_{};
  int rank_, ranks_;
  std::size_t rounds_ = 0, round_ = 0, told_ = 0;   // peers, in the order of rounds
  std::size_t under_way_ = 0, expected_ = 0;        // sends, and receives
  std::array<std::size_t, most_rounds> arrived_{};  // in each round
  std::array<std::array<std::size_t, radix - 1>, most_rounds> bytes_{};
};

}  // namespace omni::detail
