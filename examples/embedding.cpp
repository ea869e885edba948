// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// Data-parallel training of word embeddings: skip-gram with negative sampling (Mikolov et al., 2013), synchronous
// mini-batches, AdaGrad with one step size for each row.
//
// The model is two tables with a row for each word. A mini-batch touches few of them, so a gradient is mostly zeros, in runs of one
// row. Every step sums it over all ranks: with omni::allreduce, whose blocks are the rows, or with MPI_Allreduce. By default the
// program trains both ways from the same start and compares. --key-value gives omni the rows that were touched, as keys and values;
// --dense-tensor gives it the gradient as it lies, and says nothing of rows. --feedback SHARE sends such a share of the rows, those
// with the largest gradients, and keeps the rest for the next step. --switch ADDRESS sums through an omni-switch.
//
//     mpirun -np 4 omni-example-embedding --text FILE

#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "omni/compress/error_feedback.hpp"
#include "omni/compress/top_blocks.hpp"
#include "omni/fabric.hpp"
#include "omni/omni.hpp"

namespace {

struct options {
  std::string text = (std::filesystem::path(__FILE__).parent_path() / "data" / "default.txt").string();
  int epochs = 3;
  std::size_t dimension = 64;
  std::size_t batch = 64;
  std::size_t window = 3;
  std::size_t negatives = 5;
  std::size_t vocabulary = 50'000;
  float rate = 0.05F;
  std::uint64_t seed = 1;
  std::string topology = "automatic";
  bool compare = false, dense = false, sparse = false;  // one at most; none is compare
  bool key_value = false, dense_tensor = false;         // trained, too
  std::string at_switch;                                // of it, too; empty: not trained so
  double feedback = 0;                                  // share of rows that are sent; 0: not trained so
  bool csv = false;
  std::vector<std::string> nearest;
};

/// Whose part of the job this is.
struct world {
  int rank = 0, ranks = 1;
  world() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  }
  [[nodiscard]] bool first() const { return rank == 0; }
};

/// SplitMix64: the same numbers with every compiler.
class random_numbers {
 public:
  explicit random_numbers(std::initializer_list<std::uint64_t> seeds) {
    for (const auto s : seeds) state_ = next() ^ s;
  }
  std::uint64_t next() {
    auto z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30U) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27U) * 0x94d049bb133111ebU;
    return z ^ z >> 31U;
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
  double fraction() { return static_cast<double>(next() >> 11U) * 0x1p-53; }

 private:
  std::uint64_t state_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------- text

/// What is in the file, or on standard input for "-". Rank 0 reads; if it cannot, every rank throws.
std::string read(const std::string& path, const world& w) {
  std::string text;
  std::int64_t size = 0;
  if (w.first()) {
    std::ifstream file;
    if (path != "-") file.open(path, std::ios::binary);
    std::istream& in = path == "-" ? std::cin : file;
    const bool readable = in && !std::filesystem::is_directory(path);
    if (readable) text.assign(std::istreambuf_iterator<char>(in), {});
    size = readable ? static_cast<std::int64_t>(text.size()) : -1;
  }
  MPI_Bcast(&size, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
  if (size < 0) throw std::runtime_error("cannot read the text '" + path + "'");
  text.resize(static_cast<std::size_t>(size));
  for (std::size_t from = 0; from < text.size();) {
    const auto part = std::min<std::size_t>(text.size() - from, 1U << 30U);
    MPI_Bcast(text.data() + from, static_cast<int>(part), MPI_CHAR, 0, MPI_COMM_WORLD);
    from += part;
  }
  return text;
}

/// A text as numbers of words. Word 0 is the most frequent.
struct corpus {
  std::vector<std::string> words;
  std::vector<std::uint64_t> counts;
  std::vector<std::uint32_t> text;

  corpus(std::string_view source, std::size_t vocabulary) {
    std::unordered_map<std::string, std::uint64_t> counted;
    for_each_word(source, [&](const std::string& word) { ++counted[word]; });
    std::vector<std::pair<std::string, std::uint64_t>> all(counted.begin(), counted.end());
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a.second != b.second ? a.second > b.second : a.first < b.first; });
    if (all.size() > vocabulary) all.resize(vocabulary);
    std::unordered_map<std::string, std::uint32_t> number;
    for (const auto& [word, count] : all) {
      number.emplace(word, static_cast<std::uint32_t>(words.size()));
      words.push_back(word);
      counts.push_back(count);
    }
    for_each_word(source, [&](const std::string& word) {
      if (const auto known = number.find(word); known != number.end()) text.push_back(known->second);
    });
    if (words.size() < 2) throw std::runtime_error("the text has fewer than two different words");
  }

 private:
  template <class F>
  static void for_each_word(std::string_view source, F&& f) {
    std::string word;
    for (const char c : source) {
      const auto letter = static_cast<unsigned char>(c);
      if (std::isalpha(letter) != 0 || letter >= 0x80) {  // UTF-8 beyond ASCII is taken as letters
        word += static_cast<char>(std::tolower(letter));
      } else if (c == '\'' && !word.empty()) {
        word += c;
      } else if (!word.empty()) {
        f(word);
        word.clear();
      }
    }
    if (!word.empty()) f(word);
  }
};

