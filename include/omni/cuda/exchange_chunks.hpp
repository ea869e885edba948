// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "../error.hpp"
#include "device.hpp"

namespace omni::detail {

/// What exchange_chunks keeps from call to call.
template <class Device>
struct exchange_buffers {
  static constexpr std::size_t depth = 3;  ///< chunks under way: one is scanned, one is folded, one is written
  using stream = typename Device::stream;
  using event = typename Device::event;

  struct chunk {
    device_handle<Device, event> scanned, folded, written;
    device_memory<Device, false> found, packed;    // of all owners
    device_memory<Device, false> arrived, united;  // of this rank's tiles: what the others have, and what comes of it
    device_memory<Device, false> returned;         // what came of the others'
    device_memory<Device, false> tables;
    device_memory<Device, true> told;
  };
  device_handle<Device, stream> scanning, folding;
  std::array<chunk, depth> chunks;

  [[nodiscard]] std::size_t bytes() const {
    std::size_t n = 0;
    for (const auto& c : chunks)
      for (const auto size :
           {c.found.size(), c.packed.size(), c.arrived.size(), c.united.size(), c.returned.size(), c.tables.size(), c.told.size()})
        n += size;
    return n;
  }
};

/// How what others have gets to where kernels read it: in messages; fetched, where ranks are threads of one process; or not at all,
/// for kernels read it where it lies.
enum class passage : std::uint8_t { sent, fetched, stays };

/// The device's part in a reduction that never leaves it: the tensor in chunks, of which the ranks own the tiles in turn. A chunk
/// is scanned and compacted, each owner's blocks together; what the ranks have of an owner's tiles is folded there; and the union
/// of all owners' is put to its places. What the host has to know are sections (slot_places.hpp); after begin() nothing here waits
/// or allocates.
template <accelerator Device>
class exchange_chunks {
  using buffers = exchange_buffers<Device>;

 public:
  static constexpr std::size_t depth = buffers::depth;
  static constexpr std::size_t most_chunk_bytes = std::size_t{32} << 20U, least_chunk_bytes = std::size_t{2} << 20U;
  /// Where nothing is sent a chunk costs kernels and little else, so there are few: 64 MiB in one take 0.31 ms where eight chunks
  /// take 0.84 (four ranks on an H100, 1 % not null), and larger ones save nothing.
  static constexpr std::size_t unsent_chunk_bytes = std::size_t{64} << 20U;

  /// Whether blocks are so small that a chunk can have tiles of all ranks. The same on all of them.
  [[nodiscard]] static bool fits(std::uint64_t bytes, std::uint64_t block_bytes, int ranks) {
    return tiles(bytes, block_bytes, 16).tile_bytes() <= most_chunk_bytes / static_cast<std::uint64_t>(ranks);
  }

