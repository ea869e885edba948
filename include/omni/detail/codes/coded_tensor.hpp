// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../concepts.hpp"
#include "../../element.hpp"
#include "../../report.hpp"
#include "../call/element_loops.hpp"
#include "../call/tensor_codec.hpp"
#include "../compress/draws.hpp"
#include "../compress/norms.hpp"
#include "../detect/mark.hpp"
#include "../memory/workspace.hpp"
#include "code_forms.hpp"

namespace omni::detail {

/// Memory of an encoded tensor, kept from call to call.
struct codec_state {
  static constexpr std::size_t keep_bytes = std::size_t{256} << 20U;  ///< most of it is touched in each call
  packet_buffers buffers;
  std::vector<std::uint64_t> chosen, made, delivered;  ///< a bit for each block
  std::vector<double> squares;
  [[nodiscard]] std::size_t bytes() const { return buffers.bytes() + squares.capacity() * sizeof(double); }
};

/// Copies n values, of one type or the other.
template <class From, class To>
void convert(const From* from, To* to, std::size_t n) {
  if constexpr (std::is_same_v<From, To>) std::memcpy(to, from, n * sizeof(To));
  else run_wide([&] { for_each_index<32>(n, [from, to](std::size_t i) { to[i] = static_cast<To>(from[i]); }); });
}

/// A tensor's part in memory: the whole, or one of a group.
template <class T>
struct tensor_piece {
  const T* in = nullptr;
  T* out = nullptr;
  std::size_t size = 0;
  std::size_t position = 0, first_block = 0;  ///< of those before it, the elements and the blocks
};

/// A tensor, or a group of them, as codes: each block is encoded when the engine comes to it, and the results that it delivers are
/// decoded. In the engine's call a code is one element. Where elements travel they are what decoding gives.
template <class T, class C, class Memory>
class coded_tensor final : public tensor_codec {
 public:
  using A = accumulator<T>;
  using piece = tensor_piece<T>;
  static_assert(!Memory::remembers || std::is_same_v<typename Memory::value_type, A>,
                "omni: error_feedback and diana keep float; for tensors of double write diana<C, double>, for others leave it out");

  static_assert(!Memory::delivers || std::is_same_v<T, A>,
                "omni: diana is for float and double: h needs sums that are not rounded");

  /// @param typed the functions for elements of this type, and the policies that they take.
  coded_tensor(const C& c, const Memory& memory, std::vector<piece> pieces, std::size_t block, code_form form,
               const element_loops& typed, std::shared_ptr<const void> policies)
      : compressor_(c),
        memory_(memory),
        pieces_(std::move(pieces)),
        block_(block),
        form_(form),
        typed_(&typed),
        policies_(std::move(policies)) {
    for (auto& p : pieces_) {
      p.position = elements_;
      p.first_block = blocks_;
      elements_ += p.size;
      blocks_ += (p.size + block_ - 1) / block_;
    }
    code_ = bytes_of(compressor_);
    plain_ = block_ * sizeof(T);
    scatters_ = form_ == code_form::codes_once;
    zero_.assign(std::max({code_, plain_, bytes_of(for_results(compressor_))}), std::byte{0});
    if constexpr (chooses_blocks<C>) factor_ = static_cast<A>(compressor_.factor(blocks_));
    for (auto* const room : {&x_, &y_, &sum_}) room->assign(block_, A{});
    make_loops();
    make_room();
  }

  /// The functions of the call, which are for codes unless elements travel.
  [[nodiscard]] const element_loops& loops() const { return loops_; }
  [[nodiscard]] const void* policies() const { return is_coded() ? this : policies_.get(); }
  [[nodiscard]] std::span<const piece> pieces() const { return pieces_; }
  [[nodiscard]] std::span<const std::byte> in() const { return {in_, blocks_in_call() * loops_.element_bytes}; }
  [[nodiscard]] std::span<std::byte> out() const { return {out_, blocks_in_call() * loops_.result_bytes}; }

