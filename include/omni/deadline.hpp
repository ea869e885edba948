// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "detail/call/environment.hpp"

namespace omni {

/// How long a call may wait for other ranks while nothing moves; given beside the policies. Then it throws `timeout`, and the
/// communicator is unusable for omni.
///
///     omni::allreduce(comm, grad, omni::deadline{std::chrono::seconds(30)});
///
/// All ranks give one, or none does; the times may differ. Without one it is OMNI_TIMEOUT (seconds, with a fraction), the longest
/// of any rank; without that, waits have no end. What counts is waiting: a call that moves on, however slowly, goes on, and the
/// time that a program spends elsewhere between iallreduce and wait is not counted, nor that for which it is stopped. In the last
/// quarter of it, at most 250 ms, waiting ranks ask who is missing. A rank that calls only then may be too late.
///
/// Cost: small tensors are agreed upon before they go to MPI_Allreduce (as with OMNI_CHECK=1), and that is non-blocking.
struct deadline {
  std::chrono::nanoseconds limit{0};  ///< 0: OMNI_TIMEOUT, or none

  constexpr deadline() = default;
  template <class Rep, class Period>
  constexpr deadline(std::chrono::duration<Rep, Period> d)  // NOLINT(google-explicit-constructor): one is the other
      : limit(in_range(d)) {}
  friend constexpr bool operator==(const deadline&, const deadline&) = default;

 private:
  // duration::max() of any unit is a century, which leaves room to count on.
  template <class Rep, class Period>
  static constexpr std::chrono::nanoseconds in_range(std::chrono::duration<Rep, Period> d) {
    constexpr std::chrono::hours century(24 * 36525);
    const auto seconds = std::chrono::duration<double>(d);
    if (seconds >= century) return century;
    if (!(seconds > -century)) return -century;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(d);
  }
};

namespace detail {

/// How long something with a deadline, or none (0), may wait; 0: for ever.
inline std::chrono::nanoseconds waits_at_most(std::chrono::nanoseconds limit) {
  return limit.count() != 0 ? limit : environment_limit();
}

/// Counts how long something has been waited for.
class patience {
 public:
  /// @param has_roll whether the ranks can find out who is missing.
  patience(std::chrono::nanoseconds limit, bool has_roll) : limit_(limit), has_roll_(has_roll) {}

  [[nodiscard]] bool limited() const { return limit_.count() != 0; }
  [[nodiscard]] std::chrono::nanoseconds limit() const { return limit_; }
  void limit(std::chrono::nanoseconds l, bool has_roll) {
    limit_ = l;
    has_roll_ = has_roll;
  }
  /// The last part of the time, in which the ranks find out who is missing.
  [[nodiscard]] std::chrono::nanoseconds grace() const {
    constexpr std::chrono::nanoseconds most = std::chrono::milliseconds(250);
    return std::min(limit_ / 4, most);
  }
  /// Something has moved.
  void renew() {
    waited_ = {};
    last_ = clock::now();
  }
  /// Another try was in vain. True when the time is up, but for the grace.
  bool spent() {
    const auto now = clock::now();
    // Who computes between two tries, or is stopped, has not waited.
    const auto most = std::max(limit_ / 8, std::chrono::nanoseconds(1));
    if (last_ != clock::time_point()) waited_ += std::min<std::chrono::nanoseconds>(now - last_, most);
    last_ = now;
    return waited_ >= (has_roll_ ? limit_ - grace() : limit_);
  }
  /// Others whose time is up must have begun before.
  [[nodiscard]] bool has_hardly_waited() const { return waited_ < grace(); }
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(waited_).count(); }
  /// True about once in a millisecond: for what is too dear to be done each time.
  bool now_and_then() {
    if (last_ - looked_ < std::chrono::milliseconds(1)) return false;
    looked_ = last_;
    return true;
  }

 private:
  using clock = std::chrono::steady_clock;
  std::chrono::nanoseconds limit_;
  bool has_roll_;
  std::chrono::nanoseconds waited_{};
  clock::time_point last_, looked_;  // the clock is not asked before there is something to wait for: small calls would feel it
};

/// What a rank waits for: of which ranks, as far as it can tell, and for which packet.
struct awaited {
  std::vector<int> peers{};
  std::string packet{};
  bool others_are_done = false;  ///< ranks that are not among `peers` may be, and answer no more
};

}  // namespace detail
}  // namespace omni
