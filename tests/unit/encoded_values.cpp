// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <omni/compress/compress.hpp>
#include <omni/omni.hpp>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "../support/encoded_calls.hpp"
#include "../support/leaks.hpp"
#include "../support/sharing.hpp"

// Calls with a compressor on tensors that go piece by piece through the memory that ranks share: there values travel, and not their
// codes. The bits are those of the codes, which `colocated` moves on the same ranks.

namespace {

using testing::sharing;

constexpr std::size_t recorded = std::size_t{2} << 20U;  // bytes of codes that are no more than a record

/// Some blocks of 64 are null on some ranks, some on all.
template <class T>
std::vector<T> gappy(std::size_t n, int rank) {
  std::mt19937 engine(static_cast<unsigned>(rank) + 3);
  std::vector<T> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto drawn = engine();
    const auto block = i / 64;
    if (block % 7 == 3 || block % 5 == static_cast<std::size_t>(rank)) continue;
    x[i] = static_cast<T>(static_cast<double>(drawn) / 0x1p32 - 0.4);
    if (drawn % 1000 == 0) x[i] = T{0};
  }
  return x;
}

/// Runs a call by automatic and by colocated, out of place and in place; all must have the same bits on all ranks.
/// @param least elements, and some more, so that the last block and the last piece are short.
template <class T = float, std::size_t more = 12345, class... Arguments>
void expect_bits_of_codes(int ranks, std::size_t least, const Arguments&... arguments) {
  const auto n = least + more;
  std::mutex lock;
  std::vector<T> wanted;
  std::atomic<int> by_values = 0, right = 0;
  sharing::run(ranks, [&](sharing& comm) {
    const auto in = gappy<T>(n, comm.rank());
    std::vector<T> codes(n, T{7}), values(n, T{7}), in_place = in;
    const auto c = omni::allreduce(comm, in, codes, omni::colocated{}, arguments...);
    const auto v = omni::allreduce(comm, in, values, arguments...);
    omni::allreduce(comm, in_place, arguments...);
    right += testing::differ(values, codes).empty() && testing::differ(in_place, codes).empty() ? 1 : 0;
    // Values are longer than codes, and what the report says of codes stays.
    by_values += v.bytes_sent > c.bytes_sent && v.encoded_bytes == c.encoded_bytes && v.blocks_sent == c.blocks_sent &&
                         v.tensor_bytes == c.tensor_bytes && v.topology == "colocated"
                     ? 1
                     : 0;
    const std::lock_guard<std::mutex> guard(lock);
    if (wanted.empty()) wanted = codes;
    right += testing::differ(codes, wanted).empty() ? 1 : 0;
    right += std::any_of(codes.begin(), codes.end(), [](T x) { return x != T{0}; }) ? 1 : 0;
  });
  CAPTURE(ranks);
  CAPTURE(n);
  CHECK(by_values.load() == ranks);
  CHECK(right == 3 * ranks);
}

/// Values times the length of their block. Throws where one is large.
struct lengthened {
  static constexpr std::string_view name = "lengthened";
  static constexpr bool unbiased = false;
  template <class A>
  static std::size_t bytes(std::size_t n) {
    return 2 * n;
  }
  template <class A>
  static void encode(std::span<const A> x, std::uint32_t /*key*/, std::byte* to) {
    std::vector<A> y(x.size());
    round(x, 0, std::span<A>(y));
    for (const A v : y) {
      const omni::bfloat16 longer(static_cast<float>(v));
      std::memcpy(to, &longer, sizeof(longer));
      to += sizeof(longer);
    }
  }
  template <class A>
  static void decode(const std::byte* from, std::uint32_t /*key*/, std::span<A> to) {
    for (auto& v : to) {
      omni::bfloat16 longer;
      std::memcpy(&longer, from, sizeof(longer));
      from += sizeof(longer);
      v = static_cast<A>(static_cast<float>(longer));
    }
  }
  template <class A>
  static void round(std::span<const A> x, std::uint32_t /*key*/, std::span<A> y) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] > 1000) throw std::domain_error("too large");
      y[i] = static_cast<A>(static_cast<float>(omni::bfloat16(static_cast<float>(x[i]) * static_cast<float>(x.size()))));
    }
  }
};

/// So many that their codes are no record.
std::size_t elements_for(double bits) { return static_cast<std::size_t>(static_cast<double>(recorded) * 8 / bits); }

}  // namespace