  void begin(int rank, int ranks, std::uint32_t call) override {
    thread_local std::uint32_t alone = 0;  // calls of one rank are not counted elsewhere
    ranks_ = ranks;
    const auto seed = seed_of(compressor_);
    auto shared = seed ? mixed(hash("seed"), *seed) : mixed(hash("call"), ranks == 1 ? ++alone : call);
    shared = mixed(shared, memory_.begin(compressor_, blocks_ * block_, block_));
    keys_ = {mixed(shared, static_cast<std::uint64_t>(rank) + 1), shared};
    choose();
  }
  std::uint64_t encode(std::size_t block, std::size_t n) override {
    make(block + n);
    std::uint64_t bits = s_->made[block / 64] >> (block % 64);
    if (block % 64 != 0 && block % 64 + n > 64) bits |= s_->made[block / 64 + 1] << (64 - block % 64);
    return bits & ones(n);
  }
  void encode_all() override {
    const auto first = made_;
    make(blocks_);
    for (auto b = first; b < blocks_; ++b)
      if (!has_bit(s_->made, b)) std::memset(in_ + b * stride(), 0, bytes_in(b));
  }
  void deliver_by_blocks() override { by_blocks_ = true; }
  void came(std::size_t block, std::size_t n) override {
    for (; n != 0; ++block, --n) came_one(block);
  }
  void clear(std::size_t block, std::size_t n) override {
    for (; n != 0; ++block, --n) clear_one(block);
  }
  [[nodiscard]] bool scatters() const override { return scatters_; }
  [[nodiscard]] std::byte* output(std::size_t block) override {
    const auto& p = piece_of(block);
    const auto first = (block - p.first_block) * block_;
    // The last block may be shorter than what is folded.
    if (p.size - first < block_) return tails_ + static_cast<std::size_t>(&p - pieces_.data()) * plain_;
    return reinterpret_cast<std::byte*>(p.out + first);
  }
  [[nodiscard]] std::size_t together(std::size_t block, std::size_t n) const override {
    const auto& p = piece_of(block);
    const auto whole = p.first_block + p.size / block_;
    return block < whole ? std::min(n, whole - block) : 1;
  }
  [[nodiscard]] bool packs() const override { return !is_coded() && keeps_elements<C>; }
  [[nodiscard]] std::size_t tensor_bytes() const override { return elements_ * sizeof(T); }
  void copy_through() override {
    encode_all();
    for (std::size_t b = 0; b < blocks_; ++b) {
      const void* const from = in_ + b * stride();
      auto* const to = scatters_ ? output(b) : out_ + b * result_stride();
      if (is_coded()) fold(this, {&from, 1}, false, to, 1);
      else std::memcpy(to, from, bytes_in(b));
    }
  }
  void settle(report& r) override {
    for (std::size_t b = 0; b < blocks_; ++b) {
      if (!by_blocks_) came_one(b);
      else if (Memory::delivers && !has_bit(s_->delivered, b)) deliver_null(b);
    }
    std::size_t sent = 0;
    for (const auto word : s_->made) sent += static_cast<std::size_t>(std::popcount(word));
    r.tensor_bytes = tensor_bytes();
    r.encoded_bytes = element_sparsifier<C> ? picked_ * (sizeof(T) + bytes_of_place()) : sent * (is_coded() ? code_ : plain_);
    r.extra_bytes += s_->bytes();
  }
  void leak() noexcept override { s_.leak(); }

 private:
  [[nodiscard]] bool is_coded() const { return form_ != code_form::elements; }
  [[nodiscard]] bool is_one_tensor() const { return pieces_.size() == 1; }
  // Elements of the tensor, where it is one and elements travel.
  [[nodiscard]] std::size_t blocks_in_call() const {
    if (is_coded()) return blocks_;
    return is_one_tensor() ? elements_ : blocks_ * block_;
  }
  // Of what this rank gives, and of what is folded, from block to block.
  [[nodiscard]] std::size_t stride() const { return is_coded() ? code_ : plain_; }
  [[nodiscard]] std::size_t result_stride() const { return is_coded() ? loops_.result_bytes : plain_; }
  [[nodiscard]] std::size_t bytes_in(std::size_t block) const {
    return is_coded() || !is_one_tensor() ? stride() : size_of(block) * sizeof(T);
  }
  template <class Which>
  [[nodiscard]] std::size_t bytes_of(const Which& which) const {
    if constexpr (element_sparsifier<Which>) {
      return which.kept(block_) * (sizeof(T) + bytes_of_place());
    } else if constexpr (quantiser<Which>) {
      return sizeof(code_key) + which.template bytes<A>(block_);
    } else {
      return block_ * sizeof(T);
    }
  }
  [[nodiscard]] std::size_t bytes_of_place() const { return block_ <= 256 ? 1 : block_ <= 65536 ? 2 : 4; }
  [[nodiscard]] const piece& piece_of(std::size_t block) const {
    if (is_one_tensor()) return pieces_[0];
    const auto after =
        std::upper_bound(pieces_.begin(), pieces_.end(), block, [](std::size_t b, const piece& p) { return b < p.first_block; });
    return *std::prev(after);  // of pieces without blocks the last
  }
  [[nodiscard]] std::size_t size_of(std::size_t block) const {
    const auto& p = piece_of(block);
    return std::min(block_, p.size - (block - p.first_block) * block_);
  }

