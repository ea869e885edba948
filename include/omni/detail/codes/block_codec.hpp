// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "../../concepts.hpp"
#include "../../element.hpp"
#include "../call/convert.hpp"
#include "../call/element_loops.hpp"
#include "../call/vectors.hpp"
#include "../compress/draws.hpp"
#include "code_forms.hpp"

namespace omni::detail {

/// A code begins with the key from which its random numbers are drawn; 0 says that it is null.
using code_key = std::uint32_t;

/// The key of a result follows from this and the keys of the codes that were folded, in the order of the ranks.
inline constexpr auto hash_of_results = hash("results");

/// What a server has to know to fold codes: how many elements a block has, whether results are codes, and the quantiser's number.
/// In the signature of a call it stands for the operation's state.
struct code_terms {
  std::uint32_t block = 0, parameters = 0;  ///< the second has up to 31 bits
  bool once = false;                        ///< codes go one way, results are elements

  [[nodiscard]] std::uint64_t packed() const { return std::uint64_t{block} << 32U | (once ? 0x80000000U : 0U) | parameters; }
  static code_terms unpacked(std::uint64_t state) {
    return {static_cast<std::uint32_t>(state >> 32U), static_cast<std::uint32_t>(state & 0x7fffffffU), (state >> 31U & 1U) != 0};
  }
};

/// What a compressor makes of one block of elements, which are added as A, and of the blocks of all ranks: codes of one size, which
/// are the elements of a call; or the elements that are left.
template <class A, class C>
class block_codec {
 public:
  /// Of elements of type T.
  template <class T>
  block_codec(const C& c, std::size_t block, code_form form, std::type_identity<T> /*elements*/)
      : compressor_(c),
        block_(block),
        plain_bytes_(block * sizeof(T)),
        form_(form),
        write_([](const A* from, std::byte* to, std::size_t n) { convert(from, reinterpret_cast<T*>(to), n); }),
        null_(std::max(bytes_of(c), plain_bytes())),
        room_(block),
        sum_(block) {
    static_assert(std::is_same_v<accumulator<T>, A>);
  }

  [[nodiscard]] const C& compressor() const { return compressor_; }
  [[nodiscard]] code_form form() const { return form_; }
  [[nodiscard]] bool is_coded() const { return form_ != code_form::elements; }
  [[nodiscard]] std::size_t block() const { return block_; }
  /// Of a block as it is.
  [[nodiscard]] std::size_t plain_bytes() const { return plain_bytes_; }
  /// Of what a rank gives of a block, and of what is made of all that.
  [[nodiscard]] std::size_t bytes() const { return is_coded() ? bytes_of(compressor_) : plain_bytes(); }
  [[nodiscard]] std::size_t result_bytes() const {
    return form_ == code_form::codes ? bytes_of(for_results(compressor_)) : plain_bytes();
  }
  /// Memory that this takes.
  [[nodiscard]] std::size_t kept_bytes() const {
    return null_.size() + (room_.size() + sum_.size()) * sizeof(A) + places_.capacity() * sizeof(std::uint32_t) + code_.capacity();
  }
  /// Zeros of either size.
  [[nodiscard]] const std::byte* null() const { return null_.data(); }

