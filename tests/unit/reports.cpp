// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <omni/omni.hpp>
#include <vector>

#include "../support/ranks.hpp"

// Reports, against blocks that are counted in the inputs.

namespace {

template <class Topology>
std::vector<omni::report> reports_of(const std::vector<std::vector<float>>& inputs, std::size_t block, const Topology& topology) {
  std::vector<omni::report> all(inputs.size());
  omni::transport::threads::run(static_cast<int>(inputs.size()), [&](omni::transport::threads& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    auto x = inputs[r];
    all[r] = omni::allreduce(comm, x, omni::fixed_blocks{block}, topology);
  });
  return all;
}
std::size_t count(const std::vector<bool>& marks) { return static_cast<std::size_t>(std::count(marks.begin(), marks.end(), true)); }

void check_bytes_balance(const std::vector<omni::report>& all) {
  std::size_t sent = 0, received = 0;
  for (const auto& r : all) {
    sent += r.bytes_sent;
    received += r.bytes_received;
  }
  CHECK(sent == received);
}

}  // namespace

TEST_CASE("reports: blocks, densities, bytes") {
  std::uint64_t seed = 900;
  for (const int ranks : {2, 3, 5, 8})
    for (const auto shape : patterns::all)
      for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{6400}, std::size_t{20011}}) {
        const std::size_t block = 64;
        const auto inputs = patterns::tensors<patterns::wild>(shape, ++seed, ranks, n, 0.0F);
        std::vector<bool> any((n + block - 1) / block, false);
        for (const auto& x : inputs) {
          const auto marks = oracle::nonnull_blocks(x, block, 0.0F);
          for (std::size_t b = 0; b < marks.size(); ++b) any[b] = any[b] || marks[b];
        }
        const auto where = testing::describe({ranks, n, shape, seed, true});
        CAPTURE(where);
        const auto shared = reports_of(inputs, block, omni::colocated{});
        const auto replicated = reports_of(inputs, block, omni::replicated{});
        for (const auto* reports : {&shared, &replicated})
          for (std::size_t r = 0; r < inputs.size(); ++r) {
            const auto& rep = (*reports)[r];
            const auto mine = count(oracle::nonnull_blocks(inputs[r], block, 0.0F));
            CHECK(rep.topology == (reports == &shared ? "colocated" : "replicated"));
            CHECK(rep.blocks_total == any.size());
            CHECK(rep.blocks_sent == mine);
            CHECK(rep.union_blocks == count(any));
            CHECK(rep.density == doctest::Approx(any.empty() ? 0.0 : static_cast<double>(mine) / static_cast<double>(any.size())));
            CHECK(rep.union_density ==
                  doctest::Approx(any.empty() ? 0.0 : static_cast<double>(count(any)) / static_cast<double>(any.size())));
            CHECK(std::fabs(static_cast<double>(rep.dense_bytes) -
                            2.0 * (ranks - 1) / ranks * static_cast<double>(n * sizeof(float))) <= 1);
            CHECK(rep.seconds >= 0);
            CHECK(rep.detect_seconds + rep.exchange_seconds + rep.fold_seconds + rep.deliver_seconds <= rep.seconds + 1e-6);
          }
        check_bytes_balance(shared);
        check_bytes_balance(replicated);
      }
}

TEST_CASE("reports: what travels is little more than what is not null") {
  const std::size_t n = 1 << 18U, block = 256;
  for (const int ranks : {2, 4, 7}) {
    const auto inputs = patterns::tensors<patterns::wild>(patterns::shape::hot_end, 5, ranks, n, 0.0F);
    const auto shared = reports_of(inputs, block, omni::colocated{});
    for (const auto& r : shared) {
      // The limit of the method, (N-1)/N (d + u) S, with room for headers and for shares that differ by a block.
      const auto own = static_cast<double>(r.blocks_sent) * 1024, all = static_cast<double>(r.union_blocks) * 1024;
      const auto limit = (ranks - 1.0) / ranks * (own + all);
      CHECK(static_cast<double>(r.bytes_sent) < 1.25 * limit + 4096.0 * ranks);
      CHECK(static_cast<double>(r.bytes_received) < 1.25 * limit + 4096.0 * ranks);
    }
  }
}

TEST_CASE("reports: a ring sends everything, whatever the density") {
  for (const int ranks : {2, 3, 5}) {
    const std::size_t n = 30000;
    const auto inputs = patterns::tensors<patterns::wild>(patterns::shape::single, 3, ranks, n, 0.0F);
    const auto all = reports_of(inputs, 100, omni::ring{});
    std::size_t payload = 0;
    for (const auto& r : all) {
      CHECK(r.topology == "ring");
      CHECK(r.blocks_total == 300);
      CHECK(r.blocks_sent == 300);
      payload += r.bytes_sent;
    }
    const std::size_t dense = 2 * static_cast<std::size_t>(ranks - 1) * n * sizeof(float);
    CHECK(payload >= dense);
    CHECK(payload <= dense + static_cast<std::size_t>(ranks * ranks) * 1000);
    check_bytes_balance(all);
  }
}

TEST_CASE("reports: the buffers of a call do not grow with the tensor") {
  for (const int ranks : {2, 8}) {
    const auto inputs = patterns::tensors<patterns::exact>(patterns::shape::none_null, 3, ranks, 500000, 0.0F);
    for (const auto& r : reports_of(inputs, 256, omni::colocated{})) CHECK(r.extra_bytes < (std::size_t{16} << 20U));
    for (const auto& r : reports_of(inputs, 256, omni::replicated{})) CHECK(r.extra_bytes < (std::size_t{16} << 20U));
  }
}
