// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../report.hpp"
#include "../call/element_loops.hpp"
#include "../call/stopwatch.hpp"
#include "../call/tensor_codec.hpp"
#include "../compress/draws.hpp"
#include "../compress/largest.hpp"
#include "../compress/norms.hpp"
#include "../compress/planes.hpp"
#include "../compress/shares.hpp"
#include "../detect/mark.hpp"
#include "../memory/copy.hpp"
#include "block_codec.hpp"
#include "code_forms.hpp"
#include "coded_input.hpp"
#include "tensor_pieces.hpp"

namespace omni::detail {

/// A tensor, or a group of them, that is encoded block by block when the engine comes to a block, and decoded when the engine
/// delivers one. In the engine's call a code is one element; where elements travel they are what decoding gives.
template <class T, class C, class Memory>
class coded_tensor final : public tensor_codec, coded_input<T, C, Memory> {
  using input = coded_input<T, C, Memory>;
  using input::blocks, input::load, input::wanted, input::is_chosen;
  using input::codec_, input::memory_, input::pieces_, input::typed_, input::policies_, input::s_;

 public:
  using A = accumulator<T>;
  /// Whether values can travel. Those of half and bfloat16 are longer than the elements.
  static constexpr bool by_values = std::is_same_v<T, A> && block_codec<A, C>::rounds;
  /// @param typed the functions for elements of this type, and the policies that they take.
  coded_tensor(const C& c, const Memory& memory, std::vector<tensor_piece<T>> pieces, std::size_t block, code_form form,
               const element_loops& typed, std::shared_ptr<const void> policies)
      : input(c, memory, std::move(pieces), block, form, typed, std::move(policies)),
        loops_(codec_.is_coded() ? codec_.loops(typed) : typed),
        y_(block),
        sum_(block) {
    if constexpr (chooses_blocks<C>) factor_ = static_cast<A>(c.factor(blocks()));
    auto& s = *s_;
    s.buffers.rewind();
    const auto words = blocks() / 64 + 2;
    s.made.assign(words, 0);
    s.chosen.assign(chooses_blocks<C> ? words : 0, 0);
    s.delivered.assign(Memory::delivers || clears_late() ? words : 0, 0);
    in_ = s.buffers.take(blocks() * codec_.bytes()).data();
    if (scatters()) tails_ = s.buffers.take(pieces_.count() * codec_.plain_bytes()).data();
    else if (lies_in_output()) out_ = reinterpret_cast<std::byte*>(pieces_.begin()->out);
    else out_ = s.buffers.take(blocks() * codec_.result_bytes()).data();
  }

  /// The functions of the call, which are for codes unless elements travel; and what they take.
  [[nodiscard]] const element_loops& loops() const { return loops_; }
  [[nodiscard]] const void* policies() const { return codec_.is_coded() ? &codec_ : policies_.get(); }
  [[nodiscard]] const tensor_pieces<T>& pieces() const { return pieces_; }
  [[nodiscard]] std::span<const std::byte> in() const { return {in_, elements_in_call() * loops_.element_bytes}; }
  [[nodiscard]] std::span<std::byte> out() const { return {out_, elements_in_call() * loops_.result_bytes}; }

