// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <omni/cuda/device_call.hpp>
#include <omni/detect/scalar.hpp>
#include <span>
#include <vector>

#include "../support/late_device.hpp"
#include "../support/patterns.hpp"

// The kernels of the device path, thread by thread on the host: every block size, length and alignment against plain loops.

namespace {

using namespace omni::detail;

/// Memory that begins `shift` bytes past a multiple of 256, and ends where it says: sanitizers see a read past either end.
class placed {
 public:
  placed(std::size_t bytes, std::size_t shift) : shift_(shift) {
    memory_ = static_cast<std::byte*>(::operator new (bytes + shift, std::align_val_t{256}));
  }
  placed(const placed&) = delete;
  placed& operator=(const placed&) = delete;
  ~placed() { ::operator delete (memory_, std::align_val_t{256}); }
  [[nodiscard]] std::byte* data() const { return memory_ + shift_; }

 private:
  std::byte* memory_;
  std::size_t shift_;
};

template <class T>
struct outcome {
  std::vector<std::uint32_t> marks, bases;
  std::vector<std::byte> packed;
  std::uint32_t count = 0;
};

/// Looks at the blocks of a chunk that a kernel has marked: f(tile, block in it, elements), in their order. How many marks are
/// wrong.
template <class T, class F>
int check_marks(const compact_job& job, const std::vector<T>& x, std::size_t block, const T& null, const F& f) {
  int wrong = 0;
  for (std::uint32_t t = 0; t < job.tile_count; ++t)
    for (std::uint32_t i = 0; i < job.cut.words * 32; ++i) {
      const auto b = (job.first_tile + t) * job.cut.tile_blocks + i;
      const bool marked = (job.marks[t * job.cut.words + i / 32] >> (i % 32) & 1U) != 0;
      if (i >= job.cut.tile_blocks || b >= job.cut.blocks) {
        if (marked) ++wrong;
        continue;
      }
      const auto part = std::span<const T>(x).subspan(b * block, std::min(block, x.size() - b * block));
      const bool wanted = job.all || omni::scalar_detector{}.mark(part, part.size(), null) != 0;
      if (marked != wanted) ++wrong;
      if (marked) f(t, i, part);
    }
  return wrong;
}

/// Compacts a tensor chunk by chunk, and says how many blocks are not as they should be.
template <class T>
int check_compact(const std::vector<T>& x, std::size_t block, const T& null, std::size_t shift, bool all, std::size_t chunk_tiles) {
  int wrong = 0;
  auto g = patterns::make_generator(x.size(), static_cast<int>(block));
  const placed in(x.size() * sizeof(T), shift);
  std::memcpy(in.data(), x.data(), x.size() * sizeof(T));
  compact_job job;
  job.cut = tiles(x.size() * sizeof(T), block * sizeof(T), reinterpret_cast<std::uintptr_t>(in.data()));
  job.in = in.data();
  job.all = all;
  if (!tile_null_bits(null, job.null)) job.all = true;
  for (std::size_t first = 0; first < job.cut.count(); first += chunk_tiles) {
    job.first_tile = first;
    job.tile_count = static_cast<std::uint32_t>(std::min<std::size_t>(chunk_tiles, job.cut.count() - first));
    std::vector<std::uint32_t> marks(job.tile_count * job.cut.words, 0xabcd), bases(marks.size(), 0xabcd);
    const placed packed(job.tile_count * job.cut.tile_bytes(), 0);
    std::uint32_t count = 0;
    job.marks = marks.data();
    job.bases = bases.data();
    job.count = &count;
    job.packed = packed.data();
    testing::run_compact(job, g);
    std::uint32_t expected = 0;
    std::vector<bool> taken(job.tile_count * std::size_t{job.cut.tile_blocks}, false);
    std::vector<std::uint32_t> before(job.tile_count, 0);  // blocks of a tile so far
    wrong += check_marks(job, x, block, null, [&](std::uint32_t t, std::uint32_t /*block*/, std::span<const T> part) {
      ++expected;
      const auto slot = bases[t * job.cut.words] + before[t]++;
      if (slot >= taken.size() || taken[slot]) {
        ++wrong;
        return;
      }
      taken[slot] = true;
      if (std::memcmp(packed.data() + slot * job.cut.block_bytes, part.data(), part.size_bytes()) != 0) ++wrong;
    });
    for (std::uint32_t t = 0; t < job.tile_count; ++t) {
      auto slot = bases[t * job.cut.words];
      for (std::uint32_t w = 0; w < job.cut.words; ++w) {
        if (bases[t * job.cut.words + w] != slot) ++wrong;
        slot += static_cast<std::uint32_t>(std::popcount(marks[t * job.cut.words + w]));
      }
    }
    if (count != expected) ++wrong;
  }
  return wrong;
}

template <class T>
void check_blocks(const T& null, const T& other) {
  int wrong = 0;
  auto g = patterns::make_generator(17, sizeof(T));
  for (const std::size_t block :
       {1U, 2U, 3U, 4U, 7U, 8U, 25U, 32U, 64U, 100U, 128U, 255U, 256U, 257U, 1024U, 4096U, 20000U, 70001U})
    for (const std::size_t n :
         {std::size_t{1}, block - 1, block, block + 1, 3 * block + block / 2, std::size_t{9000}, 40 * block + 1}) {
      if (n == 0 || n * sizeof(T) > 300000) continue;
      for (const std::size_t shift : {std::size_t{0}, sizeof(T), 3 * sizeof(T)}) {
        std::vector<T> x(n, null);
        const auto chunk = 1 + g() % 5;
        if (n < 10000) wrong += check_compact(x, block, null, shift, false, chunk);
        for (int k = 0; k < 3; ++k) x[k == 0 ? 0 : k == 1 ? n - 1 : g() % n] = other;
        wrong += check_compact(x, block, null, shift, false, chunk);
        for (std::size_t b = 0; b < n; b += block)
          if (g() % 3 == 0) x[b + g() % std::min(block, n - b)] = other;
        wrong += check_compact(x, block, null, shift, false, chunk);
        wrong += check_compact(x, block, null, shift, true, chunk);
      }
    }
  CHECK(wrong == 0);
}

/// The same packed: every block has the bytes that the host packs it into.
template <class T>
int check_pack(const std::vector<T>& x, std::size_t block, const T& null, std::size_t chunk_tiles) {
  int wrong = 0;
  auto g = patterns::make_generator(x.size(), static_cast<int>(block));
  const placed in(x.size() * sizeof(T), 0);
  std::memcpy(in.data(), x.data(), x.size() * sizeof(T));
  pack_job job;
  job.cut = tiles(x.size() * sizeof(T), block * sizeof(T), reinterpret_cast<std::uintptr_t>(in.data()));
  job.in = in.data();
  job.element = sizeof(T);
  REQUIRE(tile_null_bits(null, job.null));
  if (!pack_job::takes(job.cut, sizeof(T))) return 1;
  const null_element as_element(&null, sizeof(T));
  block_packer packer;
  for (std::size_t first = 0; first < job.cut.count(); first += chunk_tiles) {
    job.first_tile = first;
    job.tile_count = static_cast<std::uint32_t>(std::min<std::size_t>(chunk_tiles, job.cut.count() - first));
    std::vector<std::uint32_t> marks(job.tile_count * job.cut.words, 0xabcd);
    std::vector<std::uint32_t> places(job.tile_count * std::size_t{job.cut.tile_blocks}, 0xabcd);
    const auto room = pack_job::most_bytes(job.cut, job.tile_count);
    const placed packed(room, 0);
    std::uint32_t count = 0;
    job.marks = marks.data();
    job.bases = places.data();
    job.count = &count;
    job.packed = packed.data();
    testing::run_pack(job, g);
    std::uint32_t expected = 0;
    std::vector<bool> taken(room, false);
    wrong += check_marks(job, x, block, null, [&](std::uint32_t t, std::uint32_t i, std::span<const T> part) {
      std::vector<std::byte> wanted(packer.measure(std::as_bytes(part).data(), part.size(), as_element));
      packer.write(wanted.data(), stores::vectors);
      const auto at = std::size_t{places[t * std::size_t{job.cut.tile_blocks} + i]};
      if (at % 4 != 0 || at + wanted.size() > count) {
        ++wrong;
        return;
      }
      for (std::size_t k = 0; k < wanted.size(); ++k) {
        if (taken[at + k]) ++wrong;
        taken[at + k] = true;
      }
      if (std::memcmp(packed.data() + at, wanted.data(), wanted.size()) != 0) ++wrong;
      // What the host makes of it.
      packer.take({packed.data() + at, count - at}, part.size(), sizeof(T));
      if (packer.bytes() != wanted.size()) ++wrong;
      expected += static_cast<std::uint32_t>((wanted.size() + 3) / 4 * 4);
    });
    if (count != expected) ++wrong;
  }
  return wrong;
}
template <class T>
void check_packing(const T& null, const T& other) {
  int wrong = 0, calls = 0;
  auto g = patterns::make_generator(29, sizeof(T));
  for (const std::size_t bytes : {128U, 144U, 512U, 1024U, 1040U, 4096U, 16384U, 32768U}) {
    const auto block = bytes / sizeof(T);
    for (const std::size_t n :
         {std::size_t{1}, block, block + 1, 3 * block + block / 2 + 1, std::size_t{40000} / sizeof(T), 20 * block - 3})
      for (const std::size_t every : {1U, 2U, 3U, 8U, 9U, 30U, 300U, 3000U}) {
        std::vector<T> x(n, null);
        for (auto& e : x)
          if (g() % every == 0) e = other;
        for (std::size_t b = 0; b < n; b += block)  // all of a block, or nothing
          if (const auto all = g() % 5; all < 2)
            std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(b), std::min(block, n - b), all == 0 ? null : other);
        wrong += check_pack(x, block, null, 1 + g() % 5);
        ++calls;
      }
  }
  CHECK(calls == 8 * 6 * 8);
  CHECK(wrong == 0);
}

