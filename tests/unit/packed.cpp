// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <omni/detail/detect/elements.hpp>
#include <omni/detail/wire/packed_block.hpp>
#include <omni/omni.hpp>
#include <span>
#include <string>
#include <vector>

#include "../support/effort.hpp"
#include "../support/ranks.hpp"
#include "../support/served.hpp"
#include "../support/sharing.hpp"
#include "../support/who_packs.hpp"

// Packed blocks: the kernels, the bytes of one block, and calls that send such.

namespace {

using omni::detail::block_packer;
using omni::detail::null_element;
using testing::blocks_of;
using testing::who_packs;
using bytes = std::vector<std::byte>;

constexpr std::array<std::size_t, 9> element_sizes{1, 2, 3, 4, 8, 12, 16, 24, 64};

/// An element that is null: one byte over and over, or not.
bytes null_of(std::size_t size, bool plain) {
  bytes e(size, std::byte{0});
  if (!plain) e.back() = std::byte{0x80};
  return e;
}
/// n elements from `offset` bytes on, of which about so many in a thousand are not null; some differ in one bit only.
bytes make_block(patterns::generator& g, const bytes& null, std::size_t n, std::size_t offset, std::size_t thousandths) {
  bytes b(offset, std::byte{0x55});
  for (std::size_t i = 0; i < n; ++i) {
    auto e = null;
    if (g() % 1000 < thousandths) {
      const auto at = g() % e.size();
      e[at] ^= g() % 2 == 0 ? std::byte{1} : static_cast<std::byte>(1 + g() % 255);
    }
    b.insert(b.end(), e.begin(), e.end());
  }
  return b;
}
std::vector<bool> not_null(std::span<const std::byte> block, const bytes& null) {
  std::vector<bool> found;
  for (; !block.empty(); block = block.subspan(null.size())) found.push_back(!std::equal(null.begin(), null.end(), block.begin()));
  return found;
}
bytes pack(std::span<const std::byte> block, std::size_t n, const null_element& null) {
  block_packer packer;
  bytes to(packer.measure(block.data(), n, null));
  packer.write(to.data(), omni::detail::stores::vectors);
  return to;
}

bool is_plain(std::span<const std::byte> packed) { return packed.size() > 3 && (packed[3] & std::byte{0xc0}) == std::byte{0}; }
/// What read_packed() makes of it: a block that has those elements; or nothing.
bytes read(std::span<const std::byte> packed, std::size_t n, const bytes& null, std::size_t& length) {
  std::vector<std::uint64_t> bits((n + 63) / 64, ~std::uint64_t{0});
  const auto got = omni::detail::read_packed(packed, n, null.size(), bits);
  length = got.bytes;
  if (length == 0) return {};
  bytes block;
  std::size_t k = 0;
  for (std::size_t i = 0; i < 64 * bits.size(); ++i) {
    const bool is_set = (bits[i / 64] >> i % 64 & 1U) != 0;
    if (i >= n) CHECK(!is_set);
    else
      block.insert(block.end(), is_set ? got.elements + k * null.size() : null.data(),
                   is_set ? got.elements + (k + 1) * null.size() : null.data() + null.size());
    k += is_set ? 1 : 0;
  }
  CHECK(k == got.found);
  return block;
}

/// Elements of floats of which one in `every` is 1 + its index, the first of them by the rank.
std::vector<float> scattered(std::size_t n, std::size_t every, int rank) {
  std::vector<float> x(n, 0.0F);
  for (auto i = static_cast<std::size_t>(rank); i < n; i += every) x[i] = static_cast<float>(1 + i % 100);
  return x;
}

}  // namespace