  /// `job` has the tensor, and what null is. `width` as all ranks have agreed; `chunk_bytes`: about, or 0; `way`: whether it is
  /// `sent` is the same on all. Work begins after `after`.
  void begin(Device& device, buffers& b, const compact_job& job, std::byte* out, std::uint32_t width, int rank, int ranks,
             std::size_t chunk_bytes, passage way, typename Device::event after, typename Device::stream writing) {
    device_ = device;
    b_ = &b;
    job_ = job;
    job_.cut = tiles(job.cut.bytes, job.cut.block_bytes, width);
    out_ = out;
    rank_ = static_cast<std::uint32_t>(rank);
    ranks_ = static_cast<std::uint32_t>(ranks);
    way_ = way;
    writing_ = writing;
    const auto all = job_.cut.count();
    const auto chosen = way != passage::sent ? unsent_chunk_bytes
                                             : std::clamp<std::uint64_t>(job_.cut.bytes / 8, least_chunk_bytes, most_chunk_bytes);
    const auto of_chunk = std::clamp<std::uint64_t>((chunk_bytes != 0 ? chunk_bytes : chosen) / job_.cut.tile_bytes(), 1,
                                                    std::max<std::uint64_t>(all, 1));
    tiles_of_owner_ = (of_chunk + ranks_ - 1) / ranks_;
    chunk_tiles_ = tiles_of_owner_ * ranks_;
    chunks_ = (all + chunk_tiles_ - 1) / chunk_tiles_;
    mark_words_ = static_cast<std::uint32_t>(tiles_of_owner_ * job_.cut.words);
    b.scanning.make(device_);
    b.folding.make(device_);
    for (std::size_t k = 0; k < std::min<std::uint64_t>(depth, chunks_); ++k) {
      auto& c = b.chunks[k];
      c.scanned.make(device_);
      c.folded.make(device_);
      c.written.make(device_);
      c.packed.reserve(device_, ranks_ * room() * job_.cut.block_bytes);
      // As much as a dense tensor takes: to grow in the middle of a call, or of a later one, would hold up all of the device.
      const auto of_others = way == passage::stays ? 0 : (ranks_ - 1) * room() * job_.cut.block_bytes;
      c.arrived.reserve(device_, of_others);
      c.returned.reserve(device_, of_others);
      c.united.reserve(device_, room() * job_.cut.block_bytes);
      c.found.reserve(device_, ranks_ * section_bytes());
      c.tables.reserve(device_, 2 * ranks_ * section_bytes());
      c.told.reserve(device_, 3 * ranks_ * section_bytes());
    }
    device_.wait(b.scanning.get(), after);
  }

  [[nodiscard]] std::size_t chunks() const { return chunks_; }
  [[nodiscard]] std::size_t block_bytes() const { return job_.cut.block_bytes; }
  [[nodiscard]] std::size_t section_bytes() const { return sections::words(mark_words_) * sizeof(std::uint32_t); }

  // Of a chunk, on the host: what this rank has of the tiles of an owner; what a rank has of this one's; and what came of an
  // owner's.
  [[nodiscard]] std::byte* mine(std::size_t chunk, std::size_t owner) const { return told(chunk, owner); }
  [[nodiscard]] std::byte* heard(std::size_t chunk, std::size_t rank) const { return told(chunk, ranks_ + rank); }
  [[nodiscard]] std::byte* united(std::size_t chunk, std::size_t owner) const {
    return told(chunk, 2 * ranks_ + (owner + ranks_ - rank_) % ranks_);  // this rank's first: it is copied with what it comes of
  }
  [[nodiscard]] static section_head head_of(const std::byte* section) {
    section_head h;
    std::memcpy(&h, section, sizeof(h));
    return h;
  }
  static void write(std::byte* section, const section_head& h) { std::memcpy(section, &h, sizeof(h)); }
  /// The slots that a section tells of.
  [[nodiscard]] std::span<std::byte> slots(const std::byte* section) const {
    const auto h = head_of(section);
    return {reinterpret_cast<std::byte*>(h.address), h.count * block_bytes()};  // NOLINT(performance-no-int-to-ptr)
  }
  /// Whether a section that a peer has sent can be true of an owner's tiles of the chunk. `is_union`: its slots are in the order of
  /// the blocks.
  [[nodiscard]] bool is_sound(std::size_t chunk, const std::byte* section, std::size_t owner, bool is_union) const {
    const auto h = head_of(section);
    const auto* const marks = marks_of(section);
    std::uint64_t marked = 0;
    for (std::uint32_t w = 0; w < mark_words_; ++w) {
      if (is_union && marks[mark_words_ + w] != marked) return false;
      if (marks[w] == 0) continue;
      const auto most = blocks_of_word(chunk, w, owner);
      const auto n = static_cast<std::uint32_t>(std::popcount(marks[w]));
      if (most < 32 && marks[w] >> most != 0) return false;
      if (marks[mark_words_ + w] > h.count || h.count - marks[mark_words_ + w] < n) return false;
      marked += n;
    }
    return marked == h.count;
  }

