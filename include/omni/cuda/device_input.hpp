// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

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
  static constexpr std::size_t count_words = 4;  // in front of marks and bases; one is used

 public:
  /// `job` has the tensor, and what null is; the rest is chosen here. Work begins after `after`.
  void begin(Device& device, buffers& b, const compact_job& job, typename Device::event after) {
    device_ = device;
    b_ = &b;
    job_ = job;
    const auto tiles = job_.cut.count();
    const auto chunk = std::clamp<std::uint64_t>(job_.cut.bytes / 8, least_chunk_bytes, most_chunk_bytes);
    chunk_tiles_ = std::min(std::max<std::uint64_t>(chunk / job_.cut.tile_bytes(), 1), tiles);
    chunks_ = (tiles + chunk_tiles_ - 1) / chunk_tiles_;
    chunk_words_ = count_words + chunk_tiles_ * job_.cut.words * 2;
    const auto guard = device_.enter();
    b.scanning.make(device_);
    b.copying.make(device_);
    for (std::size_t k = 0; k < std::min<std::uint64_t>(depth, chunks_); ++k) {
      b.scanned[k].make(device_);
      b.copied[k].make(device_);
      b.packed[k].reserve(device_, chunk_tiles_ * job_.cut.tile_bytes());
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
  /// Where the elements lie of a block that is not null; those that follow it in the tile follow it there.
  [[nodiscard]] const std::byte* slot(std::size_t block) const {
    const auto* const words = marks_of(block);
    const auto at = block % job_.cut.tile_blocks;
    const auto before = static_cast<unsigned>(std::popcount(words[at / 32] & ((1U << (at % 32)) - 1)));
    const auto slot = std::uint64_t{bases_of(words)[at / 32]} + before;
    return b_->blocks[chunk_of(block)].data() + slot * job_.cut.block_bytes;
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
  [[nodiscard]] const std::uint32_t* bases_of(const std::uint32_t* marks) const { return marks + chunk_tiles_ * job_.cut.words; }

  // Starts what can be started, in the order of chunks, and notes what is done.
  void pump() {
    const auto guard = device_.enter();
    for (bool moved = true; moved;) {
      moved = false;
      if (scanning_ < chunks_ && scanning_ < copying_ + depth) {
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
    auto job = job_;
    job.first_tile = chunk * chunk_tiles_;
    job.tile_count = static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk_tiles_, job_.cut.count() - job.first_tile));
    job.packed = b_->packed[k].data();
    job.count = words;
    job.marks = words + count_words;
    job.bases = job.marks + chunk_tiles_ * job_.cut.words;
    device_.clear(s, words, count_words * sizeof(std::uint32_t));
    device_.compact(s, job);
    device_.copy(s, found(chunk), words, chunk_words_ * sizeof(std::uint32_t));
    device_.record(b_->scanned[k].get(), s);
  }
  // The one place where the host has to know something before the device can go on: how much to copy.
  void copy(std::size_t chunk) {
    const auto k = chunk % depth;
    const auto most = chunk_tiles_ * job_.cut.tile_blocks;
    const auto count = std::size_t{*found(chunk)};
    if (count > most) throw error("omni: the device found more blocks than there are");
    auto& to = b_->blocks[chunk];
    // Powers of two: calls whose tensors differ a little allocate nothing.
    if (count != 0) to.reserve(device_, std::min<std::size_t>(std::bit_ceil(count), most) * job_.cut.block_bytes);
    if (count != 0) device_.copy(b_->copying.get(), to.data(), b_->packed[k].data(), count * job_.cut.block_bytes);
    device_.record(b_->copied[k].get(), b_->copying.get());
  }

  Device device_{};
  buffers* b_ = nullptr;
  compact_job job_;
  std::uint64_t chunk_tiles_ = 1, chunks_ = 0, chunk_words_ = 0;
  std::uint64_t scanning_ = 0, copying_ = 0, ready_ = 0;  // chunks below have been given to the device; are copied; are here
  unsigned asked_ = 0;
};

}  // namespace omni::detail
