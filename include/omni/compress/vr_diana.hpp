// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "../allreduce.hpp"
#include "diana.hpp"

namespace omni {

/// Variance reduction over DIANA, loopless: for stochastic gradients, of one of the rank's m functions, or of a batch of them. Each
/// rank knows the full gradient mu_i at a reference point w, and what it compresses is the difference of h_i and
///
///     g_i = (gradient of the sample at x) - (gradient of the same sample at w) + mu_i.
///
///     omni::vr_diana estimate(n, m, omni::random_k{.share = 0.1} | omni::dithering{});
///     w = x; estimate.renew(full_gradient(w));
///     for (...) {
///       estimate.reduce(comm, sample_gradient(x), sample_gradient(w), g);   // g is the estimate of the mean
///       if (estimate.coin()) { w = x; estimate.renew(full_gradient(w)); }   // all ranks at once, every m-th step on average
///       x -= gamma * g;
///     }
///
/// Converges linearly to the optimum itself. State, costs and errors: those of diana, and two tensors more, of
/// which a copy has its own: copy none in use.
///
/// Method: VR-DIANA, L-SVRG variant: Horvath, Kovalev, Mishchenko, Richtarik, Stich, 2019, arXiv 1904.05115.
template <compressor C, class A = float>
requires(C::unbiased) class vr_diana {
 public:
  /// @param elements of the tensor. @param c the compressor. @param options of the differences.
  /// @param period m: the coin falls once in so many steps. @param seed of the coin. Both are the same on all ranks.
  vr_diana(std::size_t elements, std::size_t period, const C& c = {}, const diana_options& options = {}, std::uint64_t seed = 1)
      : differences_(elements, c, options),
        full_(elements, A{}),
        estimate_(elements, A{}),
        period_(std::max<std::size_t>(period, 1)),
        seed_(seed) {}

  /// The full gradient of this rank's functions at the new reference point.
  void renew(std::span<const A> full_gradient) {
    detail::expect_remembered(full_.size(), full_gradient.size());
    std::copy(full_gradient.begin(), full_gradient.end(), full_.begin());
  }
  /// Reduces the rank's estimate into that of the mean, with any policies of allreduce.
  template <class Comm, class... More>
  report reduce(Comm&& comm, std::span<const A> at_x, std::span<const A> at_w, std::span<A> out, const More&... more) {
    detail::expect_remembered(full_.size(), at_x.size());
    detail::expect_remembered(full_.size(), at_w.size());
    for (std::size_t i = 0; i < at_x.size(); ++i) estimate_[i] = at_x[i] - at_w[i] + full_[i];
    auto r = allreduce(std::forward<Comm>(comm), std::span<const A>(estimate_), out, differences_, more...);
    ++step_;
    return r;
  }
  /// Whether the reference point moves to x now: once in `period` steps on average, the same on all ranks.
  [[nodiscard]] bool coin() const {
    return detail::draw_below(detail::key_from(detail::mixed(seed_, step_)), 0,
                              static_cast<std::uint32_t>(std::min<std::size_t>(period_, 0xffffffffU))) == 0;
  }
  [[nodiscard]] const diana<C, A>& differences() const { return differences_; }
  template <class Out>
  void save(Out& to) const {
    differences_.save(to);
    detail::save_arrays(to, full_, std::vector<std::uint64_t>{step_});
  }
  template <class In>
  void load(In& from) {
    std::vector<std::uint64_t> step(1);
    differences_.load(from, full_, step);
    step_ = step[0];
  }

 private:
  diana<C, A> differences_;
  std::vector<A> full_, estimate_;  // mu_i, and what is reduced
  std::size_t period_;
  std::uint64_t seed_, step_ = 0;
};

}  // namespace omni
