// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// A topology of our own. `star`: everybody sends to rank 0, which folds in rank order and sends the result back. It knows nothing
// of MPI, and works on every transport, for every element type and operation, blocking or not.

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iostream>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "omni/omni.hpp"

/// Topology: all through rank 0, piece by piece. 2 (N-1) S bytes through one link: right for a handful of ranks at most.
struct star {
  std::size_t piece_bytes = 0;  ///< 0: as the transport likes it

  static constexpr std::string_view name = "star";

  class engine;
};

/// The state machine of one call: two stages for each piece, the next begun when the messages of the last are done.
///
///     stage 2i      everybody sends piece i, rank 0 receives
///     stage 2i + 1  rank 0 folds piece i and sends the result, everybody receives
///
/// So a result never meets a buffer that is still being sent, although the call may be in place. The call is bytes: what its
/// elements are, and how they are folded, it knows itself.
class star::engine {
 public:
  engine(const star& options, const omni::call& call, const omni::any_transport& transport, omni::any_mailbox& messages)
      : call_(call),
        rank_(transport.rank()),
        ranks_(static_cast<std::size_t>(transport.size())),
        element_(call.element_bytes()),
        piece_(std::max<std::size_t>(
            (options.piece_bytes != 0 ? options.piece_bytes : transport.preferred_packet_bytes()) / element_, 1)),
        stages_(2 * ((call.size() + piece_ - 1) / piece_)),
        messages_(messages) {}
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  ~engine() {
    if (under_way_ == 0) return;
    messages_.abandon();                          // something has gone wrong:
    static_cast<void>(contributions_.release());  // messages that were given up may still be written there
  }

  void start() {
    if (rank_ == 0) contributions_ = std::make_unique<std::byte[]>(ranks_ * piece_ * element_);
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
    r.extra_bytes = rank_ == 0 ? ranks_ * piece_ * element_ : 0;
  }

 private:
  enum : unsigned { contribution, result };  // the streams: within one, messages between two ranks keep their order

  [[nodiscard]] std::size_t first() const { return stage_ / 2 * piece_; }
  [[nodiscard]] std::size_t elements() const { return std::min(piece_, call_.size() - first()); }
  [[nodiscard]] std::size_t bytes() const { return elements() * element_; }
  [[nodiscard]] std::span<std::byte> contribution_of(std::size_t peer) const {
    return {contributions_.get() + peer * piece_ * element_, bytes()};
  }

  void gather() {
    if (rank_ != 0) return send(0, contribution, call_.in.subspan(first() * element_, bytes()));
    for (std::size_t peer = 1; peer < ranks_; ++peer) receive(peer, contribution, contribution_of(peer));
  }
  void scatter() {
    const auto out = call_.out.subspan(first() * element_, bytes());
    if (rank_ != 0) return receive(0, result, out);
    std::vector<const void*> sources{call_.in.data() + first() * element_};
    for (std::size_t peer = 1; peer < ranks_; ++peer) sources.push_back(contribution_of(peer).data());
    call_.fold(sources, false, out.data(), elements());
    for (std::size_t peer = 1; peer < ranks_; ++peer) send(peer, result, out);
  }

  // The token comes back with the completion: the peer, and whether something was received.
  void send(std::size_t peer, unsigned stream, std::span<const std::byte> bytes) {
    messages_.send(static_cast<int>(peer), stream, bytes, peer << 1U);
    bytes_sent_ += bytes.size();
    ++under_way_;
  }
  void receive(std::size_t peer, unsigned stream, std::span<std::byte> to) {
    messages_.receive(static_cast<int>(peer), stream, to, peer << 1U | 1U);
    expected_ = to.size();
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

  const omni::call& call_;  // it, transport and mailbox live longer than the engine
  int rank_;
  std::size_t ranks_, element_, piece_;  // bytes of an element, elements of a piece
  std::size_t stages_, stage_ = 0;
  omni::any_mailbox& messages_;
  std::unique_ptr<std::byte[]> contributions_;
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
