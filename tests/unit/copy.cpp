// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <omni/detail/memory/copy.hpp>
#include <span>
#include <thread>
#include <vector>

#include "omni/detail/shared/core_distance.hpp"

using omni::detail::copy_out;
using omni::detail::distance_probe;
using omni::detail::stores;

namespace {

constexpr std::size_t most = 9000;

// Copies n bytes between such offsets; whether just those have changed.
bool is_right(std::size_t n, std::size_t to, std::size_t from, stores how) {
  static std::vector<std::byte> source(most + 256), target(most + 256);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 % 255);
  std::fill(target.begin(), target.end(), std::byte{255});
  copy_out(target.data() + to, source.data() + from, n, how);
  omni::detail::publish(how);
  for (std::size_t i = 0; i < target.size(); ++i) {
    const bool inside = i >= to && i < to + n;
    if (target[i] != (inside ? source[i - to + from] : std::byte{255})) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("copies for other ranks: every kind of stores, at all lengths and alignments") {
  for (const auto how : {stores::vectors, stores::strings, stores::streams}) {
    CAPTURE(static_cast<int>(how));
    for (std::size_t n = 0; n <= 400; n += n < 140 ? 1 : 13)
      for (std::size_t to = 0; to < 66; to += 3)
        for (const std::size_t from : {0U, 1U, 32U, 63U})
          if (!is_right(n, to, from, how)) FAIL_CHECK("n ", n, ", to ", to, ", from ", from);
    for (const std::size_t n : {std::size_t{4095}, std::size_t{4096}, std::size_t{4097}, std::size_t{8192}, most})
      for (const std::size_t to : {0U, 1U, 64U, 65U})
        for (const std::size_t from : {0U, 1U})
          if (!is_right(n, to, from, how)) FAIL_CHECK("n ", n, ", to ", to, ", from ", from);
  }
}

namespace {

// Segments as ranks have them, and a probe for each rank.
struct probes {
  static constexpr std::size_t data = 64, bytes = 8192;
  std::vector<std::vector<std::byte>> memory;
  std::vector<omni::detail::segments> segments;
  std::vector<distance_probe> all;

  explicit probes(int ranks, bool has_core = true) {
    std::vector<std::span<std::byte>> spans;
    for (int r = 0; r < ranks; ++r) {
      auto& m = memory.emplace_back(data + bytes + 64);
      const auto offset = (64 - reinterpret_cast<std::uintptr_t>(m.data()) % 64) % 64;
      spans.push_back(std::span(m).subspan(offset, data + bytes));
      distance_probe::prepare(spans.back());
    }
    for (int r = 0; r < ranks; ++r) segments.emplace_back(spans, r, stores::vectors);
    for (const auto& s : segments) all.emplace_back(s, has_core, 0, data, bytes);
  }
};

}  // namespace

TEST_CASE("fills past the caches: at all lengths and alignments") {
  std::vector<std::byte> target(most + 256);
  int wrong = 0;
  for (std::size_t n = 0; n <= most; n += n < 400 ? 1 : 777)
    for (std::size_t to = 0; to < 66; ++to) {
      std::fill(target.begin(), target.end(), std::byte{255});
      omni::detail::fill_out(target.data() + to, n, std::byte{3});
      omni::detail::publish(stores::streams);
      for (std::size_t i = 0; i < target.size(); ++i)
        if (target[i] != (i >= to && i < to + n ? std::byte{3} : std::byte{255})) ++wrong;
    }
  CHECK(wrong == 0);
}
TEST_CASE("distance of cores: ranks that come are measured, and all end") {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    CAPTURE(ranks);
    probes p(ranks);
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&probe = p.all[static_cast<std::size_t>(r)]] {
        while (probe.progress()) std::this_thread::yield();
      });
    for (auto& t : threads) t.join();
    for (const auto& probe : p.all) {
      CHECK_FALSE(probe.result().round_trip < 0);
      CHECK(probe.result().known() == (probe.result().dirty_read > 0));
    }
    if (ranks == 1) CHECK_FALSE(p.all[0].result().known());
  }
}
TEST_CASE("distance of cores: two ranks find each other") {
  bool known = false;
  for (int i = 0; i < 5000 && !known; ++i) {  // a machine that is busy may keep them apart for seconds
    if (i % 10 == 9) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    probes p(2);
    std::latch both(2);
    std::thread other([&both, &probe = p.all[1]] {
      both.arrive_and_wait();
      while (probe.progress()) std::this_thread::yield();
    });
    both.arrive_and_wait();
    while (p.all[0].progress()) std::this_thread::yield();
    other.join();
    known = p.all[0].result().known();
    CHECK_FALSE(p.all[1].result().known());  // the lower rank measures
    if (!known) continue;
    const auto& d = p.all[0].result();
    CHECK(d.round_trip < 1e-3);
    for (const double e : d.exchange) CHECK((e > 0 && e < 1));
  }
  CHECK(known);
}
TEST_CASE("distance of cores: a rank that does not come is not waited for, least where there is no core for each") {
  for (const bool has_core : {true, false}) {
    probes p(2, has_core);
    for (auto& probe : p.all) {  // the second finds what the first has left
      int steps = 1;
      while (probe.progress()) ++steps;
      CHECK(steps < (has_core ? 1000 : 40));
      CHECK_FALSE(probe.result().known());
    }
  }
}
TEST_CASE("copies: short results stay in the caches on every machine, long ones on none") {
  constexpr std::size_t mib = std::size_t{1} << 20U;
  CHECK_FALSE(omni::detail::goes_past_caches(0));
  CHECK_FALSE(omni::detail::goes_past_caches(16 * mib - 1));
  CHECK(omni::detail::goes_past_caches(64 * mib));
  // As the system describes it: a cache of megabytes, or nothing.
  const auto cache = omni::detail::third_cache_bytes();
  CHECK((cache == 0 || (cache >= mib / 4 && cache < 4096 * mib)));
}
