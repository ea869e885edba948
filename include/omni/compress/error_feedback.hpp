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

/// Error feedback: what a compressor does not send of a call is kept, and added to what the next call sends.
///
///     omni::error_feedback feedback(grad.size(), omni::top_blocks{.share = 0.01});
///     for (...) omni::allreduce(comm, grad, feedback);
///
/// For contractive compressors; with others it need not converge. It is of one tensor, or one group, of `elements` elements in all;
/// copies share what they remember, and one call at a time may use it. All ranks have made as many calls with it. Costs memory of
/// one tensor, and no pass over memory beside the compressor's. After an error other than usage, and after a refusal by servers,
/// what it remembers is unspecified, as the output is.
///
/// Methods: Seide et al.: 1-Bit Stochastic Gradient Descent, 2014. Karimireddy et al.: Error Feedback Fixes SignSGD, ICML 2019.
/// @tparam A in which it is kept: double for tensors of double, else float.
template <compressor C, class A = float>
class error_feedback {
 public:
  explicit error_feedback(std::size_t elements, const C& c = {}) : compressor_(c), memory_{std::make_shared<state>()} {
    memory_.s->error.assign(elements, A{});
  }

  /// What has not been sent yet.
  [[nodiscard]] std::span<A> error() const { return memory_.s->error; }
  [[nodiscard]] const C& compressor() const { return compressor_; }
  /// To what is written to and read from as streams are: on each rank its own.
  template <class Out>
  void save(Out& to) const {
    detail::save_arrays(to, memory_.s->error, std::vector<std::uint64_t>{memory_.s->steps});
  }
  template <class In>
  void load(In& from) const {
    std::vector<std::uint64_t> steps(1);
    detail::load_arrays(from, memory_.s->error, steps);
    memory_.s->steps = steps[0];
  }

  /// For the library: a call's compressor.
  [[nodiscard]] auto remembered() const { return detail::remembering<C, detail::error_memory<A>>{compressor_, memory_}; }

 private:
  using state = typename detail::error_memory<A>::state;
  C compressor_;
  detail::error_memory<A> memory_;
};

}  // namespace omni
