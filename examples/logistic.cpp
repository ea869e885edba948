// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// l2-regularised logistic regression on all ranks, each with a part of the rows: gradient descent with gradients as they are, with
// compressed gradients, with compressed differences (DIANA), and with stochastic gradients and variance reduction (VR-DIANA). It
// prints how far each is from the optimum, by the bits that a rank has sent, as CSV; plot_logistic.py draws it.
//
//     mpirun -np 10 omni-example-logistic --data a9a > a9a.csv

#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "omni/compress/compress.hpp"
#include "omni/omni.hpp"

namespace {

using vector = std::vector<double>;

struct options {
  std::string data = (std::filesystem::path(__FILE__).parent_path() / "data" / "default.libsvm").string();
  double l2 = 1e-3;       // times L
  double until = 1e-10;   // in function value
  int stalled = 20'000;   // iterations of what is not expected to come there
  int most = 200'000;     // iterations
  double longer = 1;      // steps, times the theory's
  std::size_t batch = 0;  // rows of a stochastic gradient; 0: a hundredth
  std::string only;       // algorithms whose name has this
  std::uint64_t seed = 1;
};

// ----------------------------------------------------------------------------------------------------------------- the problem

struct row {
  double label = 1;  // or -1
  std::vector<std::pair<std::size_t, double>> features;
};
/// Rows in LIBSVM's text format: a label, then index:value, counted from 1 or 0.
std::vector<row> read(const std::string& path) {
  std::ifstream file(path);
  std::vector<row> rows;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    row r;
    double label = 0;
    if (!(in >> label)) continue;
    r.label = label > 0 ? 1 : -1;
    char colon = ':';
    std::int32_t index = 0;
    for (double value = 0; in >> index >> colon >> value;) {
      if (index < 0) throw std::runtime_error("a feature below 0 in '" + path + "'");
      r.features.emplace_back(static_cast<std::size_t>(index), value);
    }
    rows.push_back(std::move(r));
  }
  if (rows.empty()) throw std::runtime_error("no rows in '" + path + "'");
  return rows;
}

/// The mean over all ranks of f_i(x) = mean over the rank's rows of log(1 + exp(-label a x)) + lambda |x|^2 / 2.
class problem {
 public:
  problem(std::vector<row> all, double l2, int rank, int ranks) : all_(std::move(all)) {
    for (const auto& r : all_)
      for (const auto& [index, value] : r.features) n_ = std::max(n_, index + 1);
    const auto part = all_.size() / static_cast<std::size_t>(ranks);  // as many rows on each rank
    if (part == 0) throw std::runtime_error("fewer rows than ranks");
    all_.resize(part * static_cast<std::size_t>(ranks));
    mine_ = std::span<const row>(all_).subspan(part * static_cast<std::size_t>(rank), part);
    for (int r = 0; r < ranks; ++r)
      smooth_ =
          std::max(smooth_, largest_eigenvalue(std::span<const row>(all_).subspan(part * static_cast<std::size_t>(r), part)) / 4);
    lambda_ = l2 * smooth_;
    smooth_ += lambda_;
  }
  [[nodiscard]] std::size_t size() const { return n_; }
  [[nodiscard]] std::size_t rows() const { return mine_.size(); }
  [[nodiscard]] double smooth() const { return smooth_; }

  void gradient(const vector& x, vector& g) const { gradient_of(mine_, x, g); }
  /// Of some of this rank's rows.
  void gradient(const vector& x, const std::vector<std::size_t>& which, vector& g) const {
    for (std::size_t i = 0; i < n_; ++i) g[i] = lambda_ * x[i];
    for (const auto k : which) add_slope(mine_[k], x, static_cast<double>(which.size()), g);
  }
  /// Of all ranks together: each has all rows.
  [[nodiscard]] double value(const vector& x) const {
    double sum = 0, square = 0;
    for (const auto& r : all_) {
      const double m = -r.label * product(r, x);
      sum += m > 0 ? m + std::log1p(std::exp(-m)) : std::log1p(std::exp(m));
    }
    for (const double v : x) square += v * v;
    return sum / static_cast<double>(all_.size()) + lambda_ / 2 * square;
  }
  /// By Newton's method, which knows nothing of what is shown here: until the gradient is 1e-14 of what it was.
  [[nodiscard]] vector optimum() const {
    vector x(n_), g(n_);
    double before = 0;
    for (int step = 0; step < 100; ++step) {
      gradient_of(all_, x, g);
      double norm = 0;
      for (const double v : g) norm += v * v;
      norm = std::sqrt(norm);
      if (step == 0) before = norm;
      if (norm <= 1e-14 * before) break;
      const auto d = solve(hessian(x), g);
      double t = 1;
      vector y(n_);
      for (const double start = value(x); t > 1e-10; t /= 2) {
        for (std::size_t i = 0; i < n_; ++i) y[i] = x[i] - t * d[i];
        if (value(y) <= start + 1e-16) break;
      }
      x = y;
    }
    return x;
  }