  /// Writes x as a code.
  void encode(std::span<const A> x, code_key key, std::byte* to) const { encode_with(compressor_, x, key, to); }
  void decode(const std::byte* code, std::span<A> to) const { decode_with(compressor_, code, to); }
  void decode_result(const std::byte* code, std::span<A> to) const { decode_with(for_results(compressor_), code, to); }
  /// Whether values can be made without codes.
  static constexpr bool rounds = can_round<C, A>;
  /// What decoding x's code gives. `to` is elsewhere.
  void round(std::span<const A> x, code_key key, std::span<A> to) const requires rounds { compressor_.round(x, key, to); }
  void round_result(std::span<const A> x, code_key key, std::span<A> to) const requires rounds {
    for_results(compressor_).round(x, key, to);
  }
  /// Where elements travel: what is left of x. How many elements, of a sparsifier that chooses them.
  std::size_t keep(std::span<const A> x, code_key key, std::span<A> left) {
    if constexpr (quantiser<C>) {
      code_.resize(bytes_of(compressor_));
      encode(x, key, code_.data());
      decode(code_.data(), left);
    } else if constexpr (element_sparsifier<C>) {
      places_.resize(block_);
      const auto n = compressor_.pick(x, block_, key, std::span(places_));
      const auto times = static_cast<A>(compressor_.factor(block_));
      std::fill(left.begin(), left.end(), A{});
      for (std::size_t i = 0; i < n; ++i) left[places_[i]] = x[places_[i]] * times;
      return n;
    } else {
      std::copy(x.begin(), x.end(), left.begin());
    }
    return 0;
  }
  /// The functions of a call whose elements are codes; their `policies` is this. Precondition: is_coded().
  [[nodiscard]] element_loops loops(const element_loops& typed) const {
    element_loops l;
    l.type = typed.type;
    l.type_on_wire = typed.type_on_wire;
    if constexpr (is_served<C>) {
      using quantising = std::remove_cvref_t<decltype(for_results(compressor_))>;
      l.operation_on_wire = short_name<40>(quantising::name);
      l.operation_state = [](const void* p) { return of(p).terms().packed(); };
    } else {
      l.operation_on_wire = short_name<40>(C::name);
    }
    l.element_bytes = bytes();
    l.result_bytes = result_bytes();
    l.skips = l.equal_blocks = true;
    l.commutes = l.two_levels = form_ == code_form::codes && has_codes_of_results<C>();
    l.partitioner = hash("codes");
    l.fold = [](const void* p, std::span<const void* const> sources, bool /*from_identity*/, void* out, std::size_t n) {
      of(p).fold(sources, static_cast<std::byte*>(out), n);
    };
    l.mark = [](const void* p, const void* run, std::size_t n, std::size_t block) {
      return of(p).mark(static_cast<const std::byte*>(run), n, block);
    };
    l.null = [](const void* p) -> const void* { return of(p).null(); };
    l.count = [](const void* /*p*/, std::size_t n) { return n; };
    l.largest = [](const void* /*p*/, std::size_t n) { return std::min<std::size_t>(n, 1); };
    l.uniform = [](const void* /*p*/) { return std::size_t{1}; };
    return l;
  }
  [[nodiscard]] code_terms terms() const requires is_served<C> {
    return {static_cast<std::uint32_t>(block_), for_results(compressor_).parameters(), form_ == code_form::codes_once};
  }
  /// Folds n codes of each source in the order of the sources: decoded and summed up; encoded again with a key that follows from
  /// theirs, where results are codes.
  void fold(std::span<const void* const> sources, std::byte* to, std::size_t n) const {
    for (std::size_t code = 0; code < n; ++code, to += result_bytes()) {
      auto keys = hash_of_results;
      bool is_null = true;
      for (std::size_t k = 0; k < sources.size(); ++k) {
        const auto* const from = static_cast<const std::byte*>(sources[k]) + code * bytes();
        const auto key = key_at(from);
        if (key != 0) keys = mixed(keys, key), is_null = false;  // one that is null may come or not
        decode(from, k == 0 ? sum_ : room_);
        if (k != 0)
          run_wide([&] { for_each_index<32>(block_, [s = sum_.data(), o = room_.data()](std::size_t i) { s[i] += o[i]; }); });
      }
      if (form_ == code_form::codes_once) write_(sum_.data(), to, block_);
      else if (is_null) std::memset(to, 0, result_bytes());
      else encode_with(for_results(compressor_), sum_, key_from(keys), to);
    }
  }

 private:
  static const block_codec& of(const void* p) { return *static_cast<const block_codec*>(p); }
  template <class Which>
  [[nodiscard]] std::size_t bytes_of(const Which& which) const {
    if constexpr (quantiser<Which>) return sizeof(code_key) + which.template bytes<A>(block_);
    else return plain_bytes();
  }
  [[nodiscard]] static code_key key_at(const std::byte* code) {
    code_key key = 0;
    std::memcpy(&key, code, sizeof(key));
    return key;
  }
  template <class Which>
  static void encode_with(const Which& which, std::span<const A> x, code_key key, std::byte* to) {
    std::memcpy(to, &key, sizeof(key));
    if constexpr (quantiser<Which>) which.encode(x, key, to + sizeof(key));
  }
  template <class Which>
  static void decode_with(const Which& which, const std::byte* code, std::span<A> to) {
    const auto key = key_at(code);
    if (key == 0) std::fill(to.begin(), to.end(), A{});
    else if constexpr (quantiser<Which>) which.decode(code + sizeof(key), key, to);
  }
  // Codes of which at least one in a block is not null.
  [[nodiscard]] std::uint64_t mark(const std::byte* run, std::size_t n, std::size_t block) const {
    std::uint64_t marks = 0;
    for (std::size_t i = 0; i < n; ++i) marks |= std::uint64_t{key_at(run + i * bytes()) != 0} << (i / block);
    return marks;
  }

  C compressor_;
  std::size_t block_, plain_bytes_;
  code_form form_;
  void (*write_)(const A*, std::byte*, std::size_t);  // makes elements of a sum
  std::vector<std::byte> null_;
  mutable std::vector<A> room_, sum_;  // for folding, which one thread does at a time
  std::vector<std::uint32_t> places_;
  std::vector<std::byte> code_;
};

}  // namespace omni::detail