  void make_loops() {
    loops_ = *typed_;
    if (!is_coded()) return;
    if constexpr (quantiser<C>) {
      loops_ = element_loops{};
      loops_.type = typed_->type;
      loops_.type_on_wire = short_name<48>(typed_->type);
      loops_.operation_on_wire = short_name<40>(C::name);
      loops_.element_bytes = code_;
      loops_.result_bytes = form_ == code_form::codes ? bytes_of(for_results(compressor_)) : plain_;
      const bool alike = form_ == code_form::codes && has_codes_of_results<C>();
      loops_.skips = loops_.equal_blocks = true;
      loops_.commutes = loops_.two_levels = alike;
      loops_.partitioner = hash("codes");
      loops_.fold = &coded_tensor::fold;
      loops_.null = [](const void* p) -> const void* { return static_cast<const coded_tensor*>(p)->zero_.data(); };
      loops_.count = [](const void* /*p*/, std::size_t n) { return n; };
      loops_.largest = [](const void* /*p*/, std::size_t n) { return std::min<std::size_t>(n, 1); };
      loops_.uniform = [](const void* /*p*/) { return std::size_t{1}; };
      loops_.mark = [](const void* p, const void* run, std::size_t n, std::size_t block) {
        return static_cast<const coded_tensor*>(p)->mark_codes(static_cast<const std::byte*>(run), n, block);
      };
    }
  }
  // Codes of which at least one in a block is not null.
  [[nodiscard]] std::uint64_t mark_codes(const std::byte* run, std::size_t n, std::size_t block) const {
    std::uint64_t marks = 0;
    for (std::size_t i = 0; i < n; ++i) marks |= std::uint64_t{key_at(run + i * code_) != 0} << (i / block);
    return marks;
  }
  void make_room() {
    auto& s = *s_;
    s.buffers.rewind();
    const auto words = blocks_ / 64 + 2;
    s.made.assign(words, 0);
    s.chosen.assign(chooses_blocks<C> ? words : 0, 0);
    s.delivered.assign(Memory::delivers ? words : 0, 0);
    in_ = s.buffers.take(blocks_ * stride()).data();
    if (scatters_) tails_ = s.buffers.take(pieces_.size() * plain_).data();
    else if (is_coded() || !is_one_tensor()) out_ = s.buffers.take(blocks_ * result_stride()).data();
    else out_ = reinterpret_cast<std::byte*>(pieces_[0].out);
  }

