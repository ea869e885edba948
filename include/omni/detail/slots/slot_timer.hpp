// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <optional>

namespace omni::detail {

/// When a datagram is sent again.
struct slot_timer {
  double at = 0, first = 0, wait = 0;
  bool once = true;
};

/// How long a worker waits for answers before it sends again. An answer comes when the slowest worker has sent its part, which may
/// have been lost on the way: what counts is how long the quick ones take, or losses would make waiting longer and longer. Where
/// links are so slow that everything is repeated in vain, answers come twice: those make it longer.
class slot_patience {
 public:
  static constexpr double least_wait = 2e-3;

  /// @param answer_seconds what a quick answer took in earlier calls.
  explicit slot_patience(std::optional<double> answer_seconds) : quick_(answer_seconds) {}

  [[nodiscard]] double seconds() const { return slack_ * (quick_ ? std::clamp(3 * *quick_, least_wait, most_wait) : first_wait); }
  /// What a quick answer takes, if there was any.
  [[nodiscard]] std::optional<double> answer_seconds() const { return quick_ ? std::optional(*quick_ * slack_) : quick_; }

  void sent(slot_timer& t, double now) const {
    t.first = now;
    t.once = true;
    t.wait = seconds();
    t.at = now + t.wait;
  }
  void sent_again(slot_timer& t, double now) const {
    t.once = false;
    t.wait = std::min(2 * t.wait, longest_backoff * seconds());
    t.at = now + t.wait;
  }
  void answered(const slot_timer& t, double now) {
    slack_ = std::max(0.95 * slack_, 1.0);
    if (!t.once) return;  // which of several was answered is not known
    const auto took = now - t.first;
    quick_ = quick_ && took > *quick_ ? *quick_ + (took - *quick_) / 16 : took;
  }
  /// What was sent again is answered, and has been before: it was not lost. Not to be called where the network may have made the
  /// second answer, or another worker have asked for it.
  void answered_twice() { slack_ = std::min(1.25 * slack_, most_slack); }

 private:
  static constexpr double first_wait = 20e-3, most_wait = 0.2, longest_backoff = 16, most_slack = 32;

  std::optional<double> quick_;  // seconds that a quick answer takes
  double slack_ = 1;             // times that, where it was too short
};

}  // namespace omni::detail