 private:
  static double product(const row& r, const vector& x) {
    double sum = 0;
    for (const auto& [index, value] : r.features) sum += value * x[index];
    return sum;
  }
  static void add_slope(const row& r, const vector& x, double rows, vector& g) {
    const double slope = -r.label / (1 + std::exp(r.label * product(r, x))) / rows;
    for (const auto& [index, value] : r.features) g[index] += slope * value;
  }
  void gradient_of(std::span<const row> rows, const vector& x, vector& g) const {
    for (std::size_t i = 0; i < n_; ++i) g[i] = lambda_ * x[i];
    for (const auto& r : rows) add_slope(r, x, static_cast<double>(rows.size()), g);
  }
  // Of A^T A / rows, by the power method, and a little more.
  [[nodiscard]] double largest_eigenvalue(std::span<const row> rows) const {
    vector v(n_, 1.0), w(n_);
    double norm = 0;
    for (int k = 0; k < 200; ++k) {
      std::fill(w.begin(), w.end(), 0.0);
      for (const auto& r : rows) {
        const double p = product(r, v) / static_cast<double>(rows.size());
        for (const auto& [index, value] : r.features) w[index] += p * value;
      }
      norm = 0;
      for (const double c : w) norm += c * c;
      norm = std::sqrt(norm);
      for (std::size_t i = 0; i < n_; ++i) v[i] = w[i] / norm;
    }
    return norm * 1.0001;
  }
  [[nodiscard]] std::vector<vector> hessian(const vector& x) const {
    std::vector<vector> h(n_, vector(n_));
    for (const auto& r : all_) {
      const double s = 1 / (1 + std::exp(-product(r, x))), w = s * (1 - s) / static_cast<double>(all_.size());
      for (const auto& [i, a] : r.features)
        for (const auto& [j, b] : r.features) h[i][j] += w * a * b;
    }
    for (std::size_t i = 0; i < n_; ++i) h[i][i] += lambda_;
    return h;
  }
  // By Cholesky's decomposition.
  static vector solve(std::vector<vector> h, vector g) {
    const auto n = g.size();
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t k = 0; k < j; ++k) h[j][j] -= h[j][k] * h[j][k];
      h[j][j] = std::sqrt(h[j][j]);
      for (std::size_t i = j + 1; i < n; ++i) {
        for (std::size_t k = 0; k < j; ++k) h[i][j] -= h[i][k] * h[j][k];
        h[i][j] /= h[j][j];
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = 0; k < i; ++k) g[i] -= h[i][k] * g[k];
      g[i] /= h[i][i];
    }
    for (std::size_t i = n; i-- > 0;) {
      for (std::size_t k = i + 1; k < n; ++k) g[i] -= h[k][i] * g[k];
      g[i] /= h[i][i];
    }
    return g;
  }

  std::vector<row> all_;
  std::span<const row> mine_;
  std::size_t n_ = 0;
  double smooth_ = 0, lambda_ = 0;
};

// -------------------------------------------------------------------------------------------------------------- the algorithms

/// Runs one algorithm after the other from the same start, and prints how far it comes.
class comparison {
 public:
  comparison(const options& o, const problem& p, int rank, int ranks)
      : o_(o),
        p_(p),
        rank_(rank),
        ranks_(ranks),
        optimum_(p.optimum()),
        least_(p.value(optimum_)),
        start_(p.value(vector(p.size())) - least_) {
    if (rank_ == 0) std::printf("algorithm,compressor,iteration,bits,seconds,distance\n");
  }

  void run_all() {
    using namespace omni;
    descend("dense", [this](vector& g) {
      const auto r = allreduce(MPI_COMM_WORLD, g);
      for (auto& v : g) v /= ranks_;
      return r;
    });
    const auto n = p_.size();
    compare("natural", natural{.seed = o_.seed}, n);
    compare("dithering", dithering{.levels = 4, .seed = o_.seed}, n);
    compare("random-k", random_k{.share = 0.1, .seed = o_.seed}, n);
    compare("random-k of dithering", random_k{.share = 0.1, .seed = o_.seed} | dithering{.levels = 4}, n);
  }
  [[nodiscard]] bool all_well() const { return well_; }

