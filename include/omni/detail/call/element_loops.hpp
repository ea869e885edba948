// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <typeinfo>

#include "../../block.hpp"
#include "../../detect/simd.hpp"
#include "../../operation.hpp"
#include "../detect/mark.hpp"
#include "../wire/signature.hpp"
#include "fold.hpp"

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"  // a user's operation may be nothing to vectorise
#endif

// Where types end. Below the public templates a call is bytes; what has to know the elements' type, the operation, the partitioner
// or the detector is a function in a table, one static table for each combination.

namespace omni::detail {

/// The values of a call's policies.
template <class T, class Op, class Partitioner, class Detector>
struct call_policies {
  struct no_null {};
  using null_type = std::conditional_t<skips<Op, T>, T, no_null>;

  Op op;
  Partitioner partition;  ///< of one tensor
  Detector detector;
  null_type null;  ///< the identity, as elements have it

  call_policies(const Op& o, const Partitioner& p, const Detector& d) : op(o), partition(p), detector(d), null(null_of(o)) {}

 private:
  static null_type null_of(const Op& op) {
    if constexpr (skips<Op, T>) return static_cast<T>(identity_of<T>(op));
    else return {};
  }
};

/// Tells operations of one name apart: by their type where they have no name (compilers spell lambdas alike), by what they say of
/// their values with `fingerprint()`, and by an identity that is a value.
template <class T, class Op>
std::uint64_t operation_state(const Op& op) {
  std::uint64_t h = 0;
#if defined(__cpp_rtti)
  if constexpr (!has_name<Op>) {
    static const auto type = hash(typeid(Op).name());
    h = type;
  }
#endif
  if constexpr (requires { op.fingerprint(); }) h = mixed(h, op.fingerprint());
  if constexpr (has_identity_member<Op, T> &&
                (std::has_unique_object_representations_v<T> || std::is_same_v<T, float> || std::is_same_v<T, double>)) {
    const T identity = op.identity();
    h = mixed(h, hash({reinterpret_cast<const char*>(&identity), sizeof(T)}));
  }
  return h;
}

/// In the place of an operation, where nothing is reduced: what is null there.
template <class T>
struct copies {
  T null = std::bit_cast<T>(std::array<std::byte, sizeof(T)>{});

  static constexpr std::string_view name = "none";
  [[nodiscard]] T identity() const { return null; }
  [[nodiscard]] std::uint64_t fingerprint() const requires(is_complex<T> && sizeof(T) <= 16) {  // without padding
    return hash({reinterpret_cast<const char*>(&null), sizeof(T)});
  }
  T operator()(const T& /*of nobody*/, const T& b) const { return b; }
};
template <class Op>
inline constexpr bool is_copies = false;
template <class T>
inline constexpr bool is_copies<copies<T>> = true;

/// Signed integers wrap, as MPI's do: but for the order, their bits are those of unsigned ones, and the same code folds both.
template <class T, class Op>
struct unsigned_twin {
  using type = T;
};
template <class T, class Op>
requires(is_builtin<Op>&& std::is_signed_v<T>&& std::is_integral_v<T> && !std::is_same_v<Op, min> &&
         !std::is_same_v<Op, max>) struct unsigned_twin<T, Op> {
  using type = std::make_unsigned_t<T>;
};
template <class T, class Op>
using folded_as = typename unsigned_twin<T, Op>::type;

/// A partitioner whose blocks are equal but for the last.
template <class P>
concept cuts_evenly = requires(const P& p) {
  p.uniform();
};

/// A partitioner that says whether its blocks are packed.
template <class P>
concept says_whether_to_pack = requires(const P& p) {
  { p.pack } -> std::convertible_to<packing>;
};

/// What it says, if it does.
template <class P>
packing packing_of(const P& p) {
  if constexpr (says_whether_to_pack<P>) return p.pack;
  else return packing::automatic;
}

/// What a fold reads, one of each rank, where ranks share memory.
using few_sources = std::array<const void*, 64>;

/// What holds for all calls of a combination, and its functions. `policies` is the call's call_policies; runs begin on an element.
struct element_loops {
  short_name<48> type_on_wire;
  short_name<40> operation_on_wire;
  std::string_view type{};  ///< in full
  std::size_t element_bytes = 1, alignment = 1;
  std::size_t result_bytes = 1;   ///< of an element that has been folded
  bool skips = false;             ///< null blocks are not sent
  bool commutes = false;          ///< may be folded in another order than that of the ranks
  bool folds_in_steps = false;    ///< a fold of some sources, folded with the others in order, has the bits of one fold
  bool equal_blocks = false;      ///< but for the last
  bool two_levels = false;        ///< may be folded host by host
  std::size_t ahead_bytes = 0;    ///< that the detector looks at in one go; 0: run by run
  std::uint64_t partitioner = 0;  ///< a hash of its type

