// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// Data-parallel training with sharded weights: every rank owns a part of the weights and of the optimiser's state. Each step is a
// reduce_scatter of gradients, an update of the part, and an allgather of weights. A batch touches few weights, so both are mostly
// zeros. The program trains a classifier of texts, say, by hashed words (logistic regression, AdaGrad), sharded and not, and checks
// that the weights are the same to the bit.
//
//     mpirun -np 4 omni-example-sharded

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <omni/collectives.hpp>
#include <random>
#include <span>
#include <vector>

namespace {

constexpr std::size_t weights = 1'000'003;  // which hashes of words choose: no number of ranks divides it
constexpr int steps = 40, batch = 32, words = 30;

/// The words of a text, by their hashes; what a text is about shows in where its words lie.
struct text {
  std::vector<std::uint32_t> words;
  float label = 0;  ///< 1 or 0
};
text draw_text(std::mt19937_64& random) {
  text t;
  t.label = static_cast<float>(random() % 2);
  for (int i = 0; i < words; ++i) {
    const auto u = static_cast<double>(random() >> 11U) * 0x1p-53;
    const auto word = static_cast<std::uint32_t>(std::pow(u, 4.0) * (weights / 2 - 1));  // a few are frequent
    t.words.push_back(2 * word + (t.label > 0 ? 1U : 0U) * (random() % 4 != 0 ? 1U : 0U));
  }
  return t;
}

/// AdaGrad over some of the weights, of which this rank has the state.
class optimiser {
 public:
  explicit optimiser(std::size_t n) : squares_(n, 0.0F) {}
  void update(std::span<float> w, std::span<const float> gradient) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      if (gradient[i] == 0) continue;
      squares_[i] += gradient[i] * gradient[i];
      w[i] -= 0.1F * gradient[i] / std::sqrt(squares_[i]);
    }
  }
  [[nodiscard]] std::size_t bytes() const { return squares_.size() * sizeof(float); }

 private:
  std::vector<float> squares_;
};

struct outcome {
  std::vector<float> weights;
  double loss = 0;        // of the last step, on this rank
  std::size_t bytes = 0;  // sent by this rank in all steps
  std::size_t dense = 0;  // that dense algorithms would have sent
  std::size_t state = 0;  // of the optimiser, here
};

/// `exchange(w, gradient)` sums the gradient over all ranks, and brings the weights up to date.
template <class Exchange>
outcome train(int rank, const Exchange& exchange) {
  outcome o{std::vector<float>(weights, 0.0F)};
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
  std::vector<float> gradient(weights);
  for (int step = 0; step < steps; ++step) {
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    o.loss = 0;
    for (int i = 0; i < batch; ++i) {
      const auto t = draw_text(random);
      float score = 0;
      for (const auto w : t.words) score += o.weights[w];
      const float p = 1 / (1 + std::exp(-score));
      o.loss -= std::log(static_cast<double>(t.label > 0 ? p : 1 - p)) / batch;
      for (const auto w : t.words) gradient[w] += p - t.label;
    }
    exchange(o, gradient);
  }
  return o;
}
void add(outcome& o, const omni::report& r) {
  o.bytes += r.bytes_sent;
  o.dense += r.dense_bytes;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const omni::colocated in_rank_order{};  // so that all sums are rounded alike

  optimiser all(weights);
  const auto whole = train(rank, [&](outcome& o, std::vector<float>& gradient) {
    add(o, omni::allreduce(MPI_COMM_WORLD, gradient, in_rank_order));
    all.update(o.weights, gradient);
    o.state = all.bytes();
  });

  std::vector<std::size_t> sizes;
  for (int r = 0; r < ranks; ++r) {
    const auto n = static_cast<std::size_t>(ranks), k = static_cast<std::size_t>(r);
    sizes.push_back((k + 1) * weights / n - k * weights / n);
  }
  const omni::part_sizes parts{sizes};
  const auto me = static_cast<std::size_t>(rank);
  const auto first = me * weights / static_cast<std::size_t>(ranks);
  optimiser part(sizes[me]);
  std::vector<float> mine(sizes[me]);
  const auto sharded = train(rank, [&](outcome& o, std::vector<float>& gradient) {
    add(o, omni::reduce_scatter(MPI_COMM_WORLD, gradient, mine, parts, in_rank_order));
    part.update(std::span(o.weights).subspan(first, sizes[me]), mine);
    add(o, omni::allgather(MPI_COMM_WORLD, o.weights, parts, in_rank_order));  // this rank's part is in its place
    o.state = part.bytes();
  });

  int same = std::memcmp(whole.weights.data(), sharded.weights.data(), weights * sizeof(float)) == 0 ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  const bool learned = sharded.loss < 0.6;
  if (rank == 0) {
    const auto tell = [](const char* what, const outcome& o) {
      std::printf("%-10s loss %.4f, optimiser's state %.2f MiB a rank, sent %.2f MiB, dense %.2f MiB\n", what, o.loss,
                  static_cast<double>(o.state) / (1 << 20U), static_cast<double>(o.bytes) / (1 << 20U),
                  static_cast<double>(o.dense) / (1 << 20U));
    };
    tell("whole:", whole);
    tell("sharded:", sharded);
    std::printf("the weights %s\n", same != 0 ? "agree to the last bit" : "DIFFER");
  }
  MPI_Finalize();
  return same != 0 && learned ? 0 : 1;
}