  void begin(int rank, int ranks, std::uint32_t call) override {
    thread_local std::uint32_t alone = 0;  // calls of one rank are not counted elsewhere
    ranks_ = ranks;
    const auto& c = codec_.compressor();
    const auto seed = seed_of(c);
    auto shared = seed ? mixed(hash("seed"), *seed) : mixed(hash("call"), ranks == 1 ? ++alone : call);
    shared = mixed(shared, memory_.begin(c, blocks() * codec_.block(), codec_.block()));
    keys_ = {key_of(rank, shared), shared};
    try {
      limit_ = input::choose(keys_);
    } catch (...) {
      failed_ = std::current_exception();  // thrown where the engine comes to a block: it tells the other ranks
    }
  }
  std::uint64_t encode(std::size_t block, std::size_t n) override {
    make(block + n);
    std::uint64_t bits = s_->made[block / 64] >> (block % 64);
    if (block % 64 != 0 && block % 64 + n > 64) bits |= s_->made[block / 64 + 1] << (64 - block % 64);
    return bits & ones(n);
  }
  void encode_all() override {
    const auto first = made_;
    make(blocks());
    for (auto b = first; b < blocks(); ++b)
      if (!has_bit(s_->made, b)) std::memset(in_ + b * codec_.bytes(), 0, bytes_in(b));
  }
  void deliver_by_blocks() override { by_blocks_ = true; }
  void came(std::size_t block, std::size_t n) override {
    if (sends_values_ && !Memory::delivers) return;
    for (; n != 0; ++block, --n) came_one(block);
  }
  void clear(std::size_t block, std::size_t n) override {
    if (by_blocks_ && clears_late()) return;
    for (; n != 0; ++block, --n) clear_one(block);
  }
  bool use_wait() override {
    constexpr std::size_t little = std::size_t{128} << 10U;
    return by_blocks_ && clears_late() && clear_late(std::max<std::size_t>(little / codec_.plain_bytes(), 1));
  }
  [[nodiscard]] bool scatters() const override { return codec_.form() == code_form::codes_once; }
  [[nodiscard]] std::byte* output(std::size_t block) override {
    const auto out = pieces_.out(block);
    // The last block may be shorter than what is folded.
    if (out.size() < codec_.block()) return tails_ + pieces_.piece(block) * codec_.plain_bytes();
    return reinterpret_cast<std::byte*>(out.data());
  }
  [[nodiscard]] std::size_t together(std::size_t block, std::size_t n) const override { return pieces_.whole(block, n); }
  [[nodiscard]] bool packs() const override { return !codec_.is_coded() && keeps_elements<C>; }
  [[nodiscard]] std::size_t tensor_bytes() const override { return pieces_.elements() * sizeof(T); }
  [[nodiscard]] std::size_t decoded_bytes() const override { return pieces_.elements() * sizeof(A); }
  [[nodiscard]] std::optional<plain_tensor> plain() const override {
    // What has been encoded for a record is not made a second time.
    if (!by_values || !codec_.is_coded() || pieces_.count() != 1 || made_ != 0) return {};
    const auto& p = *pieces_.begin();
    return plain_tensor{typed_, policies_.get(), std::as_bytes(std::span(p.in, p.size)),
                        std::as_writable_bytes(std::span(p.out, p.size))};
  }
  void send_values() override { sends_values_ = by_blocks_ = true; }
  [[nodiscard]] std::uint64_t look(std::size_t block, std::size_t n) override {
    expect_begun();
    return wanted(block, n);
  }
  [[nodiscard]] bool values(std::size_t block, [[maybe_unused]] std::byte* to) override {
    expect_begun();
    constexpr std::size_t ahead = 12;  // blocks: those that look() has not seen come from memory while this one is rounded
    if (block + ahead < blocks()) prefetch(std::as_bytes(pieces_.in(block + ahead)));
    if constexpr (by_values) {
      const auto x = pieces_.in(block);
      auto* const at = reinterpret_cast<A*>(to);
      if (x.size() == codec_.block() && !Memory::remembers && at != x.data()) return make_one(block, {at, x.size()});
      if (!make_one(block, y_)) return false;
      std::memcpy(to, y_.data(), x.size_bytes());
      return true;
    }
    return false;
  }
  [[nodiscard]] bool changes_sums() const override { return codec_.form() == code_form::codes; }
  void make_result([[maybe_unused]] std::size_t block, [[maybe_unused]] std::uint64_t ranks, [[maybe_unused]] const std::byte* sum,
                   [[maybe_unused]] std::byte* to) override {
    if constexpr (by_values) {
      auto keys = hash_of_results;
      for (; ranks != 0; ranks &= ranks - 1)
        keys = mixed(keys, key_from(mixed(key_of(std::countr_zero(ranks), keys_.shared), block)));
      const auto n = pieces_.out(block).size();
      const auto* const from = reinterpret_cast<const A*>(sum);
      auto* const out = reinterpret_cast<A*>(to);
      if (n == codec_.block()) return codec_.round_result({from, n}, key_from(keys), {out, n});
      std::copy_n(from, n, sum_.begin());
      std::fill(sum_.begin() + static_cast<std::ptrdiff_t>(n), sum_.end(), A{});
      codec_.round_result(sum_, key_from(keys), y_);
      std::copy_n(y_.begin(), n, out);
    }
  }
  void copy_through() override {
    encode_all();
    for (std::size_t b = 0; b < blocks(); ++b) {
      const void* const from = in_ + b * codec_.bytes();
      if (codec_.is_coded()) codec_.fold({&from, 1}, result(b), 1);
      else std::memcpy(result(b), from, bytes_in(b));
    }
  }
  void settle(report& r) override {
    expect_begun();
    if (by_blocks_ && clears_late()) {
      const stopwatch since;
      while (clear_late(blocks())) {
      }
      publish(stores::streams);
      r.detect_seconds += since.elapsed();
    }
    for (std::size_t b = 0; b < blocks(); ++b) {
      if (!by_blocks_) came_one(b);
      else if (Memory::delivers && !has_bit(s_->delivered, b)) deliver_null(b);
    }
    std::size_t sent = 0;
    for (const auto word : s_->made) sent += static_cast<std::size_t>(std::popcount(word));
    r.tensor_bytes = tensor_bytes();
    r.encoded_bytes = picks_elements<C> ? picked_ * (sizeof(T) + bytes_of_place(codec_.block())) : sent * codec_.bytes();
    const auto of_block = 3 * sizeof(A) + (quantiser<C> ? sizeof(level) : 0);
    r.extra_bytes += s_->bytes() + codec_.kept_bytes() + codec_.block() * of_block;
  }
  void leak() noexcept override { s_.leak(); }