  /// Finds and packs the blocks of a chunk that are not null. Its buffers must be free.
  void scan(std::size_t chunk) {
    auto& c = at(chunk);
    const auto s = b_->scanning.get();
    auto* const words = c.found.template as<std::uint32_t>();
    auto job = job_;
    job.first_tile = chunk * chunk_tiles_;
    job.tile_count = tiles_in(chunk);
    job.packed = c.packed.data();
    job.count = words;
    job.marks = words + sections::head_words;
    job.bases = job.marks + mark_words_;
    job.owners = ranks_;
    job.section = sections::words(mark_words_);
    job.room = static_cast<std::uint32_t>(room());
    device_.clear(s, words, ranks_ * section_bytes());
    device_.compact(s, job);
    device_.copy(s, mine(chunk, 0), words, ranks_ * section_bytes());
    device_.record(c.scanned.get(), s);
  }
  [[nodiscard]] bool is_scanned(std::size_t chunk) { return device_.reached(at(chunk).scanned.get()); }
  /// Completes this rank's sections: where the slots lie. Precondition: scanned.
  void take_found(std::size_t chunk) {
    for (std::uint32_t o = 0; o < ranks_; ++o) {
      auto h = head_of(mine(chunk, o));
      if (h.count > room()) throw error("omni: the device found more blocks than there are");
      h.address = reinterpret_cast<std::uintptr_t>(at(chunk).packed.data() + o * room() * block_bytes());
      write(mine(chunk, o), h);
    }
    std::memcpy(heard(chunk, rank_), mine(chunk, rank_), section_bytes());
  }
  /// Where what the sections of all others tell of is to lie on the device, unless it stays: their heads say so from now on. Calls
  /// f(rank, to, from) for each that has slots; `from`: the address that was told.
  template <class F>
  void place_heard(std::size_t chunk, const F& f) {
    place(
        at(chunk).arrived, [&](std::size_t r) { return heard(chunk, r); }, f);
  }
  template <class F>
  void place_united(std::size_t chunk, const F& f) {
    place(
        at(chunk).returned, [&](std::size_t o) { return united(chunk, o); }, f);
  }
  /// Fetches slots from where another rank of this process has them, before the fold or before the writing.
  void fetch_for_fold(std::span<std::byte> to, const std::byte* from) {
    device_.copy(b_->folding.get(), to.data(), from, to.size());
  }
  void fetch_for_writing(std::span<std::byte> to, const std::byte* from) { device_.copy(writing_, to.data(), from, to.size()); }

  /// Folds this rank's tiles, by `folds`. Precondition: what all ranks have of them is on the device, or on its way in the stream.
  void fold(std::size_t chunk, fold_on<Device> folds) {
    auto& c = at(chunk);
    const auto s = b_->folding.get();
    unite(chunk);
    auto* const section = united(chunk, rank_);
    device_.copy(s, c.tables.data(), heard(chunk, 0), (ranks_ + 1) * section_bytes());
    const fold_job job(job_.cut, {reinterpret_cast<const std::uint32_t*>(c.tables.data() + ranks_ * section_bytes()), mark_words_},
                       head_of(section).count, {c.tables.template as<std::uint32_t>(), mark_words_}, ranks_, job_.null);
    folds(device_, s, job);
    device_.record(c.folded.get(), s);
  }
  [[nodiscard]] bool is_folded(std::size_t chunk) { return device_.reached(at(chunk).folded.get()); }

  /// Writes the union of all owners' tiles. Precondition: it is on the device, or on its way in the stream.
  void expand(std::size_t chunk) {
    auto& c = at(chunk);
    auto* const tables = c.tables.data() + ranks_ * section_bytes();
    // This rank's is there.
    device_.copy(writing_, tables + section_bytes(), told(chunk, 2 * ranks_ + 1), (ranks_ - 1) * section_bytes());
    std::uint32_t most = 0;
    for (std::size_t o = 0; o < ranks_; ++o) most = std::max(most, head_of(united(chunk, o)).count);
    expand_job job(job_.cut, {reinterpret_cast<const std::uint32_t*>(tables), mark_words_}, ranks_, most);
    job.first_owner = rank_;
    job.first_tile = chunk * chunk_tiles_;
    job.out = out_;
    device_.expand(writing_, job);
    device_.record(c.written.get(), writing_);
  }
  [[nodiscard]] bool is_written(std::size_t chunk) { return device_.reached(at(chunk).written.get()); }