  /// out[i] = sources[0][i] op sources[1][i] ..., as fold_block.
  void (*fold)(const void* policies, std::span<const void* const> sources, bool from_identity, void* out, std::size_t n) = nullptr;
  /// The detector of the user's choice; null for the default one.
  std::uint64_t (*mark)(const void* policies, const void* run, std::size_t n, std::size_t block) = nullptr;
  void (*mark_ahead)(const void* policies, const void* all, std::size_t n, std::size_t block,
                     std::span<std::uint64_t> marks) = nullptr;
  const void* (*null)(const void* policies) = nullptr;  ///< the identity; there is one where null blocks are skipped
  std::size_t (*count)(const void* policies, std::size_t n) = nullptr;
  std::size_t (*largest)(const void* policies, std::size_t n) = nullptr;
  std::size_t (*uniform)(const void* policies) = nullptr;                              ///< of equal blocks
  block_range (*block)(const void* policies, std::size_t i, std::size_t n) = nullptr;  ///< of others
  packing (*pack)(const void* policies) = nullptr;                                     ///< null: automatic
  std::uint64_t (*operation_state)(const void* policies) = nullptr;                    ///< null: there is none
  std::uint64_t (*partition_state)(const void* policies) = nullptr;                    ///< null: there is none
  std::shared_ptr<const void> (*copy)(const void* policies) = nullptr;                 ///< for what outlives the caller's
};

inline constexpr element_loops no_loops{};

/// How many blocks a run of n elements has, the last of which may be shorter.
constexpr std::size_t blocks_in_run(std::size_t n, std::size_t block) { return n / block + (n % block != 0 ? 1 : 0); }

/// Makes the table.
template <class T, class Op, class Partitioner, class Detector>
constexpr element_loops make_loops() {
  using policies = call_policies<T, Op, Partitioner, Detector>;
  struct as {
    static const policies& of(const void* p) { return *static_cast<const policies*>(p); }
  };
  element_loops l;
  l.type = type_name<T>();
  l.type_on_wire = short_name<48>(type_name<T>());
  l.operation_on_wire = short_name<40>(operation_name<Op>());
  l.element_bytes = l.result_bytes = sizeof(T);
  l.alignment = alignof(T);
  l.skips = skips<Op, T>;
  l.commutes = commutes<Op, T>();
  // A user's identity need not be neutral to the bits of a zero.
  l.folds_in_steps = is_copies<Op> || (std::is_same_v<fold_type<Op, T>, T> && (is_builtin<Op> || !skips<Op, T>));
  l.equal_blocks = cuts_evenly<Partitioner>;
  // Parts are cut as tensors of their own, which only blocks of one size allow.
  l.two_levels = l.equal_blocks && l.skips && l.commutes && std::is_default_constructible_v<T>;
  l.partitioner = hash(spelled<Partitioner>());
  if constexpr (is_copies<Op>)
    l.fold = [](const void* /*p*/, std::span<const void* const> sources, bool /*from_identity*/, void* out, std::size_t n) {
      if (sources.back() != out) std::memcpy(out, sources.back(), n * sizeof(T));
    };
  else
    l.fold = [](const void* p, std::span<const void* const> sources, bool from_identity, void* out, std::size_t n) {
      fold_block(as::of(p).op, sources, from_identity, static_cast<folded_as<T, Op>*>(out), n);
    };
  if constexpr (skips<Op, T>) {
    l.null = [](const void* p) -> const void* { return &as::of(p).null; };
    if constexpr (!std::is_same_v<Detector, simd_detector>)
      l.mark = [](const void* p, const void* run, std::size_t n, std::size_t block) -> std::uint64_t {
        return as::of(p).detector.mark(std::span<const T>(static_cast<const T*>(run), n), block, as::of(p).null) &
               ones(blocks_in_run(n, block));  // a user's may set more
      };
    if constexpr (cuts_evenly<Partitioner> && requires { Detector::ahead_bytes; }) {
      l.ahead_bytes = Detector::ahead_bytes;
      l.mark_ahead = [](const void* p, const void* all, std::size_t n, std::size_t block, std::span<std::uint64_t> marks) {
        as::of(p).detector.mark_ahead(std::span<const T>(static_cast<const T*>(all), n), block, as::of(p).null, marks);
        const auto blocks = blocks_in_run(n, block);
        for (std::size_t w = 0; w < marks.size(); ++w) marks[w] &= w * 64 < blocks ? ones(blocks - w * 64) : 0;
      };
    }
  }
  l.count = [](const void* p, std::size_t n) -> std::size_t { return as::of(p).partition.count(n); };
  l.largest = [](const void* p, std::size_t n) -> std::size_t { return as::of(p).partition.largest(n); };
  if constexpr (cuts_evenly<Partitioner>) l.uniform = [](const void* p) -> std::size_t { return as::of(p).partition.uniform(); };
  else l.block = [](const void* p, std::size_t i, std::size_t n) -> block_range { return as::of(p).partition.block(i, n); };
  if constexpr (says_whether_to_pack<Partitioner>)
    l.pack = [](const void* p) -> packing { return packing_of(as::of(p).partition); };
  if constexpr (!has_name<Op> || has_identity_member<Op, T> || requires(const Op& op) { op.fingerprint(); })
    l.operation_state = [](const void* p) { return detail::operation_state<T>(as::of(p).op); };
  if constexpr (requires(const Partitioner& p) { p.fingerprint(); })
    l.partition_state = [](const void* p) -> std::uint64_t { return as::of(p).partition.fingerprint(); };
  l.copy = [](const void* p) -> std::shared_ptr<const void> { return std::make_shared<const policies>(as::of(p)); };
  return l;
}
template <class T, class Op, class Partitioner, class Detector>
inline constexpr element_loops loops_of = make_loops<T, Op, Partitioner, Detector>();

}  // namespace omni::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
