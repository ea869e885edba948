// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "../call/element_loops.hpp"
#include "../compress/draws.hpp"
#include "../compress/largest.hpp"
#include "../compress/norms.hpp"
#include "../detect/mark.hpp"
#include "../memory/workspace.hpp"
#include "block_codec.hpp"
#include "code_forms.hpp"
#include "tensor_pieces.hpp"

namespace omni::detail {

/// Memory of an encoded tensor, kept from call to call.
struct codec_state {
  static constexpr std::size_t keep_bytes = std::size_t{256} << 20U;  ///< most of it is touched in each call
  packet_buffers buffers;
  std::vector<std::uint64_t> chosen, made, delivered;  ///< a bit for each block
  std::vector<double> norms;
  magnitude_search largest;
  [[nodiscard]] std::size_t bytes() const {
    const auto bits = chosen.capacity() + made.capacity() + delivered.capacity();
    // Who chooses among norms has a copy of them (detail/compress/shares.hpp).
    return buffers.bytes() + bits * sizeof(std::uint64_t) + 2 * norms.capacity() * sizeof(double) + largest.bytes();
  }
};

/// What there is to encode of a tensor, or of a group of them: block by block the elements, with what a memory adds to them, and
/// which blocks may have to be sent.
template <class T, class C, class Memory>
class coded_input {
 protected:
  using A = accumulator<T>;
  static_assert(
      !Memory::remembers || std::is_same_v<typename Memory::value_type, A>,
      "omni: error_feedback and diana keep float unless told: for tensors of double write their second argument, as in diana<C, "
      "double>, and for float, half and bfloat16 none");
  static_assert(!Memory::delivers || std::is_same_v<T, A>,
                "omni: diana is for float and double: h needs sums that are not rounded");

  coded_input(const C& c, const Memory& memory, std::vector<tensor_piece<T>> pieces, std::size_t block, code_form form,
              const element_loops& typed, std::shared_ptr<const void> policies)
      : codec_(c, block, form, std::type_identity<T>()),
        memory_(memory),
        pieces_(std::move(pieces), block),
        typed_(&typed),
        policies_(std::move(policies)),
        x_(block) {}

  [[nodiscard]] std::size_t blocks() const { return pieces_.blocks(); }
  /// Chooses the blocks that are sent, where the compressor chooses them. From which magnitude on elements are kept, where it goes
  /// by that.
  magnitude_limit<A> choose(const choice_keys& keys) {
    if constexpr (chooses_blocks<C>) {
      auto& norms = s_->norms;
      norms.clear();
      if constexpr (is_by_norm<C>()) {
        norms.resize(blocks());
        for (std::size_t b = 0; b < blocks(); ++b)
          norms[b] = Memory::remembers ? norm_to_compare(load(b)) : norm_to_compare(pieces_.in(b));
      }
      codec_.compressor().choose(norms, blocks(), keys, s_->chosen);
    }
    if constexpr (magnitude_sparsifier<C>) return find_limit();
    else return {};
  }
  /// What there is to encode of a block, and zeros behind it.
  std::span<const A> load(std::size_t block) {
    const auto from = pieces_.in(block);
    if constexpr (std::is_same_v<T, A> && !Memory::remembers) {
      if (from.size() == codec_.block()) return from;
    }
    convert(from.data(), x_.data(), from.size());
    std::fill(x_.begin() + static_cast<std::ptrdiff_t>(from.size()), x_.end(), A{});
    if constexpr (Memory::remembers) memory_.load(pieces_.position(block), std::span(x_).first(from.size()));
    return x_;
  }
  /// Of n blocks of one tensor, a bit for each that may have to be sent.
  [[nodiscard]] std::uint64_t wanted(std::size_t first, std::size_t n) const {
    auto some = ones(n);
    if constexpr (chooses_blocks<C> && !Memory::keeps_unsent) {
      for (std::size_t i = 0; i < n; ++i)
        if (!has_bit(s_->chosen, first + i)) some &= ~(std::uint64_t{1} << i);
    } else if constexpr (!Memory::remembers) {
      some = mark(pieces_.blocks_of_one(first, n));
    }
    return some;
  }
  [[nodiscard]] bool is_chosen([[maybe_unused]] std::size_t block) const {
    if constexpr (chooses_blocks<C>) return has_bit(s_->chosen, block);
    else return true;
  }

  block_codec<A, C> codec_;
  Memory memory_;
  tensor_pieces<T> pieces_;
  const element_loops* typed_;  ///< for elements of this type
  std::shared_ptr<const void> policies_;
  borrowed<codec_state> s_;

 private:
  magnitude_limit<A> find_limit() {
    auto& largest = s_->largest;
    const auto samples = std::min<std::size_t>(64, blocks()), each = std::min<std::size_t>(256, codec_.block());
    largest.begin();
    for (std::size_t i = 0; i < samples; ++i) {
      const auto stride = blocks() / samples, at = mixed(hash("sample"), i);
      largest.sample(load(i * stride + at % stride).subspan((at >> 32U) % (codec_.block() - each + 1), each));
    }
    largest.guess(codec_.compressor().kept(pieces_.elements()), pieces_.elements());
    do {
      largest.begin_pass();
      for (std::size_t b = 0; b < blocks(); ++b) largest.collect(load(b));
    } while (!largest.is_enough());
    return largest.template limit<A>();
  }
  [[nodiscard]] std::uint64_t mark(std::span<const T> run) const {
    if (typed_->mark != nullptr) return typed_->mark(policies_.get(), run.data(), run.size(), codec_.block());
    return mark_blocks(reinterpret_cast<const std::byte*>(run.data()), run.size_bytes(), codec_.plain_bytes(),
                       null_element(codec_.null(), sizeof(T)));
  }

  std::vector<A> x_;  // a block
};

}  // namespace omni::detail