TEST_CASE("encoded values: every quantiser has the bits of its codes") {
  for (const int ranks : {2, 3, 5}) {
    CAPTURE(ranks);
    expect_bits_of_codes(ranks, elements_for(9), omni::natural{.seed = 5});
    expect_bits_of_codes(ranks, elements_for(8), omni::eight_bits(5));
    expect_bits_of_codes(ranks, elements_for(16), omni::to<omni::bfloat16>{});
  }
  expect_bits_of_codes(2, elements_for(2), omni::ternary(6));
  expect_bits_of_codes(3, elements_for(4), omni::dithering{.levels = 4, .seed = 6});
  expect_bits_of_codes(3, elements_for(4), omni::natural_dithering{.levels = 4, .seed = 6});
  expect_bits_of_codes(4, elements_for(16), omni::to<omni::half>{});
  expect_bits_of_codes(3, elements_for(16), lengthened{});
}

TEST_CASE("encoded values: other elements, blocks, results and detectors") {
  const auto n = elements_for(9);
  expect_bits_of_codes<double>(3, elements_for(12), omni::natural{.seed = 5});
  expect_bits_of_codes<double>(2, elements_for(8), omni::eight_bits(5));
  for (const std::size_t block : {std::size_t{64}, std::size_t{1000}, std::size_t{2048}})
    expect_bits_of_codes(3, n, omni::natural{.seed = 5}, omni::fixed_blocks{block});
  expect_bits_of_codes(3, n, omni::natural{.seed = 5, .results = omni::result_form::as_they_are});
  expect_bits_of_codes(2, n, omni::natural{.seed = 5}, omni::scalar_detector{});
}

TEST_CASE("encoded values: last pieces of every length, and tensors that are one piece") {
  constexpr std::size_t piece = (std::size_t{512} << 10U) / sizeof(float);  // of ranks that are near
  const omni::natural natural{.seed = 5}, once{.seed = 5, .results = omni::result_form::as_they_are};
  expect_bits_of_codes<float, 1>(3, 16 * piece, natural);
  expect_bits_of_codes<float, 257>(4, 16 * piece, natural);
  expect_bits_of_codes<double, 300>(3, 16 * piece, natural);
  expect_bits_of_codes<float, 100>(2, 16 * piece, natural);  // far
  // Results that are no codes fit no record, so these may be short.
  expect_bits_of_codes<float, 0>(3, 5000, once);
  expect_bits_of_codes<float, 0>(3, piece, once);
  expect_bits_of_codes<float, 1>(3, piece, once);
  expect_bits_of_codes<float, 255>(3, piece, once);
  expect_bits_of_codes<float, 256>(3, piece, once);
  expect_bits_of_codes<float, 1023>(3, piece, once);
  expect_bits_of_codes<float, 1024>(3, piece, once);
  expect_bits_of_codes<float, 100>(2, 4 * piece, once);
}

TEST_CASE("encoded values: what was encoded for a record is not encoded again, though the memory is too slow for it") {
  constexpr std::size_t n = 200000;
  std::atomic<int> right = 0;
  const auto run = [&](double exchange) {
    sharing::run(
        2,
        [&](sharing& comm) {
          const auto in = testing::normal(n, comm.rank());
          std::vector<float> out(n), codes(n);
          omni::error_feedback a(n, omni::to<omni::bfloat16>{}), b(n, omni::to<omni::bfloat16>{});
          for (int step = 0; step < 3; ++step) {
            omni::allreduce(comm, in, out, a);
            omni::allreduce(comm, in, codes, b, omni::colocated{});
            right += testing::differ(out, codes).empty() && std::ranges::equal(a.error(), b.error()) ? 1 : 0;
          }
        },
        [](int) { return true; }, exchange);
  };
  run(1e-6);
  run(60e-6);
  CHECK(right == 2 * 2 * 3);
}

TEST_CASE("encoded values: after sparsifiers") {
  expect_bits_of_codes(3, elements_for(9), omni::random_blocks{.share = 0.3, .seed = 2} | omni::natural{});
  expect_bits_of_codes(2, elements_for(9), omni::random_blocks{.share = 0.3, .same = true, .seed = 2} | omni::natural{});
  expect_bits_of_codes(3, elements_for(8), omni::top_blocks{.share = 0.3} | omni::eight_bits(3));
}

