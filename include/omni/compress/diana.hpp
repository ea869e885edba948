// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "../concepts.hpp"
#include "../detail/codes/memories.hpp"
#include "../detail/codes/remembering.hpp"

namespace omni {

struct diana_options {
  double alpha = 0;     ///< how fast h follows; 0: 1 / (1 + omega)
  double momentum = 0;  ///< beta: the estimate is v = beta v + g
};

/// Compressed gradient differences (DIANA): what is sent is C(g_i - h_i), the difference of this rank's gradient and what the
/// others know of it; then h_i += alpha C(g_i - h_i). The output is the *estimate of the mean*, not a sum:
///
///     omni::diana estimate(grad.size(), omni::random_k{.share = 0.1} | omni::dithering{});
///     for (...) omni::allreduce(comm, grad, estimate);   // grad is h + mean C(g_i - h_i) now; x -= gamma * grad
///
/// As h_i comes to the gradient at the optimum, differences vanish, and with them what the compressor does to them: gradient
/// descent converges linearly where compressing the gradients themselves stalls. For any unbiased compressor with a known omega, on
/// float and double. Results travel as they are, whatever the compressor says: all ranks keep h alike by them, and no server has
/// to.
///
/// It is of one tensor, or one group, of `elements` elements in all. Costs memory of two tensors (three with momentum), and no pass
/// over memory beside the compressor's. Copies share the state, and one call at a time may use it. All ranks give the same options
/// and block size, and have made as many calls with it. After an error other than usage, and after a refusal by servers, the
/// state is unspecified.
///
/// Methods: Mishchenko, Gorbunov, Takac, Richtarik: Distributed Learning with Compressed Gradient Differences, 2019, arXiv
/// 1901.09269; any compressor: Horvath, Kovalev, Mishchenko, Richtarik, Stich: Stochastic Distributed Learning with Gradient
/// Quantization and Variance Reduction, 2019, arXiv 1904.05115.
/// @tparam A in which h is kept: double for tensors of double, else float.
template <compressor C, class A = float>
requires(C::unbiased) class diana {
 public:
  explicit diana(std::size_t elements, const C& c = {}, const diana_options& options = {})
      : compressor_(c), memory_{std::make_shared<state>()} {
    auto& s = *memory_.s;
    s.own.assign(elements, A{});
    s.mean.assign(elements, A{});
    if (options.momentum != 0) s.velocity.assign(elements, A{});
    s.alpha = static_cast<A>(options.alpha);
    s.momentum = static_cast<A>(options.momentum);
  }

  /// h_i of this rank, and h, which is the same on all ranks.
  [[nodiscard]] std::span<A> own() const { return memory_.s->own; }
  [[nodiscard]] std::span<A> mean() const { return memory_.s->mean; }
  /// 0 before the first call, where it was not given.
  [[nodiscard]] A alpha() const { return memory_.s->alpha; }
  [[nodiscard]] const C& compressor() const { return compressor_; }
  /// To what is written to and read from as streams are: on each rank its own. With alpha and momentum.
  template <class Out>
  void save(Out& to) const {
    const auto& s = *memory_.s;
    detail::save_arrays(to, s.own, s.mean, s.velocity, std::vector<A>{s.alpha, s.momentum}, std::vector<std::uint64_t>{s.steps});
  }
  /// `after`: what its owner has saved behind it; all changes, or nothing.
  template <class In, class... After>
  void load(In& from, After&... after) const {
    auto& s = *memory_.s;
    std::vector<A> constants(2);
    std::vector<std::uint64_t> steps(1);
    detail::load_arrays(from, s.own, s.mean, s.velocity, constants, steps, after...);
    s.alpha = constants[0];
    s.momentum = constants[1];
    s.steps = steps[0];
  }

  /// For the library: a call's compressor.
  [[nodiscard]] auto remembered() const { return detail::remembering<C, detail::difference_memory<A>>{compressor_, memory_}; }

 private:
  using state = typename detail::difference_memory<A>::state;
  C compressor_;
  detail::difference_memory<A> memory_;
};

}  // namespace omni
