// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// A topology of our own. `star`: everybody sends to rank 0, which folds in rank order and sends the result back. It knows nothing
// of MPI, and works on every transport, for every element type and operation, blocking or not.

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "omni/omni.hpp"

/// Topology: all through rank 0, piece by piece. 2 (N-1) S bytes through one link: right for a handful of ranks at most.
struct star {
  std::size_t piece_bytes = 0;  ///< 0: as the transport likes it

  static constexpr std::string_view name = "star";

  template <class Call, class Transport>
  class engine;
};

/// The state machine of one call: two stages for each piece, the next begun when the messages of the last are done.
///
///     stage 2i      everybody sends piece i, rank 0 receives
///     stage 2i + 1  rank 0 folds piece i and sends the result, everybody receives
///
/// So a result never meets a buffer that is still being sent, although the call may be in place.
template <class Call, class Transport>
class star::engine {
  using T = typename Call::value_type;
  using mailbox_type = decltype(std::declval<Transport&>().open());

 public:
  engine(const star& options, const Call& call, Transport& transport, mailbox_type messages)
      : call_(call),
        rank_(transport.rank()),
        ranks_(transport.size()),
        piece_(std::max<std::size_t>(
            (options.piece_bytes != 0 ? options.piece_bytes : transport.preferred_packet_bytes()) / sizeof(T), 1)),
        stages_(2 * ((call.in.size() + piece_ - 1) / piece_)),
        messages_(std::move(messages)) {}
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  ~engine() {
    if (under_way_ == 0) return;
    messages_.abandon();                          // something has gone wrong:
    static_cast<void>(contributions_.release());  // messages that were given up may still be written there
  }

  void start() {
    if (rank_ == 0) contributions_ = std::make_unique<T[]>(static_cast<std::size_t>(ranks_) * piece_);
  }
  bool progress() {
    bool moved = false;
    while (under_way_ == 0 && stage_ < stages_) {
      if (stage_ % 2 == 0) gather();
      else scatter();
      ++stage_;
      moved = true;
    }
    return take(messages_.poll()) || moved;
  }
  void wait() { take(messages_.wait()); }
  [[nodiscard]] bool done() const { return stage_ == stages_ && under_way_ == 0; }
  void finish(omni::report& r) const {
    r.topology = name;
    r.blocks_total = r.blocks_sent = r.union_blocks = call_.blocks();  // nothing is skipped
    r.bytes_sent = bytes_sent_;
    r.bytes_received = bytes_received_;
    r.extra_bytes = rank_ == 0 ? static_cast<std::size_t>(ranks_) * piece_ * sizeof(T) : 0;
  }

 private:
  enum : unsigned { contribution, result };  // the streams: within one, messages between two ranks keep their order

  [[nodiscard]] std::size_t first() const { return stage_ / 2 * piece_; }
  [[nodiscard]] std::size_t size() const { return std::min(piece_, call_.in.size() - first()); }
  [[nodiscard]] T* contribution_of(int peer) const { return contributions_.get() + static_cast<std::size_t>(peer) * piece_; }

  void gather() {
    if (rank_ != 0) return send(0, contribution, call_.in.subspan(first(), size()));
    for (int peer = 1; peer < ranks_; ++peer) receive(peer, contribution, {contribution_of(peer), size()});
  }
  void scatter() {
    const auto out = call_.out.subspan(first(), size());
    if (rank_ != 0) return receive(0, result, out);
    if (!call_.in_place()) std::copy_n(call_.in.data() + first(), size(), out.data());
    for (int peer = 1; peer < ranks_; ++peer)
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = call_.op(out[i], contribution_of(peer)[i]);
    for (int peer = 1; peer < ranks_; ++peer) send(peer, result, out);
  }

  // The token comes back with the completion: the peer, and whether something was received.
  void send(int peer, unsigned stream, std::span<const T> elements) {
    messages_.send(peer, stream, std::as_bytes(elements), static_cast<std::uint64_t>(peer) << 1U);
    bytes_sent_ += elements.size_bytes();
    ++under_way_;
  }
  void receive(int peer, unsigned stream, std::span<T> elements) {
    messages_.receive(peer, stream, std::as_writable_bytes(elements), static_cast<std::uint64_t>(peer) << 1U | 1U);
    expected_ = elements.size_bytes();
    ++under_way_;
  }
  bool take(std::span<const omni::completion> completed) {
    for (const auto& c : completed) {
      --under_way_;
      if ((c.token & 1U) == 0) continue;
      if (c.bytes != expected_) throw omni::protocol(static_cast<int>(c.token >> 1U), "a piece of the wrong length");
      bytes_received_ += c.bytes;
    }
    return !completed.empty();
  }

  Call call_;
  int rank_, ranks_;
  std::size_t piece_;  // elements
  std::size_t stages_, stage_ = 0;
  mailbox_type messages_;
  std::unique_ptr<T[]> contributions_;
  std::size_t under_way_ = 0, expected_ = 0, bytes_sent_ = 0, bytes_received_ = 0;
};

static_assert(omni::topology<star>);

namespace {

/// Fractions whose sum depends on the order of the additions, in about one block of ten.
std::vector<float> some_numbers(std::size_t n, int rank) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i)
    if ((i / 256 + static_cast<std::size_t>(rank)) % 10 == 0 || i % 7000 < 256)
      x[i] = 1.0F / static_cast<float>(i + 3) - 1e-3F * static_cast<float>(rank);
  return x;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);

  int differences = 0;
  for (const std::size_t n : {0U, 1U, 1000U, 123'457U}) {
    const auto mine = some_numbers(n, rank);
    auto expected = mine;
    omni::allreduce<omni::colocated>(MPI_COMM_WORLD, expected);

    auto in_place = mine;
    const auto report = omni::allreduce<star>(MPI_COMM_WORLD, in_place);
    if (rank == 0) std::cout << n << " elements, " << report << "\n";

    std::vector<float> out_of_place(n);
    omni::allreduce(MPI_COMM_WORLD, mine, out_of_place, star{.piece_bytes = 1000});

    auto in_background = mine;
    omni::iallreduce<star>(MPI_COMM_WORLD, in_background).wait();

    for (const auto& x : {in_place, out_of_place, in_background})
      if (!same_bits(x, expected)) ++differences;
  }
  if (differences != 0) std::cerr << "rank " << rank << ": " << differences << " results differ from those of colocated\n";

  MPI_Finalize();
  return differences == 0 ? 0 : 1;
}