TEST_CASE("encoded values: what is remembered is the same, and so are estimates") {
  const auto n = elements_for(9) + 777;
  std::atomic<int> right = 0;
  sharing::run(3, [&](sharing& comm) {
    const auto in = gappy<float>(n, comm.rank());
    std::vector<float> values(n), codes(n);
    const auto with_feedback = [&] { return omni::error_feedback(n, omni::to<omni::bfloat16>{}); };
    auto a = with_feedback(), b = with_feedback();
    const auto with_differences = [&] { return omni::diana(n, omni::natural{.seed = 4}); };
    auto c = with_differences(), d = with_differences();
    for (int step = 0; step < 2; ++step) {
      const auto r = omni::allreduce(comm, in, values, a);
      const auto s = omni::allreduce(comm, in, codes, b, omni::colocated{});
      right += testing::differ(values, codes).empty() && std::ranges::equal(a.error(), b.error()) ? 1 : 0;
      right += r.bytes_sent > s.bytes_sent ? 1 : 0;
      omni::allreduce(comm, in, values, c);
      omni::allreduce(comm, in, codes, d, omni::colocated{});
      std::ostringstream kept_by_values, kept_by_codes;
      c.save(kept_by_values);
      d.save(kept_by_codes);
      right += testing::differ(values, codes).empty() && kept_by_values.str() == kept_by_codes.str() ? 1 : 0;
    }
  });
  CHECK(right == 3 * 2 * 3);
}

TEST_CASE("encoded values: a quantiser that throws on one rank is heard of by the others") {
  sharing::run(3, [](sharing& comm) {
    const testing::leaks_are_meant meant;
    std::vector<float> x(2 * recorded, 1.0F);
    x[recorded] = comm.rank() == 1 ? 1e9F : 2.0F;
    const auto call = [&] { omni::allreduce(comm, x, lengthened{}, omni::deadline(std::chrono::seconds(20))); };
    if (comm.rank() == 1) CHECK_THROWS_WITH(call(), "too large");
    else CHECK_THROWS_AS(call(), omni::protocol);
  });
  // The sum is too large for the rank that folds it, whichever that is.
  std::atomic<int> told = 0, failed = 0;
  sharing::run(3, [&](sharing& comm) {
    const testing::leaks_are_meant meant;
    std::vector<float> x(2 * recorded, 1.0F);
    x[recorded] = 2;  // 3 x 2 x 256 = 1536
    try {
      omni::allreduce(comm, x, lengthened{}, omni::deadline(std::chrono::seconds(20)));
    } catch (const std::domain_error&) {
      ++failed;
    } catch (const omni::protocol&) {
      ++told;
    }
  });
  CHECK(failed == 1);
  CHECK(told == 2);
}

TEST_CASE("encoded values: numbers that are none come through") {
  const auto n = elements_for(9) + 5;
  std::atomic<int> right = 0;
  sharing::run(3, [&](sharing& comm) {
    std::vector<float> x(n, 1.0F);
    x[n - 1] = std::numeric_limits<float>::infinity();
    x[70000] = std::numeric_limits<float>::max();
    if (comm.rank() == 1) x[5] = std::numeric_limits<float>::quiet_NaN();
    omni::allreduce(comm, x, omni::natural{});
    right += x[0] == 2 || x[0] == 4 ? 1 : 0;  // 3, as a power of two
    right += x[n - 1] > std::numeric_limits<float>::max() && x[5] != x[5] && x[70000] > 1e38F ? 1 : 0;
  });
  CHECK(right == 2 * 3);
}

TEST_CASE("encoded values: requests, plans and many calls") {
  const auto n = elements_for(9) + 100;
  std::atomic<int> right = 0;
  sharing::run(2, [&](sharing& comm) {
    const auto in = gappy<float>(n, comm.rank());
    std::vector<float> wanted(n), out(n), other(n);
    omni::allreduce(comm, in, wanted, omni::colocated{}, omni::natural{.seed = 1});
    auto a = omni::iallreduce(comm, in, out, omni::natural{.seed = 1});
    auto b = omni::iallreduce(comm, in, other, omni::natural{.seed = 1});
    a.wait();
    b.wait();
    right += testing::differ(out, wanted).empty() && testing::differ(other, wanted).empty() ? 1 : 0;
    omni::plan p(comm, n, omni::natural{.seed = 1});
    for (int k = 0; k < 2; ++k) {
      out = in;
      p.run(out);
      right += testing::differ(out, wanted).empty() ? 1 : 0;
    }
  });
  CHECK(right == 3 * 2);
}
