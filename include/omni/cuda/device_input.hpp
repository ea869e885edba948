// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "../block.hpp"
#include "../error.hpp"
#include "device.hpp"

namespace omni::detail {

/// What a device_input keeps from call to call.
template <class Device>
struct input_buffers {
  static constexpr std::size_t depth = 2;  ///< chunks on the device at once
  using stream = typename Device::stream;
  using event = typename Device::event;

  device_handle<Device, stream> scanning, copying;
  std::array<device_handle<Device, event>, depth> scanned, copied;
  std::array<device_memory<Device, false>, depth> packed, found;
  device_memory<Device, true> marks;                // of all chunks
  std::vector<device_memory<Device, true>> blocks;  // of each

  [[nodiscard]] std::size_t bytes() const {
    std::size_t n = marks.size();
    for (const auto& b : blocks) n += b.size();
    for (const auto& b : packed) n += b.size();
    for (const auto& b : found) n += b.size();
    return n;
  }
};

/// The tensor's way from the device to the engine: chunk by chunk, its blocks that are not null are found and packed on the device,
/// and copied to the host while the next chunk is scanned. Nothing here waits but await(); whoever asks for a block moves all of it
/// on.
template <accelerator Device>
class device_input {
  using buffers = input_buffers<Device>;
  static constexpr std::size_t depth = buffers::depth;
  static constexpr std::size_t most_chunk_bytes = std::size_t{64} << 20U, least_chunk_bytes = std::size_t{2} << 20U;
  static constexpr std::uint64_t never = ~std::uint64_t{0};
  static constexpr std::size_t count_words = 4;  // in front of marks and bases; one is used

 public:
  /// `job` has the tensor, and what null is; the rest is chosen here. `element`: its bytes, 0 if blocks are not to be packed;
  /// `packs`: whether they are, as pack() has it. Work begins after `after`.
  void begin(Device& device, buffers& b, const compact_job& job, std::size_t element, packing packs, typename Device::event after) {
    device_ = device;
    b_ = &b;
    job_ = job;
    const auto tiles = job_.cut.count();
    const auto chunk = std::clamp<std::uint64_t>(job_.cut.bytes / 8, least_chunk_bytes, most_chunk_bytes);
    chunk_tiles_ = std::min(std::max<std::uint64_t>(chunk / job_.cut.tile_bytes(), 1), tiles);
    chunks_ = (tiles + chunk_tiles_ - 1) / chunk_tiles_;
    element_ = element != 0 && pack_job::takes(job_.cut, element) ? static_cast<std::uint32_t>(element) : 0;
    pack(packs);
    chunk_words_ = words_of_chunk(true);  // no fewer than of one that is not packed
    const auto guard = device_.enter();
    b.scanning.make(device_);
    b.copying.make(device_);
    for (std::size_t k = 0; k < std::min<std::uint64_t>(depth, chunks_); ++k) {
      b.scanned[k].make(device_);
      b.copied[k].make(device_);
      b.packed[k].reserve(device_, packed_bytes());
      b.found[k].reserve(device_, chunk_words_ * sizeof(std::uint32_t));
    }
    b.marks.reserve(device_, chunks_ * chunk_words_ * sizeof(std::uint32_t));
    if (b.blocks.size() < chunks_) b.blocks.resize(chunks_);
    device_.wait(b.scanning.get(), after);
    pump();
  }

  /// Whether a block's tile is on the host.
  [[nodiscard]] bool available(std::size_t block) {
    const auto chunk = chunk_of(block);
    // Now and then also for the chunks after it: the device should not wait for a host that packs.
    if (chunk >= ready_ || (ready_ < chunks_ && ++asked_ % 256 == 0)) pump();
    return chunk < ready_;
  }
  /// Waits until it may be.
  void await(std::size_t block) {
    if (available(block)) return;
    device_.synchronize(ready_ < copying_ ? b_->copied[ready_ % depth].get() : b_->scanned[copying_ % depth].get());
    pump();
  }

  /// Blocks below are on the host.
  [[nodiscard]] std::size_t arrived() const {
    return std::min<std::uint64_t>(ready_ * chunk_tiles_ * job_.cut.tile_blocks, job_.cut.blocks);
  }
  /// Whether chunks that have not been given to the device yet are packed, if they can be. Until that is known (automatic) it gets
  /// no more than it can hold.
  void pack(packing how) {
    const bool waited = std::exchange(waits_, how == packing::automatic && element_ != 0);
    if (how == packing::always && element_ != 0) first_packed_ = std::min(first_packed_, scanning_);
    if (waited && !waits_) pump();
  }

  // Of blocks that are available:

