// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "block.hpp"
#include "element.hpp"
#include "operation.hpp"

// What each policy must do. A type models exactly one of partitioner, zero_detector, topology, compressor, arithmetic; nothing is
// inherited and nothing registered.

namespace omni {

/// Cuts [0, n) into consecutive blocks. All ranks must cut alike.
///
/// `count(n)` blocks, `block(i, n)` the range of one, `largest(n)` a bound on their size. A partitioner whose blocks are equal but
/// for the last may also offer `uniform()`, their size: runs of blocks are then scanned in one sweep. Blocks may be empty. Two
/// partitioners of one type that cut differently are told apart by their blocks or, with `uniform()`, by the largest; what else
/// must be the same on all ranks goes into a `std::uint64_t fingerprint()`. A member `packing pack` says whether blocks travel as
/// their elements that are not null; ranks may differ in it.
template <class P>
concept partitioner = std::copyable<P> && requires(const P& p, std::size_t i, std::size_t n) {
  { p.count(n) } -> std::convertible_to<std::size_t>;
  { p.block(i, n) } -> std::convertible_to<block_range>;
  { p.largest(n) } -> std::convertible_to<std::size_t>;
};

/// Finds the blocks of a run that are not null.
///
/// `mark(run, block, identity)`: bit i of the result says that block i of the run (`block` elements each, the last maybe shorter,
/// at most 64) holds an element whose bits differ from those of `identity`. Ranks may use different detectors.
///
/// One that is slow to begin, with threads say, may offer `ahead_bytes` and `mark_ahead(all, block, identity, marks)`: the same for
/// about so many bytes of equal blocks in one go, 64 blocks to a word of `marks`.
template <class D>
concept zero_detector = std::copyable<D> && requires(const D& d, std::span<const float> run, std::size_t block, float identity) {
  { d.mark(run, block, identity) } -> std::convertible_to<std::uint64_t>;
};

/// A message that has arrived or has left its buffer.
struct completion {
  std::uint64_t token = 0;          ///< as given to send() or receive()
  std::size_t bytes = 0;            ///< length of a message received
  const std::byte* data = nullptr;  ///< where it lies, if not in the buffer given to receive()
};

/// The messages of one operation. A mailbox of one operation never sees the messages of another.
///
/// `send` and `receive` start a message to or from a peer in one of four streams, 0 to 3; between two ranks, the messages of a
/// stream arrive in order. Buffers belong to the mailbox until the message completes. `poll` returns the completions there are
/// without blocking, `wait` blocks until there is at least one (none only when nothing is under way); what they return is valid
/// until the next of these calls. `cancel` withdraws the receives of a stream that no message has met. `abandon` ends everything
/// without waiting; buffers may be written until the transport goes away.
template <class M>
concept mailbox = std::movable<M> && requires(M& m, const M& c, int peer, unsigned stream, std::span<const std::byte> bytes,
                                              std::span<std::byte> buffer, std::uint64_t token) {
  m.send(peer, stream, bytes, token);
  m.receive(peer, stream, buffer, token);
  { m.poll() } -> std::convertible_to<std::span<const completion>>;
  { m.wait() } -> std::convertible_to<std::span<const completion>>;
  m.cancel(stream);
  m.abandon();
  { c.call() } -> std::convertible_to<std::uint32_t>;
};

/// Carries bytes between the ranks of a group.
///
/// `open()` starts an operation: the k-th mailbox that a rank opens talks to the k-th of every other rank.
/// `may_lose` says whether messages can be lost. `preferred_packet_bytes()` is the message that travels best, the same on all
/// ranks: as a rule the largest that needs no handshake of its own.
///
/// A transport may offer more, and the library makes use of it (transport/mpi.hpp does all): `agrees_first = true`, to agree on
/// every call before it starts; `mark_broken(why)`, `is_usable()` and `expect_usable()`, to refuse calls after an error, and to end
/// those that wait; `keep_alive()`, a shared pointer to what a request needs; `queue()`, `may_start(ticket)`, `has_started()`,
/// `give_up_turn(ticket)` and `nothing_queued()`, where operations must start in turn; and a dense allreduce of its own:
/// `reduction`, which says of what, `reduction_of<T, Op>()`, a pointer to one or null, `allreduce`, `iallreduce` with `test` and
/// `wait`, `one_host()` and `checks_calls()`; `shared_window()`, memory in which all ranks leave each other records; for tensors on
/// devices `takes_device_memory()`, whether messages may lie in a device's memory on all ranks, or `one_process`, where ranks are
/// threads and reach each other's. A mailbox may offer `reserve(messages)`; `nudge()`, for a rank that waits for shared memory; and
/// packets that lie there: `enter()`, to go over to them, `room(bytes)`, where one has to be written, and `release(peer, stream)`,
/// when one has been read (detail/shared/window_mailbox.hpp has these for any messages).
template <class T>
concept message_transport = requires(T& t, const T& c) {
  { c.rank() } -> std::convertible_to<int>;
  { c.size() } -> std::convertible_to<int>;
  { T::may_lose } -> std::convertible_to<bool>;
  { c.preferred_packet_bytes() } -> std::convertible_to<std::size_t>;
  { t.open() } -> mailbox;
};

/// Carries datagrams between the ranks of a group: packets that may be lost, doubled, delayed or changed on the way, as long as
/// some arrive whole. detail/datagram/datagram_demux.hpp makes one of any datagram socket, and has its mailbox. Topologies of users
/// do not run over it.
template <class T>
concept datagram_transport = requires(T& t, const T& c, double seconds) {
  { c.rank() } -> std::convertible_to<int>;
  { c.size() } -> std::convertible_to<int>;
  { c.preferred_packet_bytes() } -> std::convertible_to<std::size_t>;
  requires T::may_lose;
  t.open().receive(seconds);
};

/// What ranks can talk over.
template <class T>
concept transport_type = message_transport<T> || datagram_transport<T>;

namespace detail {
/// Whether packets may be lost.
template <class Transport>
constexpr bool may_lose = std::remove_reference_t<Transport>::may_lose;

}  // namespace detail

/// Decides who aggregates what, and moves it.
///
/// `name`, and a class `engine` that is constructed from (const topology&, const call&, any_transport&, any_mailbox&) and offers
/// `start()`, `progress()` (does what can be done without waiting; true if anything was), `wait()` (blocks until a message
/// completes), `done()`, and `finish(report&)`; optionally `awaits()`, of which ranks it waits for what, and `give_up()`, to tell
/// the others of an error here. All four live longer than the engine (omni/engines.hpp has them). The call is bytes: `in`, `out`,
/// `size()` elements of `element_bytes()`, `blocks()`, and `fold(sources, from_identity, to, n)`. See examples/own_topology.cpp.
template <class T>
concept topology = std::copyable<T> && requires {
  { T::name } -> std::convertible_to<std::string_view>;
  typename T::engine;
};

/// How results travel, of a call with a quantiser.
enum class result_form : std::uint8_t {
  compressed,   ///< compressed again by whoever has folded them
  as_they_are,  ///< with all their bits
};

/// What the choice of blocks is drawn from: this rank's own, or the same on all ranks.
struct choice_keys {
  std::uint64_t own = 0, shared = 0;
};

/// Makes bytes of the n values of a block, and values of the bytes.
///
/// `bytes<A>(n)` is what n values take, of type A, which is float or double; `encode(x, key, to)` writes as many bytes,
/// `decode(from, key, to)` reads them. Both follow from their arguments alone; what is random is drawn from `key`, which travels
/// with the bytes. `from` may hold anything: no index or length in it may be believed. `unbiased` says whether the expectation of
/// decode(encode(x)) over all keys is x. If so `omega(n, block)` bounds the variance, E|C(x) - x|^2 <= omega |x|^2, of a tensor of
/// n elements in blocks of `block`; else `delta(n, block)` says how it contracts, E|C(x) - x|^2 <= (1 - delta) |x|^2. Optional:
/// `seed`, an optional number; `results`; `fingerprint()` of the parameters that all ranks have alike; `fault()`, what is wrong
/// with them, or nothing. Also optional: `round(x, key, y)`, which writes to y, as long as x and elsewhere, what decode(encode(x))
/// gives, to the bit; zeros stay zeros. Where ranks share memory values then travel instead of codes.
template <class C>
concept quantiser = std::copyable<C> && requires(const C& c, std::size_t n, std::span<const float> x, std::uint32_t key,
                                                 std::byte* to, const std::byte* from, std::span<float> y) {
  { C::name } -> std::convertible_to<std::string_view>;
  { C::unbiased } -> std::convertible_to<bool>;
  { c.template bytes<float>(n) } -> std::convertible_to<std::size_t>;
  c.encode(x, key, to);
  c.decode(from, key, y);
};

/// A quantiser whose codes dedicated servers fold. Servers know its name and one number of up to 31 bits, `parameters()`: the two
/// say all that is needed to read and write its codes. Other quantisers go to servers as elements. Servers know those of the
/// library, where they know `sum` of the type, and those that they are told of: `omni::reduction<T, C>{}`.
template <class C>
concept served_quantiser = quantiser<C> && requires(const C& c, std::uint32_t parameters) {
  { c.parameters() } -> std::same_as<std::uint32_t>;
  { C::of_parameters(parameters) } -> std::same_as<C>;
};

namespace detail {
template <class S>
concept has_choice = requires(const S& s, std::span<const double> norms, std::size_t blocks, const choice_keys& keys,
                              std::span<std::uint64_t> bits) {
  s.choose(norms, blocks, keys, bits);
};
}  // namespace detail

/// Chooses blocks of the tensor; what is kept is multiplied by `factor(blocks)`.
///
/// `choose(norms, blocks, keys, bits)` sets a bit for each that is kept; with `by_norm = true` it has the 2-norm of each, infinity
/// of one with a NaN.
template <class S>
concept block_sparsifier = std::copyable<S> && detail::has_choice<S> && requires(const S& s, std::size_t blocks) {
  { S::name } -> std::convertible_to<std::string_view>;
  { S::unbiased } -> std::convertible_to<bool>;
  { s.factor(blocks) } -> std::convertible_to<double>;
};

/// Chooses elements of each block of n: `pick(x, n, key, at)` writes their places in ascending order, at most `kept(n)`, and
/// returns how many; what is kept is multiplied by `factor(n)`. `indexes_travel` says whether the places depend on x, else they
/// follow from n and the key.
template <class S>
concept element_sparsifier = std::copyable<S> &&
    requires(const S& s, std::span<const float> x, std::size_t n, std::uint32_t key, std::span<std::uint32_t> at) {
  { S::name } -> std::convertible_to<std::string_view>;
  { S::unbiased } -> std::convertible_to<bool>;
  { S::indexes_travel } -> std::convertible_to<bool>;
  { s.kept(n) } -> std::convertible_to<std::size_t>;
  { s.pick(x, n, key, at) } -> std::convertible_to<std::size_t>;
  { s.factor(n) } -> std::convertible_to<double>;
};
/// Chooses the `kept(n)` elements of a tensor of n that have the largest magnitudes.
template <class S>
concept magnitude_sparsifier = std::copyable<S> && requires(const S& s, std::size_t n) {
  { S::name } -> std::convertible_to<std::string_view>;
  { S::unbiased } -> std::convertible_to<bool>;
  requires S::by_magnitude;
  { s.kept(n) } -> std::convertible_to<std::size_t>;
};
template <class S>
concept sparsifier = (block_sparsifier<S> || element_sparsifier<S> || magnitude_sparsifier<S>)&&!quantiser<S>;

/// Makes a tensor sparse, or shorter. Only a call that names one, or an arithmetic that rounds, changes bits.
template <class C>
concept compressor = quantiser<C> || sparsifier<C>;

/// How numbers are added: as what they are, or as integers, which a switch can add (arithmetic/native.hpp, shared_exponent.hpp).
///
/// `loops<T, Op>()` is how elements become integers, or null where the call is not for a switch; `rounds`, whether floating-point
/// numbers lose bits by that, which they do on hosts only where a call names it.
template <class A>
concept arithmetic = std::copyable<A> && requires {
  { A::name } -> std::convertible_to<std::string_view>;
  requires A::is_arithmetic;
  { A::rounds } -> std::convertible_to<bool>;
};

/// Anything that may be given to a call beside data, operation and deadline.
template <class P>
concept policy = partitioner<P> || zero_detector<P> || topology<P> || compressor<P> || arithmetic<P>;

}  // namespace omni