TEST_CASE("packed: the elements that are not null are found, at all lengths and alignments") {
  auto g = patterns::make_generator(20261, 0);
  for (const auto size : element_sizes)
    for (const bool plain : {true, false})
      for (std::size_t n = 0; n < 150; n += testing::few && n > 70 ? 13 : 1) {
        const auto element = null_of(size, plain);
        const null_element null(element.data(), size);
        const auto offset = g() % 17;
        const auto block = make_block(g, element, n, offset, n % 3 == 0 ? 10 : n % 3 == 1 ? 300 : 1000);
        const auto data = std::span(block).subspan(offset);
        std::vector<std::uint64_t> bits(omni::detail::words_of(n) + 1, 0xdeadU), portable = bits;
        const auto found = omni::detail::find_elements(data.data(), n, null, bits);
        CHECK(omni::detail::find_elements_portable(data.data(), n, null, portable) == found);
        CHECK(bits == portable);
        CHECK(bits.back() == 0xdeadU);
        const auto wanted = not_null(data, element);
        std::size_t count = 0;
        bool right = true;
        for (std::size_t i = 0; i < n; ++i) {
          count += wanted[i] ? 1 : 0;
          right = right && (bits[i / 64] >> (i % 64) & 1U) == (wanted[i] ? 1U : 0U);
        }
        CHECK(right);
        CHECK(found == count);
      }
}

#if OMNI_DETAIL_ELEMENT_VECTORS
namespace {

// A kind of instructions against one element after the other. Nothing else is written.
template <class Find, class Gather, class Scatter>
void check_kernels(std::size_t size, const Find& find, const Gather& gather, const Scatter& scatter) {
  using namespace omni::detail;
  auto g = patterns::make_generator(20263, static_cast<int>(size));
  constexpr int guard = 64;  // bytes after it: sanitizers do not see what masked stores write
  std::vector<std::size_t> lengths{1023, 1025, 2100, 4095, 4097, 5000};  // AVX-512 takes up to 4096 at a time
  for (std::size_t n = 1; n < 700; n += testing::few ? 7 : 1) lengths.push_back(n);
  for (const bool plain : {true, false})
    for (const auto n : lengths) {
      const auto element = null_of(size, plain);
      const null_element null(element.data(), size);
      const auto offset = g() % 67;
      const auto memory = make_block(g, element, n, offset, std::array<std::size_t, 5>{4, 30, 200, 700, 1000}[n % 5]);
      const auto* const block = memory.data() + offset;
      std::vector<std::uint64_t> bits(words_of(n)), words(n / 64);
      const auto total = find_elements_portable(block, n, null, bits);
      CHECK(find(block, null, std::span(words)) == count_bits_portable(std::span(bits).first(words.size())));
      CHECK(std::equal(words.begin(), words.end(), bits.begin()));

      bytes wanted(total * size), gathered(offset + total * size + guard, std::byte{0x11});
      gather_elements_portable(block, size, bits, wanted.data());
      gather(block, std::span<const std::uint64_t>(bits), total, gathered.data() + offset);
      const auto is_untouched = [offset](const bytes& all, std::byte value) {
        const auto same = [value](std::byte b) { return b == value; };
        return std::all_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(offset), same) &&
               std::all_of(all.end() - guard, all.end(), same);
      };
      CHECK(std::equal(wanted.begin(), wanted.end(), gathered.begin() + static_cast<std::ptrdiff_t>(offset)));
      CHECK(is_untouched(gathered, std::byte{0x11}));

      bytes there(n * size), scattered(offset, std::byte{0x22});
      for (auto& b : there) b = static_cast<std::byte>(g());
      scattered.insert(scattered.end(), there.begin(), there.end());
      scattered.insert(scattered.end(), guard, std::byte{0x22});
      scatter_elements_portable(wanted.data(), size, bits, there.data());
      scatter(wanted.data(), std::span<const std::uint64_t>(bits), total, scattered.data() + offset);
      CHECK(std::equal(there.begin(), there.end(), scattered.begin() + static_cast<std::ptrdiff_t>(offset)));
      CHECK(is_untouched(scattered, std::byte{0x22}));
    }
}
template <std::size_t Size>
void check_kernels_of(bool avx2, bool avx512) {
  using namespace omni::detail;
  if (avx2)
    check_kernels(
        Size, [](auto... a) { return find_elements_avx2<Size>(a..., 64); }, [](auto... a) { gather_elements_avx2<Size>(a...); },
        [](auto... a) { scatter_elements_avx2<Size>(a...); });
  if (avx512)
    check_kernels(
        Size, [](auto... a) { return find_elements_avx512<Size>(a..., 64); },
        [](auto b, auto bits, auto /*total*/, auto to) { gather_elements_avx512<Size>(b, bits, to); },
        [](auto from, auto bits, auto /*total*/, auto b) { scatter_elements_avx512<Size>(from, bits, b); });
}

}  // namespace