// --------------------------------------------------------------------------------------------------------------------- model

/// Both tables in one tensor, so that one call reduces them: rows [0, V) for words as centres, rows [V, 2V) for words in context.
struct tables {
  std::size_t words, dimension;
  std::vector<float> values;

  tables(std::size_t v, std::size_t d) : words(v), dimension(d), values(2 * v * d) {}
  [[nodiscard]] std::size_t rows() const { return 2 * words; }
  [[nodiscard]] std::span<float> row(std::size_t r) { return {values.data() + r * dimension, dimension}; }
  [[nodiscard]] std::span<const float> row(std::size_t r) const { return {values.data() + r * dimension, dimension}; }
};

float dot(std::span<const float> a, std::span<const float> b) {
  float s = 0;
  for (std::size_t i = 0; i < a.size(); ++i) s += a[i] * b[i];
  return s;
}
void add(std::span<float> to, float factor, std::span<const float> x) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += factor * x[i];
}

/// Sums a gradient over all ranks, in place. Rows that this rank has not touched are zeros.
using reducer = std::function<omni::report(tables& gradient, const std::vector<bool>& touched)>;
/// A way to train: what it is called, and how it reduces.
struct way {
  std::string name;
  reducer reduce;
  bool names_topology = false;
  bool is_compressed = false;  // so its loss is another
  double tolerance = 1e-5;     // of its loss beside the first one's, relatively
};

reducer sparse_reducer(const options& o) {
  const omni::fixed_blocks rows{o.dimension};
  const auto over = [rows](auto topology) {
    return [=](tables& gradient, const std::vector<bool>&) {
      return omni::allreduce(MPI_COMM_WORLD, gradient.values, rows, topology);
    };
  };
  if (o.topology == "colocated") return over(omni::colocated{});
  if (o.topology == "ring") return over(omni::ring{});
  return over(omni::automatic{});
}

reducer feedback_reducer(const options& o, std::size_t elements) {
  return
      [rows = omni::fixed_blocks{o.dimension}, feedback = omni::error_feedback(elements, omni::top_blocks{.share = o.feedback})](
          tables& gradient, const std::vector<bool>&) { return omni::allreduce(MPI_COMM_WORLD, gradient.values, rows, feedback); };
}

omni::report reduce_tensor(tables& gradient, const std::vector<bool>& /*touched*/) {
  return omni::allreduce(MPI_COMM_WORLD, gradient.values);
}

reducer key_value_reducer() {
  struct buffers {
    std::vector<std::uint32_t> keys;
    std::vector<float> rows;
    omni::sparse_tensor<std::uint32_t, float> all;
  };
  return [own = buffers()](tables& gradient, const std::vector<bool>& touched) mutable {
    own.keys.clear();
    own.rows.clear();
    for (std::size_t r = 0; r < touched.size(); ++r) {
      if (!touched[r]) continue;
      const auto row = gradient.row(r);
      own.keys.push_back(static_cast<std::uint32_t>(r));
      own.rows.insert(own.rows.end(), row.begin(), row.end());
    }
    auto& all = own.all;
    omni::allreduce(MPI_COMM_WORLD, omni::sparse_view{own.keys, own.rows, gradient.dimension}, all);
    for (std::size_t i = 0; i < all.keys.size(); ++i)
      std::copy_n(all.values.data() + i * all.width, all.width, gradient.row(all.keys[i]).data());
    return all.report;
  };
}

reducer switch_reducer(const options& o) {
  auto fabric = std::make_shared<omni::fabric>(MPI_COMM_WORLD, o.at_switch);
  if (!fabric->uses_switch()) throw std::runtime_error(fabric->why_not());
  return [fabric = std::move(fabric)](tables& gradient, const std::vector<bool>&) {
    return omni::allreduce(*fabric, gradient.values, omni::in_network{});
  };
}

