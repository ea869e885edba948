// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <exception>
#include <optional>

#include "../../error.hpp"
#include "../wire/packet.hpp"
#include "in_stream.hpp"

namespace omni::detail {

/// Why a call over streams has failed, if it has. It is brought to its end all the same, for others wait for what this rank sends,
/// and only then thrown.
class call_failure {
 public:
  [[nodiscard]] bool happened() const { return differs_.has_value() || refused_ != nullptr; }
  [[nodiscard]] bool is_mismatch() const { return differs_.has_value(); }
  [[noreturn]] void raise() const {
    if (differs_) throw mismatch_of_call(*differs_);
    std::rethrow_exception(refused_);
  }
  /// A peer has called otherwise. Of several the lowest rank is named.
  void differs(const mismatch& found) {
    if (!differs_ || found.rank() < differs_->rank()) differs_.emplace(found);
  }
  template <class Error>
  void refused(const Error& why) {
    refused_ = std::make_exception_ptr(why);
  }
  /// Takes what a server says in the first packet of its results; false if it is no refusal. `ranks`: all, servers included.
  bool refused_by(const in_stream& stream, const signature& mine, int self, int ranks) {
    const auto& h = stream.first().header();
    if ((h.flags & packet_abort) == 0) return false;
    const auto rank = static_cast<int>(h.reserved[1]);
    const auto why = static_cast<refusal>(h.reserved[0]);
    if (why != refusal::differs) {
      const auto found = error_of(why, rank, ranks, mine);
      if (found != nullptr) refused_ = found;
      return found != nullptr;
    }
    const auto theirs = stream.first().sender();
    if (theirs == mine || rank < 0 || rank >= ranks) return false;
    if (!differs_) differs_.emplace(difference(self, mine, rank, theirs));
    return true;
  }
  /// What it is to the caller that an owner refuses for another reason than that calls differ; null if that reason or the rank does
  /// not exist.
  static std::exception_ptr error_of(refusal why, int rank, int ranks, const signature& mine) {
    if (rank < 0 || rank >= ranks) return nullptr;
    switch (why) {
      case refusal::unknown:
        return std::make_exception_ptr(refused_call("omni: the servers do not know operation " + mine.operation.str() +
                                                    " on type " + mine.type.str() + "; give them to serve()"));
      case refusal::left:
        return std::make_exception_ptr(error(text() << "omni: rank " << rank << " has left the cluster"));
      case refusal::failed:
        return std::make_exception_ptr(error(text() << "omni: rank " << rank << " gave up"));
      case refusal::differs:
        break;
    }
    return nullptr;
  }

 private:
  std::optional<mismatch> differs_;
  std::exception_ptr refused_;  // by a server, or given up, for another reason
};

}  // namespace omni::detail
