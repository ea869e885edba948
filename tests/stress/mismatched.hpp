// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <omni/error.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../support/effort.hpp"
#include "drawn.hpp"
#include "running.hpp"

// Random programs of which, in half of the cases, one rank calls otherwise somewhere: another call, or two in the other order.

namespace stress {

struct mismatched_program {
  int ranks;
  std::vector<drawn_call> calls;
  fault wrong = fault::none;
  std::size_t at = 0;
  int rank = 0;
  drawn_call spoilt;
  std::string field;
  bool swaps = false;  ///< the rank makes call `at` after the next one

  mismatched_program(int ranks_, std::uint64_t seed) : ranks(ranks_) {
    generator g(seed);
    for (std::size_t i = 0, n = 1 + g() % 6; i < n; ++i) {
      auto c = draw_call(g, false);
      c.n %= 20000;
      calls.push_back(c);
    }
    if (g() % 2 == 0) return;
    at = g() % calls.size();
    rank = static_cast<int>(g() % static_cast<std::uint64_t>(ranks));
    auto& c = calls[at];
    if (at + 1 < calls.size() && g() % 4 == 0) {
      swaps = true;
      c.what = calls[at + 1].what = form::tensor;
      calls[at + 1].n = c.n + 1 + g() % 1000;
      return;
    }
    wrong = one_of(g, faults);
    // Of pairs and groups not everything can differ that can of tensors, and automatic has no packets.
    c.what = form::tensor;
    c.n += 1100;
    if (wrong == fault::packet || wrong == fault::window) c.topology = way::colocated;
    spoilt = c;
    field = spoil(spoilt, wrong, g);
  }

  /// Whether the ranks disagree about call `i`.
  [[nodiscard]] bool disagrees(std::size_t i) const { return swaps ? i == at || i == at + 1 : wrong != fault::none && i == at; }
  /// What a rank makes its call `i`.
  [[nodiscard]] const drawn_call& call_of(int r, std::size_t i) const {
    if (r != rank || !disagrees(i)) return calls[i];
    return swaps ? calls[2 * at + 1 - i] : spoilt;
  }
};

/// What the program and its fault are.
inline std::string describe(const mismatched_program& p) {
  if (p.swaps) return "rank " + std::to_string(p.rank) + " swaps call " + std::to_string(p.at) + " and the next";
  if (p.wrong == fault::none) return "alike";
  return "call " + std::to_string(p.at) + ": " + describe(p.calls[p.at]) + " (rank " + std::to_string(p.rank) + ": " +
         describe(p.spoilt) + ")";
}

/// The seeds to draw by. OMNI_TEST_PROGRAMS=10000 for a night's worth; one that fails is run alone with OMNI_TEST_SEED.
inline std::pair<std::uint64_t, std::uint64_t> mismatched_seeds(int programs) {
  const char* const wanted = std::getenv("OMNI_TEST_PROGRAMS");
  const char* const only = std::getenv("OMNI_TEST_SEED");
  const std::uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  if (only != nullptr) return {first, first + 1};
  return {first, first + (wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : static_cast<std::uint64_t>(programs))};
}

/// One rank's part; says what is wrong: the right calls are right, and the rank is told of the wrong one.
template <class Comm>
std::string run(const mismatched_program& p, Comm& comm, int rank, std::uint64_t seed) {
  generator g(seed * 31 + static_cast<std::uint64_t>(rank));
  std::string said;
  struct under_way {
    std::unique_ptr<running_call> call;
    std::size_t number;
  };
  std::deque<under_way> all;
  bool told = false;
  // What is wrong with the news of the call that is.
  const auto faulted = [&](const omni::mismatch& e) -> std::string {
    const bool strange = rank == p.rank;
    if (!p.swaps && e.field() != p.field) return "not the " + p.field;
    if (strange == (e.rank() == p.rank)) return "not the rank";
    if (strange && e.rank() != (p.rank == 0 ? 1 : 0)) return "not the lowest of the others";
    if (p.swaps) return {};
    const auto usual = spelled(p.calls[p.at], p.wrong), odd = spelled(p.spoilt, p.wrong);
    const auto& here = strange ? odd : usual;
    const auto& there = strange ? usual : odd;
    if (!here.empty() && e.here() != here) return "not what this rank called with, " + here;
    if (!there.empty() && e.there() != there) return "not what the other called with, " + there;
    const auto whole = "omni: ranks disagree about the " + p.field + ": rank " + std::to_string(rank) + " called with " + e.here() +
                       ", rank " + std::to_string(e.rank()) + " with " + e.there();
    return e.what() == whole && e.here() != e.there() ? std::string() : "not the text";
  };
  const auto guarded = [&](std::size_t i, const auto& f) {
    try {
      f();
      return true;
    } catch (const omni::mismatch& e) {
      told = true;
      if (!p.disagrees(i)) said += "call " + std::to_string(i) + ": " + e.what() + "; ";
      else if (const auto w = faulted(e); !w.empty()) said += w + ": " + e.what() + "; ";
    } catch (const std::exception& e) {
      said += "call " + std::to_string(i) + ": " + e.what() + "; ";
    }
    return false;
  };
  const auto finish = [&](under_way& u) {
    if (!guarded(u.number, [&] { u.call->wait(); })) return;
    if (p.disagrees(u.number)) said += "the mismatch was not found; ";
    else if (const auto v = u.call->verdict(); !v.empty()) said += "call " + std::to_string(u.number) + ": " + v + "; ";
  };
  for (std::size_t i = 0; i < p.calls.size(); ++i) {
    const auto& c = p.call_of(rank, i);
    std::unique_ptr<running_call> made;
    if (guarded(i, [&] { made = start(comm, c, rank, p.ranks); })) all.push_back({std::move(made), i});
    while (!all.empty() && g() % 2 == 0) {
      const auto k = g() % all.size();
      finish(all[k]);
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
  for (auto& u : all) finish(u);
  if ((p.swaps || p.wrong != fault::none) && !told) said += "nothing was thrown; ";
  return said;
}

}  // namespace stress