reducer dense_reducer(const options& o, const world& w) {
  return [=](tables& tensor, const std::vector<bool>&) {
    const std::span<float> gradient = tensor.values;
    constexpr std::size_t most = std::size_t{1} << 30U;  // elements that one call of MPI takes
    for (std::size_t from = 0; from < gradient.size(); from += most)
      MPI_Allreduce(MPI_IN_PLACE, gradient.data() + from, static_cast<int>(std::min(most, gradient.size() - from)), MPI_FLOAT,
                    MPI_SUM, MPI_COMM_WORLD);
    omni::report r;
    r.topology = "MPI_Allreduce";
    r.blocks_total = gradient.size() / o.dimension;
    const auto others = static_cast<std::size_t>(w.ranks - 1);  // MPI does not say what it sent: what the best algorithm would
    r.bytes_sent = r.dense_bytes = 2 * gradient.size_bytes() / static_cast<std::size_t>(w.ranks) * others;
    return r;
  };
}

/// What an epoch did. Means over its steps; of the rank that had the most.
struct summary {
  double loss = 0;                        // per pair of words
  double density = 0, union_density = 0;  // rows that are not null, on a rank and on any
  double bytes = 0;                       // sent per step
  double reducing = 0, all = 0;           // seconds in the epoch
  std::map<std::string, std::size_t> ran;

  [[nodiscard]] std::string topologies() const {
    std::string s;
    for (const auto& [name, times] : ran) s += (s.empty() ? "" : "+") + name;
    return s;
  }
};

class trainer {
 public:
  trainer(const options& o, const world& w, const corpus& c, reducer reduce)
      : o_(o),
        w_(w),
        corpus_(c),
        reduce_(std::move(reduce)),
        model_(c.words.size(), o.dimension),
        gradient_(c.words.size(), o.dimension),
        squares_(model_.rows()),
        touched_(model_.rows()) {
    random_numbers random{o.seed};
    for (std::size_t r = 0; r < model_.words; ++r)  // the context table starts at zero
      for (auto& x : model_.row(r)) x = static_cast<float>((random.fraction() - 0.5) / static_cast<double>(o.dimension));
    double sum = 0;
    for (const auto count : c.counts) noise_.push_back(sum += std::pow(static_cast<double>(count), 0.75));
    order_.resize(c.text.size());
  }

  [[nodiscard]] std::size_t steps() const {
    const auto all = o_.batch * static_cast<std::size_t>(w_.ranks);
    return (order_.size() + all - 1) / all;
  }
  [[nodiscard]] const tables& model() const { return model_; }