template <class T>
void check_scatter() {
  int wrong = 0;
  auto g = patterns::make_generator(23, sizeof(T));
  for (const std::size_t block : {1U, 3U, 4U, 25U, 64U, 100U, 256U, 4096U, 20000U, 70001U})
    for (const std::size_t n : {std::size_t{1}, block, block + 1, 5 * block - block / 3, 17 * block + 1})
      for (const std::size_t shift : {std::size_t{0}, sizeof(T)}) {
        const auto blocks = (n + block - 1) / block;
        std::vector<std::uint32_t> numbers(blocks);
        std::iota(numbers.begin(), numbers.end(), 0U);
        std::shuffle(numbers.begin(), numbers.end(), g);
        numbers.resize(1 + g() % blocks);
        const placed out(n * sizeof(T), shift), packed(numbers.size() * block * sizeof(T), 0);
        std::vector<std::byte> wanted(n * sizeof(T));
        for (auto& b : wanted) b = static_cast<std::byte>(g());
        std::memcpy(out.data(), wanted.data(), wanted.size());
        for (std::size_t i = 0; i < numbers.size() * block * sizeof(T); ++i) packed.data()[i] = static_cast<std::byte>(g());
        for (std::size_t i = 0; i < numbers.size(); ++i) {
          const auto at = numbers[i] * block * sizeof(T);
          std::memcpy(wanted.data() + at, packed.data() + i * block * sizeof(T), std::min(block * sizeof(T), wanted.size() - at));
        }
        scatter_job job;
        job.cut = tiles(n * sizeof(T), block * sizeof(T), reinterpret_cast<std::uintptr_t>(out.data()));
        job.packed = packed.data();
        job.blocks = numbers.data();
        job.out = out.data();
        job.slots = static_cast<std::uint32_t>(numbers.size());
        testing::run_scatter(job);
        if (std::memcmp(out.data(), wanted.data(), wanted.size()) != 0) ++wrong;
      }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("device kernels: tiles and the block of a vector") {
  int wrong = 0;
  for (std::uint64_t bytes = 1; bytes <= 40000; bytes = bytes < 3000 ? bytes + 1 : bytes * 5 / 4)
    for (const std::uint64_t alignment : {1U, 2U, 4U, 8U, 16U, 256U}) {
      const tiles cut(bytes * 100, bytes, alignment);
      if (cut.block_bytes % cut.width != 0 || alignment % cut.width != 0) ++wrong;
      if (!cut.in_rounds() && cut.vectors() > tiles::most_vectors) ++wrong;
      if (cut.words > tiles::most_words || cut.tile_blocks > cut.words * 32) ++wrong;
      for (std::uint32_t v = 0; v < std::min(cut.vectors(), tiles::most_vectors); ++v)
        if (cut.block_of(v) != v / cut.block_vectors) ++wrong;
    }
  CHECK(wrong == 0);
}
TEST_CASE("device kernels: detect and compact") {
  check_blocks<std::uint8_t>(0, 1);
  check_blocks<std::int16_t>(0x0100, 0x0101);
  check_blocks<float>(0.0F, -0.0F);
  check_blocks<double>(1.0, 1.0 + 0x1p-52);
  check_blocks<std::complex<double>>({0, 0}, {0, -0.0});
}
TEST_CASE("device kernels: detect, compact and pack") {
  check_packing<std::uint8_t>(0, 1);
  check_packing<std::int16_t>(0x0100, 0x0101);
  check_packing<float>(0.0F, -0.0F);
  check_packing<double>(1.0, 1.0 + 0x1p-52);
  check_packing<std::complex<double>>({0, 0}, {0, -0.0});
}
TEST_CASE("device kernels: what they do not pack") {
  CHECK(!pack_job::takes(tiles(10000, 112, 256), 4));     // blocks of few elements
  CHECK(!pack_job::takes(tiles(10000, 1024, 8), 4));      // vectors are not of 16 bytes
  CHECK(!pack_job::takes(tiles(100000, 32784, 256), 4));  // a tile has rounds
  CHECK(!pack_job::takes(tiles(10000, 960, 256), 12));    // elements of odd sizes
  CHECK(!pack_job::takes(tiles(10000, 1024, 256), 32));
}
TEST_CASE("device kernels: elements that do not tile 16 bytes") {
  struct rgb {
    std::uint8_t c[3];  // NOLINT(*-avoid-c-arrays)
  };
  check_blocks<rgb>({{7, 7, 7}}, {{7, 7, 6}});
  check_blocks<rgb>({{1, 2, 3}}, {{1, 2, 4}});  // taken as not null
}
TEST_CASE("device kernels: scatter") {
  check_scatter<std::uint8_t>();
  check_scatter<std::int16_t>();
  check_scatter<float>();
  check_scatter<double>();
}
TEST_CASE("device kernels: fill") {
  int wrong = 0;
  null_bits null;
  for (std::uint32_t i = 0; i < 4; ++i) null.words[i] = 0x04030201U + 0x10101010U * i;
  std::vector<std::byte> pattern(16);
  std::memcpy(pattern.data(), &null, 16);
  for (const std::uint32_t width : {1U, 2U, 4U, 8U, 16U})
    for (const std::size_t bytes : {0U, 1U, 15U, 16U, 17U, 1000U, 8192U, 8200U, 30001U}) {
      const placed out(bytes, width % 16);
      testing::run_fill({out.data(), bytes, width, null});
      for (std::size_t i = 0; i < bytes; ++i)
        if (out.data()[i] != pattern[i % 16]) ++wrong;
    }
  CHECK(wrong == 0);
}