 private:
  // From which follows, with the number of a block, what is drawn for a rank's block.
  static std::uint64_t key_of(int rank, std::uint64_t shared) { return mixed(shared, static_cast<std::uint64_t>(rank) + 1); }
  // Whether results are written into the caller's tensor by the engine, as in any call: of one tensor, as elements.
  [[nodiscard]] bool lies_in_output() const { return !codec_.is_coded() && pieces_.count() == 1; }
  [[nodiscard]] std::size_t elements_in_call() const {
    if (codec_.is_coded()) return blocks();
    return lies_in_output() ? pieces_.elements() : blocks() * codec_.block();
  }
  [[nodiscard]] std::size_t bytes_in(std::size_t block) const {
    return lies_in_output() ? pieces_.in(block).size_bytes() : codec_.bytes();
  }
  // Where the engine writes what is folded of a block.
  [[nodiscard]] std::byte* result(std::size_t block) {
    if (sends_values_) return reinterpret_cast<std::byte*>(pieces_.out(block).data());
    return scatters() ? output(block) : out_ + block * codec_.result_bytes();
  }

  void expect_begun() const {
    if (failed_) std::rethrow_exception(failed_);
  }

  // ---- encoding
  // All blocks below `end`.
  void make(std::size_t end) {
    expect_begun();
    while (made_ < end) {
      const auto n = pieces_.in_one(made_, std::min<std::size_t>(64, end - made_));
      for (auto some = wanted(made_, n); some != 0; some &= some - 1)
        make_one(made_ + static_cast<std::size_t>(std::countr_zero(some)));
      made_ += n;
    }
  }
  // Whether it is sent.
  bool make_one(std::size_t block, std::span<A> values = {}) {
    const auto x = load(block);
    // What nothing has changed has been marked; but for blocks that are chosen whatever they are.
    bool is_sent = is_chosen(block) && ((!Memory::remembers && !chooses_blocks<C>) || largest_magnitude(x) != 0);
    if (is_sent) {
      const auto scaled = times_factor(x);
      const auto key = key_from(mixed(keys_.own, block));
      auto* const to = in_ + block * codec_.bytes();
      if (sends_values_) {
        if constexpr (by_values) codec_.round(scaled, key, values);
      } else if (codec_.is_coded()) {
        codec_.encode(scaled, key, to);
        if constexpr (Memory::remembers) codec_.decode(to, y_);
      } else {
        is_sent = keep(scaled, key) != 0 || !picks_elements<C>;
        const auto n = bytes_in(block) / sizeof(T);
        convert(y_.data(), reinterpret_cast<T*>(to), n);
        // What is remembered is what was sent.
        if constexpr (Memory::remembers && !std::is_same_v<T, A>) convert(reinterpret_cast<const T*>(to), y_.data(), n);
      }
    }
    if (is_sent) set_bit(s_->made, block);
    if constexpr (Memory::remembers) {
      if (!is_sent && !Memory::keeps_unsent) return false;
      if (!is_sent) std::fill(y_.begin(), y_.end(), A{});
      memory_.sent(pieces_.position(block), x.first(pieces_.in(block).size()), y_.data());
    }
    return is_sent;
  }
  // What is left of x where elements travel. How many.
  std::size_t keep(std::span<const A> x, code_key key) {
    std::size_t n = 0;
    if constexpr (magnitude_sparsifier<C>) n = limit_.keep(x, y_);
    else n = codec_.keep(x, key, y_);
    picked_ += n;
    return n;
  }
  std::span<const A> times_factor(std::span<const A> x) {
    if (factor_ == 1) return x;
    for_each_index<32>(x.size(), [to = sum_.data(), from = x.data(), f = factor_](std::size_t i) { to[i] = from[i] * f; });
    return sum_;
  }