  // ---- encoding
  void choose() {
    if constexpr (chooses_blocks<C>) {
      auto& squares = s_->squares;
      squares.clear();
      if constexpr (is_by_norm<C>()) {
        squares.resize(blocks_);
        for (std::size_t b = 0; b < blocks_; ++b) squares[b] = Memory::remembers ? square_of(load(b)) : square_of(given(b));
      }
      compressor_.choose(squares, blocks_, keys_, s_->chosen);
    }
  }
  [[nodiscard]] std::span<const T> given(std::size_t block) const {
    const auto& p = piece_of(block);
    const auto first = (block - p.first_block) * block_;
    return {p.in + first, std::min(block_, p.size - first)};
  }
  // What there is to encode of a block, and zeros behind it.
  std::span<const A> load(std::size_t block) {
    const auto from = given(block);
    if constexpr (std::is_same_v<T, A> && !Memory::remembers) {
      if (from.size() == block_) return from;
    }
    convert(from.data(), x_.data(), from.size());
    std::fill(x_.begin() + static_cast<std::ptrdiff_t>(from.size()), x_.end(), A{});
    if constexpr (Memory::remembers) memory_.load(position_of(block), std::span(x_).first(from.size()));
    return x_;
  }
  [[nodiscard]] std::size_t position_of(std::size_t block) const {
    const auto& p = piece_of(block);
    return p.position + (block - p.first_block) * block_;
  }
  // All blocks below `end`.
  void make(std::size_t end) {
    while (made_ < end) {
      const auto& p = piece_of(made_);
      const auto first = (made_ - p.first_block) * block_;
      const auto n = std::min({std::size_t{64}, end - made_, (p.size - first + block_ - 1) / block_});
      auto wanted = ones(n);
      if constexpr (chooses_blocks<C> && !Memory::keeps_unsent) {
        for (std::size_t i = 0; i < n; ++i)
          if (!has_bit(s_->chosen, made_ + i)) wanted &= ~(std::uint64_t{1} << i);
      } else if constexpr (!Memory::remembers) {
        wanted = mark(p.in + first, std::min(n * block_, p.size - first));
      }
      for (; wanted != 0; wanted &= wanted - 1) make_one(made_ + static_cast<std::size_t>(std::countr_zero(wanted)));
      made_ += n;
    }
  }
  [[nodiscard]] std::uint64_t mark(const T* run, std::size_t n) const {
    if (typed_->mark != nullptr) return typed_->mark(policies_.get(), run, n, block_);
    return mark_blocks(reinterpret_cast<const std::byte*>(run), n * sizeof(T), plain_, null_element(zero_.data(), sizeof(T)));
  }
  void make_one(std::size_t block) {
    const auto x = load(block);
    // What nothing has changed has been marked; but for blocks that are chosen whatever they are.
    const bool is_sent = is_chosen(block) && ((!Memory::remembers && !chooses_blocks<C>) || largest_magnitude(x) != 0);
    if (is_sent) {
      const auto scaled = times_factor(x);
      const auto key = key_from(mixed(keys_.own, block));
      auto* const to = in_ + block * stride();
      if (is_coded()) {
        encode_with(compressor_, scaled, key, to);
        if constexpr (Memory::remembers) decode_with(compressor_, to, y_);
      } else {
        keep(scaled, key);
        const auto n = bytes_in(block) / sizeof(T);
        convert(y_.data(), reinterpret_cast<T*>(to), n);
        // What is remembered is what was sent.
        if constexpr (Memory::remembers && !std::is_same_v<T, A>) convert(reinterpret_cast<const T*>(to), y_.data(), n);
      }
      set_bit(s_->made, block);
    }
    if constexpr (Memory::remembers) {
      if (!is_sent && !Memory::keeps_unsent) return;
      if (!is_sent) std::fill(y_.begin(), y_.end(), A{});
      memory_.sent(position_of(block), x.first(size_of(block)), y_.data());
    }
  }
  [[nodiscard]] bool is_chosen([[maybe_unused]] std::size_t block) const {
    if constexpr (chooses_blocks<C>) return has_bit(s_->chosen, block);
    else return true;
  }
  std::span<const A> times_factor(std::span<const A> x) {
    if constexpr (chooses_blocks<C>) {
      if (factor_ == 1) return x;
      for_each_index<32>(x.size(), [to = sum_.data(), from = x.data(), f = factor_](std::size_t i) { to[i] = from[i] * f; });
      return sum_;
    } else {
      return x;
    }
  }
  // What is left of a block where elements travel: in y.
  void keep(std::span<const A> x, std::uint32_t key) {
    if constexpr (quantiser<C>) {
      code_room_.resize(code_);
      compressor_.encode(x, key, code_room_.data());
      compressor_.decode(code_room_.data(), key, std::span<A>(y_));
    } else if constexpr (element_sparsifier<C>) {
      places_.resize(block_);
      const auto n = compressor_.pick(x, block_, key, std::span(places_));
      picked_ += n;
      const auto times = static_cast<A>(compressor_.factor(block_));
      std::fill(y_.begin(), y_.end(), A{});
      for (std::size_t i = 0; i < n; ++i) y_[places_[i]] = x[places_[i]] * times;
    } else {
      std::copy(x.begin(), x.end(), y_.begin());
    }
  }
  template <class Which>
  static void encode_with(const Which& which, std::span<const A> x, code_key key, std::byte* to) {
    std::memcpy(to, &key, sizeof(key));
    if constexpr (quantiser<Which>) which.encode(x, key, to + sizeof(key));
  }
  [[nodiscard]] static code_key key_at(const std::byte* code) {
    code_key key = 0;
    std::memcpy(&key, code, sizeof(key));
    return key;
  }
  template <class Which>
  static void decode_with(const Which& which, const std::byte* code, std::span<A> to) {
    const auto key = key_at(code);
    if (key == 0) std::fill(to.begin(), to.end(), A{});
    else if constexpr (quantiser<Which>) which.decode(code + sizeof(key), key, to);
  }