 private:
  [[nodiscard]] typename buffers::chunk& at(std::size_t chunk) const { return b_->chunks[chunk % depth]; }
  [[nodiscard]] std::byte* told(std::size_t chunk, std::size_t section) const {
    return at(chunk).told.data() + section * section_bytes();
  }
  [[nodiscard]] std::uint32_t* marks_of(std::byte* section) const {
    return reinterpret_cast<std::uint32_t*>(section) + sections::head_words;
  }
  [[nodiscard]] const std::uint32_t* marks_of(const std::byte* section) const {
    return reinterpret_cast<const std::uint32_t*>(section) + sections::head_words;
  }
  /// Slots that an owner's tiles of a chunk may take.
  [[nodiscard]] std::size_t room() const { return tiles_of_owner_ * job_.cut.tile_blocks; }
  [[nodiscard]] std::uint32_t tiles_in(std::size_t chunk) const {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk_tiles_, job_.cut.count() - chunk * chunk_tiles_));
  }
  [[nodiscard]] std::uint32_t tiles_in(std::size_t chunk, std::size_t owner) const {
    const auto n = tiles_in(chunk);
    return owner < n ? static_cast<std::uint32_t>((n - owner + ranks_ - 1) / ranks_) : 0;
  }
  /// Blocks that a word of an owner's marks has bits for.
  [[nodiscard]] std::uint64_t blocks_of_word(std::size_t chunk, std::uint32_t word, std::size_t owner) const {
    const auto& cut = job_.cut;
    const auto tile = word / cut.words, first = word % cut.words * 32;
    if (tile >= tiles_in(chunk, owner)) return 0;
    const auto block = (chunk * chunk_tiles_ + std::uint64_t{tile} * ranks_ + owner) * cut.tile_blocks + first;
    if (block >= cut.blocks || first >= cut.tile_blocks) return 0;
    return std::min<std::uint64_t>({32, cut.tile_blocks - first, cut.blocks - block});
  }

  template <class Section, class F>
  void place(const device_memory<Device, false>& memory, const Section& section, const F& f) {
    if (way_ == passage::stays) return;
    auto* to = memory.data();
    for (std::size_t r = 0; r < ranks_; ++r) {
      auto h = head_of(section(r));
      if (r == rank_ || h.count == 0) continue;
      const auto from = slots(section(r));
      h.address = reinterpret_cast<std::uintptr_t>(to);
      write(section(r), h);
      f(r, std::span(to, from.size()), from.data());
      to += from.size();
    }
  }
  // The union of what the ranks have of this one's tiles.
  void unite(std::size_t chunk) {
    auto* const section = united(chunk, rank_);
    auto* const marks = marks_of(section);
    std::copy_n(marks_of(heard(chunk, 0)), mark_words_, marks);
    for (std::uint32_t r = 1; r < ranks_; ++r) {
      const auto* const theirs = marks_of(heard(chunk, r));
      for (std::uint32_t w = 0; w < mark_words_; ++w) marks[w] |= theirs[w];
    }
    std::uint32_t count = 0;
    for (std::uint32_t w = 0; w < mark_words_; ++w) {
      marks[mark_words_ + w] = count;
      count += static_cast<std::uint32_t>(std::popcount(marks[w]));
    }
    write(section, {count, 0, reinterpret_cast<std::uintptr_t>(at(chunk).united.data())});
  }

  Device device_{};
  buffers* b_ = nullptr;
  compact_job job_;
  std::byte* out_ = nullptr;
  typename Device::stream writing_{};
  passage way_ = passage::sent;
  std::uint32_t rank_ = 0, ranks_ = 1, mark_words_ = 0;
  std::uint64_t tiles_of_owner_ = 1, chunk_tiles_ = 1, chunks_ = 0;
};

}  // namespace omni::detail