  // ---- delivery
  void came_one(std::size_t block) {
    if (!s_->delivered.empty()) set_bit(s_->delivered, block);
    const auto to = pieces_.out(block);
    if (codec_.form() == code_form::codes && !sends_values_) {
      if constexpr (std::is_same_v<T, A>) {
        if (to.size() == codec_.block()) return codec_.decode_result(result(block), to);
      }
      codec_.decode_result(result(block), sum_);
      return convert(sum_.data(), to.data(), to.size());
    }
    const auto* const from = reinterpret_cast<const T*>(result(block));
    if constexpr (Memory::delivers) {
      convert(from, sum_.data(), to.size());
      deliver(block, to);
    } else if (from != to.data()) {
      std::memcpy(static_cast<void*>(to.data()), from, to.size_bytes());
    }
  }
  void deliver(std::size_t block, std::span<T> to) {
    memory_.deliver(pieces_.position(block), std::span(sum_).first(to.size()), ranks_);
    convert(sum_.data(), to.data(), to.size());
  }
  void deliver_null([[maybe_unused]] std::size_t block) {
    if constexpr (Memory::delivers) {
      std::fill(sum_.begin(), sum_.end(), A{});
      deliver(block, pieces_.out(block));
    }
  }
  void clear_one(std::size_t block) {
    auto* const at = result(block);
    const auto to = pieces_.out(block);
    // What is not coded may be unpacked there, where all is taken to be null.
    if (!codec_.is_coded() || !by_blocks_) std::memset(at, 0, lies_in_output() ? bytes_in(block) : codec_.result_bytes());
    const bool is_done = lies_in_output() && at == static_cast<void*>(to.data());
    if (by_blocks_ && !Memory::delivers && !is_done) std::memset(static_cast<void*>(to.data()), 0, to.size_bytes());
  }

  // Who knows beforehand which blocks there are need not look at the others: they are made zero while there is nothing else to do,
  // but for those that other ranks have sent by then.
  [[nodiscard]] bool clears_late() const {
    return chooses_blocks<C> && !Memory::remembers && !Memory::delivers && !packs() && !sends_values_;
  }
  // Of the blocks that have been encoded, or need not be, the next n at most. False if there are none.
  bool clear_late(std::size_t n) {
    const auto end = std::min(made_, cleared_ + n);
    if (cleared_ == end) return false;
    while (cleared_ != end) {
      const auto first = cleared_;
      const auto more = pieces_.in_one(first, end - first);
      while (cleared_ != first + more && !has_bit(s_->made, cleared_) && !has_bit(s_->delivered, cleared_)) ++cleared_;
      if (cleared_ == first) {
        ++cleared_;
        continue;
      }
      clear(pieces_.out_of_one(first, cleared_ - first));
    }
    return true;
  }
  void clear(std::span<T> to) const {
    auto* const p = reinterpret_cast<std::byte*>(to.data());
    if (goes_past_caches(tensor_bytes())) fill_out(p, to.size_bytes(), std::byte{0});
    else std::memset(p, 0, to.size_bytes());
  }

  element_loops loops_;
  bool by_blocks_ = false, sends_values_ = false;
  A factor_ = 1;
  int ranks_ = 1;
  choice_keys keys_;
  magnitude_limit<A> limit_;
  std::exception_ptr failed_;  // before there were any codes
  std::byte *in_ = nullptr, *out_ = nullptr, *tails_ = nullptr;
  std::size_t made_ = 0;     // blocks below have been encoded
  std::size_t cleared_ = 0;  // blocks below have been made zero, or were not to be
  std::size_t picked_ = 0;   // elements, where elements are chosen and travel
  std::vector<A> y_, sum_;
};

}  // namespace omni::detail