  // ---- folding
  // Decoded and summed up in the order of the ranks; encoded again with a key that follows from theirs, where results are codes.
  static void fold(const void* p, std::span<const void* const> sources, bool /*from_identity*/, void* out, std::size_t n) {
    const auto& self = *static_cast<const coded_tensor*>(p);
    thread_local std::vector<A> sum, one;
    sum.resize(self.block_);
    one.resize(self.block_);
    auto* to = static_cast<std::byte*>(out);
    for (std::size_t code = 0; code < n; ++code, to += self.loops_.result_bytes) {
      auto keys = hash("results");
      bool is_null = true;
      for (std::size_t k = 0; k < sources.size(); ++k) {
        const auto* const from = static_cast<const std::byte*>(sources[k]) + code * self.code_;
        const auto key = key_at(from);
        keys = mixed(keys, key);
        is_null = is_null && key == 0;
        decode_with(self.compressor_, from, k == 0 ? sum : one);
        if (k != 0)
          run_wide([&] { for_each_index<32>(self.block_, [s = sum.data(), o = one.data()](std::size_t i) { s[i] += o[i]; }); });
      }
      if (self.form_ == code_form::codes_once) convert(sum.data(), reinterpret_cast<T*>(to), self.block_);
      else if (is_null) std::memset(to, 0, self.loops_.result_bytes);
      else encode_with(for_results(self.compressor_), sum, key_from(keys), to);
    }
  }

  // ---- delivery
  void came_one(std::size_t block) {
    if constexpr (Memory::delivers) set_bit(s_->delivered, block);
    const auto n = size_of(block);
    auto* const to = result_of(block);
    if (form_ == code_form::codes) {
      const auto* const code = out_ + block * result_stride();
      if constexpr (std::is_same_v<T, A> && !Memory::delivers) {
        if (n == block_) return decode_with(for_results(compressor_), code, std::span<A>(to, n));
      }
      decode_with(for_results(compressor_), code, sum_);
      deliver(block, to, n);
      return;
    }
    const auto* const from = reinterpret_cast<const T*>(scatters_ ? output(block) : out_ + block * result_stride());
    if constexpr (Memory::delivers) {
      convert(from, sum_.data(), n);
      deliver(block, to, n);
    } else if (from != to) {
      std::memcpy(static_cast<void*>(to), from, n * sizeof(T));
    }
  }
  // The block of the caller's output.
  [[nodiscard]] T* result_of(std::size_t block) const {
    const auto& p = piece_of(block);
    return p.out + (block - p.first_block) * block_;
  }
  void deliver([[maybe_unused]] std::size_t block, T* to, std::size_t n) {
    if constexpr (Memory::delivers) memory_.deliver(position_of(block), std::span(sum_).first(n), ranks_);
    convert(sum_.data(), to, n);
  }
  void deliver_null(std::size_t block) {
    std::fill(sum_.begin(), sum_.end(), A{});
    deliver(block, result_of(block), size_of(block));
  }
  void clear_one(std::size_t block) {
    // What is not coded may be unpacked there, where all is taken to be null.
    if (!is_coded() || !by_blocks_) {
      auto* const raw = scatters_ ? output(block) : out_ + block * result_stride();
      std::memset(raw, 0, is_coded() || !is_one_tensor() ? result_stride() : bytes_in(block));
    }
    if (by_blocks_ && !Memory::delivers) std::memset(static_cast<void*>(result_of(block)), 0, size_of(block) * sizeof(T));
  }

  C compressor_;
  Memory memory_;
  std::vector<piece> pieces_;
  std::size_t block_, blocks_ = 0, elements_ = 0;  // elements of a block; all blocks and elements
  code_form form_;
  const element_loops* typed_;
  std::shared_ptr<const void> policies_;
  element_loops loops_;
  std::size_t code_ = 0, plain_ = 0;  // bytes of a block as a code and as elements
  bool scatters_ = false, by_blocks_ = false;
  A factor_ = 1;
  int ranks_ = 1;
  choice_keys keys_;
  borrowed<codec_state> s_;
  std::byte *in_ = nullptr, *out_ = nullptr, *tails_ = nullptr;
  std::size_t made_ = 0;    // blocks below have been encoded
  std::size_t picked_ = 0;  // elements, where elements are chosen and travel
  std::vector<A> x_, y_, sum_;
  std::vector<std::uint32_t> places_;
  std::vector<std::byte> code_room_, zero_;
};

}  // namespace omni::detail
