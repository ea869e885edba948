// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <omni/omni.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../stress/drawn.hpp"
#include "../stress/running.hpp"
#include "../support/effort.hpp"

namespace {

using stress::drawn_call;
using stress::fault;

// A program of which, in half of the cases, one rank calls otherwise somewhere.
struct program {
  int ranks = 2;
  std::vector<drawn_call> calls;
  fault wrong = fault::none;
  std::size_t at = 0;
  int rank = 0;
  drawn_call spoilt;
  std::string field;

  explicit program(std::uint64_t seed) {
    stress::generator g(seed);
    ranks = 2 + static_cast<int>(g() % 4);
    for (std::size_t i = 0, n = 1 + g() % 6; i < n; ++i) {
      auto c = stress::draw_call(g, false);
      c.n %= 20000;
      calls.push_back(c);
    }
    if (g() % 2 == 0) return;
    at = g() % calls.size();
    rank = static_cast<int>(g() % static_cast<std::uint64_t>(ranks));
    auto& c = calls[at];
    wrong = stress::one_of(g, stress::faults);
    // Of pairs and groups not everything can differ that can of tensors, and automatic has no packets.
    c.what = stress::form::tensor;
    c.n += 1100;
    if (wrong == fault::packet || wrong == fault::window) c.topology = stress::way::colocated;
    spoilt = c;
    field = stress::spoil(spoilt, wrong, g);
  }
};

// One rank's part; says what is wrong.
std::string run(const program& p, omni::transport::threads& comm, std::uint64_t seed) {
  stress::generator g(seed * 31 + static_cast<std::uint64_t>(comm.rank()));
  std::string said;
  struct under_way {
    std::unique_ptr<stress::running_call> call;
    std::size_t number;
  };
  std::deque<under_way> all;
  bool told = false;
  // What is wrong with the news of the call that is.
  const auto faulted = [&](const omni::mismatch& e) -> std::string {
    const bool strange = comm.rank() == p.rank;
    if (e.field() != p.field) return "not the " + p.field;
    if (strange == (e.rank() == p.rank)) return "not the rank";
    if (strange && e.rank() != (p.rank == 0 ? 1 : 0)) return "not the lowest of the others";
    const auto usual = stress::spelled(p.calls[p.at], p.wrong), odd = stress::spelled(p.spoilt, p.wrong);
    const auto& here = strange ? odd : usual;
    const auto& there = strange ? usual : odd;
    if (!here.empty() && e.here() != here) return "not what this rank called with, " + here;
    if (!there.empty() && e.there() != there) return "not what the other called with, " + there;
    const auto whole = "omni: ranks disagree about the " + p.field + ": rank " + std::to_string(comm.rank()) + " called with " +
                       e.here() + ", rank " + std::to_string(e.rank()) + " with " + e.there();
    return e.what() == whole && e.here() != e.there() ? std::string() : "not the text";
  };
  const auto guarded = [&](std::size_t i, const auto& f) {
    try {
      f();
      return true;
    } catch (const omni::mismatch& e) {
      told = true;
      if (p.wrong == fault::none || i != p.at) said += "call " + std::to_string(i) + ": " + e.what() + "; ";
      else if (const auto w = faulted(e); !w.empty()) said += w + ": " + e.what() + "; ";
    } catch (const std::exception& e) {
      said += "call " + std::to_string(i) + ": " + e.what() + "; ";
    }
    return false;
  };
  const auto finish = [&](under_way& u) {
    if (!guarded(u.number, [&] { u.call->wait(); })) return;
    if (p.wrong != fault::none && u.number == p.at) said += "the mismatch was not found; ";
    else if (const auto v = u.call->verdict(); !v.empty()) said += "call " + std::to_string(u.number) + ": " + v + "; ";
  };
  for (std::size_t i = 0; i < p.calls.size(); ++i) {
    const auto& c = p.wrong != fault::none && i == p.at && comm.rank() == p.rank ? p.spoilt : p.calls[i];
    std::unique_ptr<stress::running_call> made;
    if (guarded(i, [&] { made = stress::start(comm, c, comm.rank(), comm.size()); })) all.push_back({std::move(made), i});
    while (!all.empty() && g() % 2 == 0) {
      const auto k = g() % all.size();
      finish(all[k]);
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
  for (auto& u : all) finish(u);
  if (p.wrong != fault::none && !told) said += "nothing was thrown; ";
  return said;
}

}  // namespace

TEST_CASE("random programs, half of them wrong somewhere: the right calls are right, every rank is told of the wrong one") {
  // OMNI_TEST_PROGRAMS=10000 for a night's worth; a seed that fails is run alone with OMNI_TEST_SEED.
  const char* const wanted = std::getenv("OMNI_TEST_PROGRAMS");
  const char* const only = std::getenv("OMNI_TEST_SEED");
  const auto first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const auto programs = only != nullptr     ? 1
                        : wanted != nullptr ? std::strtoull(wanted, nullptr, 10)
                                            : static_cast<unsigned long long>(testing::draws(400));
  for (auto seed = first; seed < first + programs; ++seed) {
    const program p(seed);
    std::vector<std::string> wrong(static_cast<std::size_t>(p.ranks));
    omni::transport::threads::run(
        p.ranks, [&](omni::transport::threads& comm) { wrong[static_cast<std::size_t>(comm.rank())] = run(p, comm, seed); });
    CAPTURE(seed);
    const auto what = p.wrong == fault::none ? std::string("alike")
                                             : "call " + std::to_string(p.at) + ": " + stress::describe(p.calls[p.at]) + " (rank " +
                                                   std::to_string(p.rank) + ": " + stress::describe(p.spoilt) + ")";
    CAPTURE(what);
    for (const auto& w : wrong) CHECK(w == "");
  }
}