 private:
  template <class C>
  void compare(const char* name, const C& c, std::size_t n) {
    const double omega = c.omega(n, 256), each = omega / ranks_;
    // A seed of the steps: a compressed gradient draws anew in each.
    auto plain = c;
    std::uint64_t step = 0;
    iterate("quantised", name, 1 / (p_.smooth() * (1 + each)), stalls, [&](const vector& x, vector& g) {
      seed_of(plain) = o_.seed + ++step;
      p_.gradient(x, g);
      const auto r = omni::allreduce(MPI_COMM_WORLD, g, exact(plain));
      for (auto& v : g) v /= ranks_;
      return r;
    });
    const omni::diana<C, double> differences(n, c);
    iterate("DIANA", name, 1 / (p_.smooth() * (1 + 2 * each)), converges, [&](const vector& x, vector& g) {
      p_.gradient(x, g);
      return omni::allreduce(MPI_COMM_WORLD, g, differences);
    });
    const auto rows = p_.rows(), batch = std::max<std::size_t>(o_.batch != 0 ? o_.batch : rows / 100, 1);
    omni::vr_diana<C, double> reduced(n, std::max<std::size_t>(rows / batch, 1), c);
    vector w(n), full(n), at_w(n), at_x(n);
    p_.gradient(w, full);
    reduced.renew(full);
    std::mt19937_64 random(o_.seed * 1000 + static_cast<std::uint64_t>(rank_));
    std::vector<std::size_t> sample(batch);
    iterate("VR-DIANA", name, 1 / (3 * p_.smooth() * (1 + 2 * each)), converges, [&](const vector& x, vector& g) {
      for (auto& s : sample) s = random() % rows;
      p_.gradient(x, sample, at_x);
      p_.gradient(w, sample, at_w);
      const auto r = reduced.reduce(MPI_COMM_WORLD, at_x, at_w, g);
      if (reduced.coin()) {
        w = x;
        p_.gradient(w, full);
        reduced.renew(full);
      }
      return r;
    });
  }
  template <class F>
  void descend(const char* name, const F& reduce) {
    iterate("gradient descent", name, 1 / p_.smooth(), converges, [&](const vector& x, vector& g) {
      p_.gradient(x, g);
      return reduce(g);
    });
  }

  enum expectation { converges, stalls };
  /// @param estimate (x, g) -> report: writes an estimate of the gradient at x.
  template <class F>
  void iterate(const std::string& algorithm, const std::string& compressor, double step, expectation expected, const F& estimate) {
    if ((algorithm + " " + compressor).find(o_.only) == std::string::npos) return;
    vector x(p_.size()), g(p_.size());
    double bits = 0, seconds = 0, distance = start_, lowest = start_;
    int k = 0;
    const auto tell = [&] {
      if (rank_ == 0) std::printf("%s,%s,%d,%.0f,%.4f,%.3e\n", algorithm.c_str(), compressor.c_str(), k, bits, seconds, distance);
    };
    for (tell(); k < o_.most && distance > o_.until;) {
      const double start = MPI_Wtime();
      const auto r = estimate(x, g);
      seconds += MPI_Wtime() - start;
      for (std::size_t i = 0; i < x.size(); ++i) x[i] -= o_.longer * step * g[i];
      bits += 8.0 * static_cast<double>(r.tensor_bytes != 0 ? r.encoded_bytes : x.size() * sizeof(double));
      ++k;
      if (k % (k < 1000 ? 50 : 500) != 0) continue;
      distance = p_.value(x) - least_;
      lowest = std::min(lowest, distance);
      tell();
      if (expected == stalls && k >= o_.stalled) break;
    }
    const bool well = expected == converges ? distance <= o_.until : lowest > o_.until;
    if (!well) well_ = false;
    if (rank_ == 0)
      std::fprintf(stderr, "%-17s %-22s %7d iterations, %12.0f bits, %8.2f s, %9.2e from the optimum%s\n", algorithm.c_str(),
                   compressor.c_str(), k, bits, seconds, distance,
                   well                    ? ""
                   : expected == converges ? ": not there"
                                           : ": not expected");
  }

  template <class C>
  static std::optional<std::uint64_t>& seed_of(C& c) {
    if constexpr (requires { c.first; }) return c.first.seed;
    else return c.seed;
  }
  /// With results that keep all their bits, as DIANA's do: what is compared is what ranks send.
  template <class C>
  static C exact(C c) {
    if constexpr (requires { c.first; }) c.second.results = omni::result_form::as_they_are;
    else if constexpr (requires { c.results; }) c.results = omni::result_form::as_they_are;
    return c;
  }

  const options& o_;
  const problem& p_;
  int rank_, ranks_;
  vector optimum_;
  double least_, start_;
  bool well_ = true;
};

}  // namespace

int main(int argc, char** argv) {
  options o;
  CLI::App app{"logistic regression with compressed gradients"};
  app.option_defaults()->always_capture_default();
  app.add_option("--data", o.data, "file in LIBSVM's text format")->check(CLI::ExistingFile);
  app.add_option("--l2", o.l2, "regularisation, times the constant of smoothness")->check(CLI::Range(1e-12, 1.0));
  app.add_option("--until", o.until, "distance from the optimum in function value")->check(CLI::Range(0.0, 1.0));
  app.add_option("--most", o.most, "iterations")->check(CLI::Range(0, 1'000'000'000));
  app.add_option("--stalled", o.stalled, "iterations with compressed gradients, which stall")->check(CLI::Range(0, 1'000'000'000));
  app.add_option("--longer", o.longer, "steps, times the theory's")->check(CLI::Range(1e-6, 1e6));
  app.add_option("--batch", o.batch, "rows of a stochastic gradient; 0: a hundredth of a rank's")->check(CLI::Range(0, 1'000'000));
  app.add_option("--only", o.only, "algorithms whose name has this, as DIANA or natural");
  app.add_option("--seed", o.seed, "of what is drawn");
  CLI11_PARSE(app, argc, argv);
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1, code = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  try {
    const problem p(read(o.data), o.l2, rank, ranks);
    comparison all(o, p, rank, ranks);
    all.run_all();
    code = all.all_well() ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Finalize();
  return code;
}