  summary epoch(int number) {
    shuffle(number);
    summary s;
    double loss_and_pairs[2] = {0, 0};
    const double start = MPI_Wtime();
    for (std::size_t step = 0; step < steps(); ++step) {
      // This rank's share of the mini-batch.
      const auto from = (step * static_cast<std::size_t>(w_.ranks) + static_cast<std::size_t>(w_.rank)) * o_.batch;
      const auto to = std::min(from + o_.batch, order_.size());
      for (auto i = from; i < to; ++i) differentiate(number, order_[i], loss_and_pairs);
      const auto touched = std::count(touched_.begin(), touched_.end(), true);

      MPI_Barrier(MPI_COMM_WORLD);  // only so that the time below is that of the reduction
      const double before = MPI_Wtime();
      const auto report = reduce_(gradient_, touched_);
      s.reducing += MPI_Wtime() - before;
      touched_.assign(touched_.size(), false);

      s.bytes += static_cast<double>(report.bytes_sent);
      ++s.ran[std::string(report.topology)];
      s.density += share(touched);
      s.union_density += share(apply());
    }
    s.all = MPI_Wtime() - start;

    MPI_Allreduce(MPI_IN_PLACE, loss_and_pairs, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    s.loss = loss_and_pairs[0] / std::max(loss_and_pairs[1], 1.0);
    for (auto* const mean : {&s.density, &s.union_density, &s.bytes}) *mean /= static_cast<double>(steps());
    for (auto* const most : {&s.density, &s.union_density, &s.bytes, &s.reducing, &s.all})
      MPI_Allreduce(MPI_IN_PLACE, most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return s;
  }

 private:
  // The same on all ranks.
  void shuffle(int epoch) {
    random_numbers random{o_.seed, 0x5eed, static_cast<std::uint64_t>(epoch)};
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
  }

  // Adds to the gradient what the word at a position says about its neighbours. What is drawn depends on epoch and position alone:
  // the number of ranks changes nothing but the order of additions.
  void differentiate(int epoch, std::size_t at, double (&loss_and_pairs)[2]) {
    random_numbers random{o_.seed, static_cast<std::uint64_t>(epoch), at};
    const auto reach = 1 + random.below(o_.window);
    const auto first = at - std::min(at, reach);
    const auto last = std::min(at + reach, corpus_.text.size() - 1);
    const std::size_t centre = corpus_.text[at];
    for (auto j = first; j <= last; ++j) {
      if (j == at) continue;
      const std::size_t neighbour = corpus_.text[j];
      loss_and_pairs[0] += pair(centre, neighbour, 1);
      for (std::size_t k = 0; k < o_.negatives; ++k) {
        const auto other = draw(random);
        if (other != neighbour) loss_and_pairs[0] += pair(centre, other, 0);
      }
      ++loss_and_pairs[1];
    }
  }
  // Is this word in the context? -log of the probability that the model gives to the answer.
  double pair(std::size_t centre, std::size_t word, float answer) {
    const auto v = std::as_const(model_).row(centre);
    const auto u = std::as_const(model_).row(model_.words + word);
    const float x = dot(v, u);
    const float error = 1 / (1 + std::exp(-x)) - answer;
    accumulate(centre, error, u);
    accumulate(model_.words + word, error, v);
    return std::log1p(std::exp(static_cast<double>(answer > 0 ? -x : x)));
  }
  void accumulate(std::size_t row, float factor, std::span<const float> x) {
    add(gradient_.row(row), factor, x);
    touched_[row] = true;
  }
  std::size_t draw(random_numbers& random) {
    const auto at = std::upper_bound(noise_.begin(), noise_.end(), random.fraction() * noise_.back());
    return std::min(static_cast<std::size_t>(at - noise_.begin()), noise_.size() - 1);
  }

  // A step down, and zeros again: only in rows that some rank has touched. How many there were.
  std::ptrdiff_t apply() {
    std::ptrdiff_t rows = 0;
    for (std::size_t r = 0; r < gradient_.rows(); ++r) {
      const auto g = gradient_.row(r);
      if (std::all_of(g.begin(), g.end(), [](float x) { return x == 0; })) continue;
      squares_[r] += dot(g, g) / static_cast<float>(g.size());
      add(model_.row(r), -o_.rate / std::sqrt(squares_[r] + 1e-12F), g);
      std::fill(g.begin(), g.end(), 0.0F);
      ++rows;
    }
    return rows;
  }
  [[nodiscard]] double share(std::ptrdiff_t rows) const {
    return static_cast<double>(rows) / static_cast<double>(gradient_.rows());
  }

  const options& o_;
  const world& w_;
  const corpus& corpus_;
  reducer reduce_;
  tables model_, gradient_;
  std::vector<float> squares_;  // of each row's gradients so far: the more, the shorter the step
  std::vector<bool> touched_;   // rows of the gradient, in this step
  std::vector<double> noise_;   // running sums of count^0.75
  std::vector<std::size_t> order_;
};

// -------------------------------------------------------------------------------------------------------------------- output

void print_header(const options& o, const world& w, const corpus& c, std::size_t steps) {
  if (!w.first() || o.csv) {
    if (w.first()) std::printf("epoch,reduction,loss,density,union_density,bytes_per_step,ms_per_step,reduction_seconds,seconds\n");
    return;
  }
  const auto bytes = 2 * c.words.size() * o.dimension * sizeof(float);
  std::printf("text        %zu words, %zu different\n", c.text.size(), c.words.size());
  std::printf("gradient    2 x %zu rows of %zu floats, %.1f MiB\n", c.words.size(), o.dimension,
              static_cast<double>(bytes) / (1 << 20));
  std::printf("ranks       %d, %zu positions each a step, %zu steps an epoch\n\n", w.ranks, o.batch, steps);
  std::printf("%5s  %-20s %9s %8s %8s %12s %12s %12s %8s\n", "epoch", "reduction", "loss", "density", "union", "KiB sent",
              "ms reducing", "s reducing", "s in all");
  std::printf("%5s  %-20s %9s %8s %8s %12s %12s %12s %8s\n", "", "", "per pair", "%", "%", "per step", "per step", "per epoch", "");
}

void print(const options& o, const world& w, int epoch, const std::string& way, const summary& s, std::size_t steps) {
  if (!w.first()) return;
  const double ms = s.reducing * 1e3 / static_cast<double>(steps);
  if (o.csv) {
    std::printf("%d,%s,%.9g,%.6g,%.6g,%.0f,%.6g,%.6g,%.6g\n", epoch, way.c_str(), s.loss, s.density, s.union_density, s.bytes, ms,
                s.reducing, s.all);
  } else {
    std::printf("%5d  %-20s %9.6f %8.2f %8.2f %12.1f %12.3f %12.2f %8.2f\n", epoch, way.c_str(), s.loss, s.density * 100,
                s.union_density * 100, s.bytes / 1024, ms, s.reducing, s.all);
  }
  std::fflush(stdout);
}

/// The words whose rows point most nearly in the same direction.
void print_nearest(const corpus& c, const tables& model, const std::string& word) {
  const auto found = std::find(c.words.begin(), c.words.end(), word);
  if (found == c.words.end()) {
    std::printf("%-12s (not in the text)\n", word.c_str());
    return;
  }
  const auto self = static_cast<std::size_t>(found - c.words.begin());
  std::vector<std::pair<float, std::size_t>> near;
  for (std::size_t i = 0; i < c.words.size(); ++i)
    if (i != self) near.emplace_back(dot(model.row(self), model.row(i)) / std::sqrt(dot(model.row(i), model.row(i))), i);
  const auto shown = std::min<std::size_t>(6, near.size());
  std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(shown), near.end(), std::greater<>());
  std::printf("%-12s", word.c_str());
  for (std::size_t i = 0; i < shown; ++i) std::printf(" %s", c.words[near[i].second].c_str());
  std::printf("\n");
}

// ----------------------------------------------------------------------------------------------------------------------- run

int train(const options& o, const world& w) {
  const corpus c(read(o.text, w), o.vocabulary);
  std::vector<way> ways;
  if (!o.dense) ways.push_back({"omni", sparse_reducer(o), true});
  if (o.key_value) ways.push_back({"omni, keys and rows", key_value_reducer()});
  if (o.dense_tensor) ways.push_back({"omni, dense tensor", reduce_tensor});
  if (o.feedback > 0) {
    std::ostringstream name;
    name << "omni, top " << o.feedback * 100 << " %";
    ways.push_back({name.str(), feedback_reducer(o, 2 * c.words.size() * o.dimension), false, true});
  }
  if (!o.at_switch.empty()) ways.push_back({"omni, switch", switch_reducer(o), false, false, 1e-4});
  if (!o.sparse) ways.push_back({"MPI_Allreduce", dense_reducer(o, w)});
  std::vector<trainer> trainers;
  for (const auto& way : ways) trainers.emplace_back(o, w, c, way.reduce);
  const auto steps = trainers[0].steps();
  print_header(o, w, c, steps);

  std::vector<double> reducing(ways.size()), bytes(ways.size()), loss(ways.size());
  std::vector<double> difference(ways.size());
  // What the others are held against: the first that is exact; for what is saved the last, MPI's own if that is trained.
  std::size_t exact = ways.size(), whole = ways.size();
  for (std::size_t i = 0; i < ways.size(); ++i)
    if (!ways[i].is_compressed) exact = std::min(exact, whole = i);
  bool same_bits = true;
  for (int epoch = 1; epoch <= o.epochs; ++epoch) {
    std::vector<summary> done;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      done.push_back(trainers[i].epoch(epoch));
      reducing[i] += done[i].reducing;
      bytes[i] += done[i].bytes;
      loss[i] = done[i].loss;
      print(o, w, epoch, ways[i].names_topology ? "omni " + done[i].topologies() : ways[i].name, done[i], steps);
    }
    for (std::size_t i = 0; i < done.size(); ++i) {
      const auto& s = done[i];
      if (!std::isfinite(s.loss)) throw std::runtime_error("the training diverges; try a lower --rate");
      if (ways[i].is_compressed) continue;
      difference[i] = std::max(difference[i], std::abs(done[exact].loss / s.loss - 1));
      same_bits = same_bits && std::bit_cast<std::uint64_t>(done[exact].loss) == std::bit_cast<std::uint64_t>(s.loss);
    }
  }