  /// A bit for each of n blocks of one tile, 64 at most.
  [[nodiscard]] std::uint64_t marks(std::size_t block, std::size_t n) const {
    const auto* const words = marks_of(block);
    const auto first = block % job_.cut.tile_blocks;
    std::uint64_t all = 0;
    for (std::size_t at = 0; at < n;) {
      const auto bit = (first + at) % 32;
      all |= std::uint64_t{words[(first + at) / 32] >> bit} << at;
      at += 32 - bit;
    }
    return n < 64 ? all & ((std::uint64_t{1} << n) - 1) : all;
  }
  /// Where the elements lie of a block that is neither null nor packed; those that follow it in the tile follow it there.
  [[nodiscard]] const std::byte* slot(std::size_t block) const {
    const auto chunk = chunk_of(block);
    const auto at = block % job_.cut.tile_blocks, word = tile_of(block) % chunk_tiles_ * job_.cut.words + at / 32;
    const auto before = static_cast<unsigned>(std::popcount(marks_of(block)[at / 32] & ((1U << (at % 32)) - 1)));
    const auto slot = std::uint64_t{bases_of(found(chunk))[word]} + before;
    return b_->blocks[chunk].data() + slot * job_.cut.block_bytes;
  }
  /// What begins with a block that is not null and was packed; nothing if it was not.
  [[nodiscard]] std::span<const std::byte> packed(std::size_t block) const {
    const auto chunk = chunk_of(block);
    if (chunk < first_packed_) return {};
    const auto at = tile_of(block) % chunk_tiles_ * job_.cut.tile_blocks + block % job_.cut.tile_blocks;
    const std::size_t place = bases_of(found(chunk))[at], all = *found(chunk);
    if (place >= all) throw error("omni: the device packed a block nowhere");
    return {b_->blocks[chunk].data() + place, all - place};
  }
  /// Of n blocks from this one on, those of its tile.
  [[nodiscard]] std::size_t together(std::size_t block, std::size_t n) const {
    return std::min<std::size_t>(n, job_.cut.tile_blocks - block % job_.cut.tile_blocks);
  }

 private:
  [[nodiscard]] std::size_t tile_of(std::size_t block) const { return block / job_.cut.tile_blocks; }
  [[nodiscard]] std::size_t chunk_of(std::size_t block) const { return tile_of(block) / chunk_tiles_; }
  [[nodiscard]] std::uint32_t* found(std::size_t chunk) const {
    return b_->marks.template as<std::uint32_t>() + chunk * chunk_words_;
  }
  [[nodiscard]] const std::uint32_t* marks_of(std::size_t block) const {
    return found(chunk_of(block)) + count_words + tile_of(block) % chunk_tiles_ * job_.cut.words;
  }
  /// For every 32 blocks the first slot; of packed ones for each where it begins.
  [[nodiscard]] std::uint32_t* bases_of(std::uint32_t* words) const { return words + count_words + chunk_tiles_ * job_.cut.words; }
  [[nodiscard]] std::uint64_t words_of_chunk(bool packed) const {
    const auto bases = packed && element_ != 0 ? job_.cut.tile_blocks : job_.cut.words;
    return count_words + chunk_tiles_ * (job_.cut.words + bases);
  }
  /// That a chunk has at most.
  [[nodiscard]] std::uint64_t packed_bytes() const {
    return element_ != 0 ? pack_job::most_bytes(job_.cut, chunk_tiles_) : chunk_tiles_ * job_.cut.tile_bytes();
  }

  // Starts what can be started, in the order of chunks, and notes what is done.
  void pump() {
    const auto guard = device_.enter();
    for (bool moved = true; moved;) {
      moved = false;
      if (scanning_ < chunks_ && scanning_ < (waits_ ? 0 : copying_) + depth) {
        scan(scanning_++);
        moved = true;
      }
      if (copying_ < scanning_ && copying_ < ready_ + depth && device_.reached(b_->scanned[copying_ % depth].get())) {
        copy(copying_++);
        moved = true;
      }
      if (ready_ < copying_ && device_.reached(b_->copied[ready_ % depth].get())) {
        ++ready_;
        moved = true;
      }
    }
  }
  void scan(std::size_t chunk) {
    const auto k = chunk % depth;
    const auto s = b_->scanning.get();
    auto* const words = b_->found[k].template as<std::uint32_t>();
    if (chunk >= depth) device_.wait(s, b_->copied[k].get());  // what was packed there has left
    const bool packs = chunk >= first_packed_;
    pack_job job{job_, element_};
    job.first_tile = chunk * chunk_tiles_;
    job.tile_count = static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk_tiles_, job_.cut.count() - job.first_tile));
    job.packed = b_->packed[k].data();
    job.count = words;
    job.marks = words + count_words;
    job.bases = bases_of(words);
    device_.clear(s, words, count_words * sizeof(std::uint32_t));
    if (packs) device_.pack(s, job);
    else device_.compact(s, job);
    device_.copy(s, found(chunk), words, words_of_chunk(packs) * sizeof(std::uint32_t));
    device_.record(b_->scanned[k].get(), s);
  }
  // The one place where the host has to know something before the device can go on: how much to copy.
  void copy(std::size_t chunk) {
    const auto k = chunk % depth;
    const bool packed = chunk >= first_packed_;
    const auto unit = packed ? 1 : job_.cut.block_bytes;
    const auto bytes = std::size_t{*found(chunk)} * unit;
    const auto most = packed ? packed_bytes() : chunk_tiles_ * job_.cut.tile_bytes();
    if (bytes > most) throw error("omni: the device found more blocks than there are");
    auto& to = b_->blocks[chunk];
    // Powers of two: calls whose tensors differ a little allocate nothing.
    if (bytes != 0) to.reserve(device_, std::min<std::size_t>(std::bit_ceil(bytes / unit) * unit, most));
    if (bytes != 0) device_.copy(b_->copying.get(), to.data(), b_->packed[k].data(), bytes);
    device_.record(b_->copied[k].get(), b_->copying.get());
  }

  Device device_{};
  buffers* b_ = nullptr;
  compact_job job_;
  std::uint64_t chunk_tiles_ = 1, chunks_ = 0, chunk_words_ = 0;
  std::uint64_t first_packed_ = never;  // chunks from this one on are packed
  std::uint32_t element_ = 0;
  bool waits_ = false;
  std::uint64_t scanning_ = 0, copying_ = 0, ready_ = 0;  // chunks below have been given to the device; are copied; are here
  unsigned asked_ = 0;
};

}  // namespace omni::detail