TEST_CASE("packed: each kind of instructions finds, gathers and scatters what one element after the other does") {
  using namespace omni::detail;
  const auto best = best_for_elements();
  const bool avx2 = best != element_instructions::words, avx512 = best == element_instructions::avx512;
  check_kernels_of<1>(avx2, avx512);
  check_kernels_of<2>(avx2, avx512);
  check_kernels_of<4>(avx2, avx512);
  check_kernels_of<8>(avx2, avx512);
  auto g = patterns::make_generator(20264, 0);
  for (int k = 0; avx2 && k < 300; ++k) {
    std::vector<std::uint64_t> bits(g() % 70), of(bits.size());
    for (auto& w : bits) w = g();
    for (auto& w : of) w = g() % 3 == 0 ? 0 : k % 2 == 0 ? g() : g() & g() & g() & g();
    std::vector<std::uint64_t> wanted(words_of(count_bits_portable(of)) + 1, 7), picked = wanted;
    pick_bits_portable(bits, of, wanted);
    pick_bits_bmi2(bits, of, picked);
    CHECK(picked == wanted);
    CHECK(count_bits_popcnt(of) == count_bits_portable(of));
  }
}
#endif

TEST_CASE("packed: the bits that are picked are moved together") {
  const std::array<std::uint64_t, 3> bits{0b1011'0110U, 0, ~std::uint64_t{0}}, of{0b0011'1110U, 0b1U, ~std::uint64_t{0}};
  std::array<std::uint64_t, 2> to{5, 5};  // 1, 1, 0, 1, 1, low bits first; 0; 64 ones
  omni::detail::pick_bits(bits, of, to);
  CHECK(to[0] == (0b01'1011U | ~std::uint64_t{0} << 6U));
  CHECK(to[1] == 0b11'1111U);
}

TEST_CASE("packed: what is unpacked is the block, and nothing beside it is written") {
  auto g = patterns::make_generator(20262, 0);
  for (const auto size : element_sizes)
    for (const bool plain : {true, false})
      for (const std::size_t n : std::array<std::size_t, 9>{1, 2, 63, 64, 65, 255, 256, 257, 1000})
        for (const std::size_t thousandths : std::array<std::size_t, 6>{0, 3, 40, 200, 700, 1000}) {
          const auto element = null_of(size, plain);
          const null_element null(element.data(), size);
          const auto block = make_block(g, element, n, 0, thousandths);
          auto packed = pack(block, n, null);
          // The shortest of three forms: all; 64 bits for 64 elements and those that are not null; their indexes, and the same.
          const auto wanted = not_null(block, element);
          const auto found = static_cast<std::size_t>(std::count(wanted.begin(), wanted.end(), true));
          CHECK(packed.size() ==
                4 + std::min({n * size, (n + 63) / 64 * 8 + found * size, found * (n > 256 ? 2 : 1) + found * size}));
          const auto length = packed.size();
          packed.resize(length + g() % 100, std::byte{0x77});  // the next block
          bytes to(n * size + 64, std::byte{0x33});
          CHECK(omni::detail::unpack_block(packed, n, null, to.data()) == length);
          CHECK(std::equal(block.begin(), block.end(), to.begin()));
          CHECK(std::all_of(to.begin() + static_cast<std::ptrdiff_t>(n * size), to.end(),
                            [](std::byte b) { return b == std::byte{0x33}; }));
          // Where all are null already only the others are written.
          const auto empty = make_block(g, element, n, 0, 0);
          to.assign(empty.begin(), empty.end());
          CHECK(omni::detail::unpack_block(packed, n, null, to.data(), true) == length);
          CHECK(to == block);
          std::size_t read_bytes = 0;
          const auto read_block = read(packed, n, element, read_bytes);
          CHECK(read_bytes == length);
          CHECK(read_block == block);
          CHECK(omni::detail::packed_head(packed, n).elements == (is_plain(packed) ? n : found));
        }
}

TEST_CASE("packed: what is cut short or lies is refused, and nothing beside the block is written") {
  auto g = patterns::make_generator(20263, 0);
  const float zero = 0;
  const null_element null(&zero, sizeof(zero));
  std::size_t refused = 0;
  for (const std::size_t n : std::array<std::size_t, 5>{5, 64, 100, 256, 300})
    for (const std::size_t thousandths : std::array<std::size_t, 3>{10, 300, 1000}) {
      const auto packed = pack(make_block(g, null_of(4, true), n, 0, thousandths), n, null);
      for (std::size_t shorter = 0; shorter < packed.size(); ++shorter) {
        bytes to(n * 4);
        CHECK(omni::detail::unpack_block(std::span(packed).first(shorter), n, null, to.data()) == 0);
        std::size_t length = 1;
        read(std::span(packed).first(shorter), n, null_of(4, true), length);
        CHECK(length == 0);
      }
      for (int i = 0; i < testing::draws(2000); ++i) {
        auto lie = packed;
        for (std::size_t k = 0; k <= g() % 2; ++k)
          lie[g() % std::min<std::size_t>(lie.size(), g() % 2 == 0 ? 4 : 60)] = static_cast<std::byte>(g());
        bytes to(n * 4 + 4096, std::byte{0x33});
        const auto length = omni::detail::unpack_block(lie, n, null, to.data());
        if (length == 0) ++refused;
        std::size_t read_bytes = 0;
        const auto block = read(lie, n, null_of(4, true), read_bytes);
        CHECK(read_bytes == length);
        if (read_bytes != 0) CHECK(std::equal(block.begin(), block.end(), to.begin()));
        CHECK(std::all_of(to.begin() + static_cast<std::ptrdiff_t>(n * 4), to.end(),
                          [](std::byte b) { return b == std::byte{0x33}; }));
      }
    }
  CHECK(refused > static_cast<std::size_t>(testing::draws(2000)));
  const auto packed_of = [](std::initializer_list<unsigned> all) {
    bytes b;
    for (const auto v : all) b.push_back(static_cast<std::byte>(v));
    b.resize(100, std::byte{1});
    return b;
  };
  std::array<float, 10> to{};
  const auto unpack = [&](const bytes& b) {
    const auto length = omni::detail::unpack_block(b, 10, null, reinterpret_cast<std::byte*>(to.data()));
    std::size_t read_bytes = 0;
    read(b, 10, null_of(4, true), read_bytes);
    CHECK(read_bytes == length);
    return length;
  };
  CHECK(unpack(packed_of({2, 0, 0, 0x80, 3, 9})) == 4 + 2 + 8);                    // a list of two
  CHECK(unpack(packed_of({2, 0, 0, 0x80, 3, 10})) == 0);                           // past the end
  CHECK(unpack(packed_of({2, 0, 0, 0x80, 3, 3})) == 0);                            // twice the same
  CHECK(unpack(packed_of({2, 0, 0, 0x80, 9, 3})) == 0);                            // backwards
  CHECK(unpack(packed_of({11, 0, 0, 0x80, 0, 1, 2, 3})) == 0);                     // more than the block has
  CHECK(unpack(packed_of({2, 0, 0, 0x40, 3, 0, 0, 0, 0, 0, 0, 0})) == 4 + 8 + 8);  // a bitmap of two
  CHECK(unpack(packed_of({2, 0, 0, 0x40, 7, 0, 0, 0, 0, 0, 0, 0})) == 0);          // of three
  CHECK(unpack(packed_of({2, 0, 0, 0x40, 1, 0, 0, 0, 0, 0, 0, 0})) == 0);          // of one
  CHECK(unpack(packed_of({2, 0, 0, 0x40, 1, 4, 0, 0, 0, 0, 0, 0})) == 0);          // past the end
  CHECK(unpack(packed_of({0, 0, 0, 0})) == 4 + 40);                                // all of them
  CHECK(unpack(packed_of({1, 0, 0, 0})) == 0);
  CHECK(unpack(packed_of({1, 0, 0, 0xc0})) == 0);  // a form that there is not
}

TEST_CASE("packed: the bits of calls that do not pack, whoever packs, and the report") {
  constexpr std::size_t n = 40000, every = 50;
  for (const int ranks : {2, 3, 5}) {
    std::vector<std::vector<float>> inputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(scattered(n, every, 3 * r));
    const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
    for (const int who : who_packs)
      for (const bool by_owners : {true, false}) {
        std::vector<std::string> wrong(inputs.size());
        std::vector<omni::report> reports(inputs.size());
        omni::transport::threads::run(ranks, [&](omni::transport::threads& comm) {
          const auto r = static_cast<std::size_t>(comm.rank());
          const auto blocks = blocks_of(who, r);
          auto x = inputs[r];
          reports[r] = by_owners ? omni::allreduce(comm, x, blocks, omni::colocated{})
                                 : omni::allreduce(comm, x, blocks, omni::replicated{});
          wrong[r] = testing::difference(x, wanted);
        });
        CAPTURE(ranks);
        CAPTURE(who);
        CAPTURE(by_owners);
        for (std::size_t r = 0; r < inputs.size(); ++r) {
          CHECK(wrong[r] == "");
          const bool packed = blocks_of(who, r).pack != omni::packing::never;
          CHECK((reports[r].bytes_saved > 0) == packed);
          if (by_owners) continue;
          // Every block has some that are not null, and all of them travel.
          std::size_t elements = 0;
          for (const auto v : inputs[r]) elements += v != 0.0F ? 1 : 0;
          CHECK(reports[r].elements_sent == (packed ? elements : n));
          // A block's 1024 bytes become 4 and 5 for each element.
          const auto last = n % 256 * 4, whole = n / 256 * 1024;
          const auto saved = whole + last - (n + 255) / 256 * 4 - elements * 5;
          CHECK(reports[r].bytes_saved == (packed ? saved * (inputs.size() - 1) : 0));
        }
      }
  }
}

TEST_CASE("packed: through dedicated servers, whoever packs") {
  constexpr std::size_t n = 40000;
  for (const int workers : {1, 2, 3, 5})
    for (const int who : who_packs) {
      std::vector<std::vector<float>> inputs;
      for (int r = 0; r < workers; ++r) inputs.push_back(scattered(n, 50, 3 * r));
      const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
      CAPTURE(workers);
      CAPTURE(who);
      testing::served<2>::run(workers, [&](auto& cluster) {
        const auto r = static_cast<std::size_t>(cluster.rank());
        const auto blocks = blocks_of(who, r);
        auto x = inputs[r];
        const auto report = omni::allreduce(cluster, x, blocks);
        CHECK(testing::difference(x, wanted) == "");
        CHECK((report.bytes_saved > 0) == (blocks.pack != omni::packing::never && workers > 1));
      });
    }
  // Another identity, and elements of two bytes.
  std::vector<std::vector<double>> doubles;
  std::vector<std::vector<omni::half>> halves;
  for (int r = 0; r < 3; ++r) {
    doubles.push_back(
        patterns::tensor<patterns::wild>(patterns::shape::uniform, 5, r, 3, n, std::numeric_limits<double>::infinity()));
    halves.push_back(patterns::tensor<patterns::wild>(patterns::shape::uniform, 6, r, 3, n, omni::half{}));
  }
  const omni::fixed_blocks blocks{.elements = 100, .pack = omni::packing::always};
  CHECK(testing::allreduce_over<testing::served<3>>(doubles, oracle::fold_in_rank_order(doubles, oracle::twin<omni::min>{}), true,
                                                    omni::min{}, blocks) == "");
  CHECK(testing::allreduce_over<testing::served<1>>(halves, oracle::fold_in_rank_order(halves, oracle::twin<omni::sum>{}), false,
                                                    omni::sum{}, blocks) == "");
}

TEST_CASE("packed: dense tensors, small ones and operations without an identity are left alone") {
  const auto saved = [](std::size_t n, std::size_t every, const auto&... more) {
    std::vector<std::size_t> s(2);
    omni::transport::threads::run(2, [&](omni::transport::threads& comm) {
      auto x = scattered(n, every, 0);
      s[static_cast<std::size_t>(comm.rank())] = omni::allreduce(comm, x, omni::colocated{}, more...).bytes_saved;
    });
    CHECK(s[0] == s[1]);
    return s[0];
  };
  CHECK(saved(100000, 100) > 0);
  CHECK(saved(100000, 1) == 0);
  CHECK(saved(1000, 100) == 0);
  CHECK(saved(1000, 100, omni::fixed_blocks{.pack = omni::packing::always}) > 0);
  CHECK(saved(100000, 100, omni::fixed_blocks{.pack = omni::packing::never}) == 0);
  CHECK(saved(100000, 100, omni::fixed_blocks{.pack = omni::packing::always}, [](float a, float b) { return a + b; }) == 0);
}

TEST_CASE("packed: -0.0 and NaN are not null, denormals and cancelled sums keep their bits") {
  constexpr std::size_t n = 3000;
  const auto special = [](int rank) {
    std::vector<float> x(n, 0.0F);
    for (std::size_t i = 0; i < n; i += 7) {
      switch (i / 7 % 5) {
        case 0:
          x[i] = -0.0F;
          break;
        case 1:
          x[i] = rank % 2 == 0 ? 1.5F : -1.5F;
          break;
        case 2:
          x[i] = rank == 1 ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
          break;
        case 3:
          x[i] = std::numeric_limits<float>::denorm_min();
          break;
        default:
          x[i] = rank == 0 ? std::numeric_limits<float>::infinity() : 0.0F;
      }
    }
    return x;
  };
  for (const int ranks : {2, 3, 4}) {
    std::vector<std::vector<float>> inputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(special(r));
    const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
    for (const bool in_place : {true, false})
      for (const std::size_t block : std::array<std::size_t, 3>{16, 256, 100000}) {
        const omni::fixed_blocks blocks{.elements = block, .pack = omni::packing::always};
        CHECK(testing::allreduce_over<omni::transport::threads>(inputs, wanted, in_place, blocks, omni::colocated{}) == "");
        CHECK(testing::allreduce_over<omni::transport::threads>(inputs, wanted, in_place, blocks, omni::replicated{}) == "");
        CHECK(testing::allreduce_over<testing::sharing>(inputs, wanted, in_place, blocks, omni::colocated{}) == "");
        CHECK(testing::allreduce_over<testing::sharing>(inputs, wanted, in_place, blocks) == "");
      }
  }
}

TEST_CASE("packed: groups, plans and calls that do not block") {
  std::vector<std::vector<float>> inputs;
  for (int r = 0; r < 3; ++r) inputs.push_back(scattered(30000, 60, 5 * r));
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{});
  const omni::fixed_blocks blocks{.pack = omni::packing::always};
  omni::transport::threads::run(3, [&](omni::transport::threads& comm) {
    const auto& in = inputs[static_cast<std::size_t>(comm.rank())];
    auto x = in, y = in, z = in;
    auto request = omni::iallreduce(comm, x, blocks, omni::colocated{});
    auto other = omni::iallreduce(comm, y, blocks, omni::replicated{});
    CHECK(request.wait().bytes_saved > 0);
    CHECK(other.wait().bytes_saved > 0);
    CHECK(testing::difference(x, wanted) == "");
    CHECK(testing::difference(y, wanted) == "");
    std::vector<std::vector<float>> group{in, in};
    CHECK(omni::allreduce(comm, group, blocks, omni::colocated{}).bytes_saved > 0);
    for (const auto& g : group) CHECK(testing::difference(g, wanted) == "");
    omni::plan plan{comm, z.size(), omni::sum{}, blocks, omni::colocated{}};
    for (int i = 0; i < 3; ++i) {
      z = in;
      CHECK(plan.run(z).bytes_saved > 0);
      CHECK(testing::difference(z, wanted) == "");
    }
  });
}