  if (w.first() && !o.nearest.empty() && !o.csv) {
    std::printf("\n");
    for (const auto& word : o.nearest) print_nearest(c, trainers[0].model(), word);
  }
  if (ways.size() < 2) return 0;
  for (std::size_t i = 0; i < ways.size(); ++i)
    if (ways[i].is_compressed && whole != ways.size() && w.first() && !o.csv)
      std::printf("\n%s: loss %.6f, %+.2f %% of that of %s, with %.1f x fewer bytes\n", ways[i].name.c_str(), loss[i],
                  (loss[i] / loss[whole] - 1) * 100, ways[whole].name.c_str(), bytes[whole] / bytes[i]);
  bool agree = true;
  for (std::size_t i = 0; i < ways.size(); ++i) agree = agree && difference[i] < ways[i].tolerance;
  const auto most = *std::max_element(difference.begin(), difference.end());
  if (w.first() && !o.csv) {
    std::printf("\nin the reduction: %.2f s with %s", reducing[0], ways[0].name.c_str());
    for (std::size_t i = 1; i < ways.size(); ++i) {
      std::printf(", %.2f s with %s", reducing[i], ways[i].name.c_str());
      if (w.ranks > 1) std::printf(" (x %.2f)", reducing[i] / reducing[0]);
    }
    std::printf("\n");
    if (same_bits && exact != whole) std::printf("the losses agree to the last bit\n");
    else if (!same_bits)
      std::printf("the losses agree to %.1g (%s)\n", most,
                  o.at_switch.empty() ? "MPI adds in another order" : "a switch adds integers");
  }
  if (w.first() && !agree) std::fprintf(stderr, "the ways to train differ by %g, more than rounding explains\n", most);
  return agree ? 0 : 1;
}

void describe(CLI::App& app, options& o) {
  app.option_defaults()->always_capture_default();
  app.add_option("--text", o.text, "plain text to learn from; - for standard input");
  app.add_option("--epochs", o.epochs, "times through the text")->check(CLI::Range(1, 1'000'000));
  app.add_option("--dimension", o.dimension, "floats in a row")->check(CLI::Range(1, 65536));
  app.add_option("--batch", o.batch, "positions per rank and step")->check(CLI::Range(1, 1 << 30));
  app.add_option("--window", o.window, "words to look at on either side, at most")->check(CLI::Range(1, 1000));
  app.add_option("--negatives", o.negatives, "words drawn for each pair")->check(CLI::Range(0, 1000));
  app.add_option("--vocabulary", o.vocabulary, "words to know at most, the most frequent")->check(CLI::Range(2, 1 << 30));
  app.add_option("--rate", o.rate, "learning rate");
  app.add_option("--seed", o.seed, "of everything that is drawn");
  app.add_option("--topology", o.topology, "of omni::allreduce")->check(CLI::IsMember({"automatic", "colocated", "ring"}));
  app.add_option("--nearest", o.nearest, "words whose neighbours to print in the end")->delimiter(',');
  app.add_flag("--csv", o.csv, "print a table for programs");
  auto* const compare = app.add_flag("--compare", o.compare, "train with omni and with MPI_Allreduce (the default)");
  auto* const dense = app.add_flag("--dense", o.dense, "train with MPI_Allreduce only");
  auto* const sparse = app.add_flag("--sparse", o.sparse, "train with omni only");
  app.add_flag("--key-value", o.key_value, "train with omni on the keys and rows that were touched, too");
  app.add_flag("--dense-tensor", o.dense_tensor, "train with omni on the gradient as it lies, without a word of rows, too");
  app.add_option("--switch", o.at_switch, "address of an omni-switch: train through it, too");
  app.add_option("--feedback", o.feedback, "share of the rows to send, with error feedback; 0: not to train so, too")
      ->check(CLI::Range(0.0, 1.0));
  compare->excludes(dense)->excludes(sparse);
  dense->excludes(sparse);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int result = 1;
  const world w;
  options o;
  CLI::App app{"Trains word embeddings on all ranks, and compares omni::allreduce with MPI_Allreduce."};
  describe(app, o);
  try {
    app.parse(argc, argv);
    result = train(o, w);
  } catch (const CLI::ParseError& e) {
    result = w.first() ? app.exit(e) : e.get_exit_code();
  } catch (const omni::error& e) {  // the other ranks may be waiting for this one
    std::cerr << "rank " << w.rank << ": " << e.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, 1);
  } catch (const std::exception& e) {  // the same on every rank
    if (w.first()) std::cerr << "omni-example-embedding: " << e.what() << '\n';
  }
  MPI_Finalize();
  return result;
}
