// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "device.hpp"

namespace omni::detail {

/// What a device_output keeps from call to call.
template <class Device>
struct output_buffers {
  static constexpr std::size_t segments = 4;

  device_handle<Device, typename Device::stream> writing;
  device_handle<Device, typename Device::event> written;
  std::array<device_handle<Device, typename Device::event>, segments> taken;
  std::array<device_memory<Device, true>, segments> blocks, numbers;
  std::array<device_memory<Device, false>, segments> staged_blocks, staged_numbers;

  [[nodiscard]] std::size_t bytes() const {
    std::size_t n = 0;
    for (std::size_t k = 0; k < segments; ++k)
      n += blocks[k].size() + numbers[k].size() + staged_blocks[k].size() + staged_numbers[k].size();
    return n;
  }
};

/// The union's way back: the engine writes blocks one after the other into a segment of pinned memory, and when it is full it is
/// copied to the device, where a kernel puts them to their places, while the next one is filled.
template <accelerator Device>
class device_output {
  using buffers = output_buffers<Device>;
  static constexpr std::size_t segments = buffers::segments;
  static constexpr std::size_t segment_bytes = std::size_t{4} << 20U;

 public:
  /// `least`: blocks that a segment must have room for. Work begins after `after`.
  void begin(Device& device, buffers& b, const tiles& cut, std::byte* out, std::size_t least, typename Device::event after) {
    device_ = device;
    b_ = &b;
    cut_ = cut;
    out_ = out;
    capacity_ = std::max<std::size_t>({segment_bytes / cut_.block_bytes, least, 1});
    capacity_ = std::min<std::size_t>(capacity_, cut_.blocks);
    const auto guard = device_.enter();
    b.writing.make(device_);
    b.written.make(device_);
    device_.wait(b.writing.get(), after);
  }
  /// Writes the identity to all of the output.
  void fill(const null_bits& null) {
    const auto guard = device_.enter();
    device_.fill(b_->writing.get(), fill_job{out_, cut_.bytes, cut_.width, null});
  }
  /// Copies a whole tensor on the device.
  void copy(const std::byte* in) {
    const auto guard = device_.enter();
    if (cut_.bytes != 0) device_.copy(b_->writing.get(), out_, in, cut_.bytes);
  }
  /// Room for the results of n blocks, to be written before the next call.
  [[nodiscard]] std::byte* room(std::size_t block, std::size_t n) {
    if (slots_ + n > capacity_) flush();
    if (slots_ == 0) take();
    auto* const numbers = b_->numbers[segment_].template as<std::uint32_t>() + slots_;
    for (std::size_t i = 0; i < n; ++i) numbers[i] = static_cast<std::uint32_t>(block + i);
    return b_->blocks[segment_].data() + (std::exchange(slots_, slots_ + n)) * cut_.block_bytes;
  }
  /// Sends what there is on its way. The event that is reached when all has been written.
  typename Device::event finish() {
    const auto guard = device_.enter();
    flush();
    device_.record(b_->written.get(), b_->writing.get());
    return b_->written.get();
  }

 private:
  // The segment's memory is free again when its blocks have left.
  void take() {
    const auto guard = device_.enter();
    const auto k = segment_;
    b_->taken[k].make(device_);
    device_.synchronize(b_->taken[k].get());  // of this call or of one before it, whose end its caller's stream waits for
    b_->blocks[k].reserve(device_, capacity_ * cut_.block_bytes);
    b_->staged_blocks[k].reserve(device_, capacity_ * cut_.block_bytes);
    b_->numbers[k].reserve(device_, capacity_ * sizeof(std::uint32_t));
    b_->staged_numbers[k].reserve(device_, capacity_ * sizeof(std::uint32_t));
  }
  void flush() {
    if (slots_ == 0) return;
    const auto guard = device_.enter();
    const auto k = segment_;
    const auto s = b_->writing.get();
    device_.copy(s, b_->staged_blocks[k].data(), b_->blocks[k].data(), slots_ * cut_.block_bytes);
    device_.copy(s, b_->staged_numbers[k].data(), b_->numbers[k].data(), slots_ * sizeof(std::uint32_t));
    scatter_job job;
    job.cut = cut_;
    job.packed = b_->staged_blocks[k].data();
    job.blocks = b_->staged_numbers[k].template as<std::uint32_t>();
    job.out = out_;
    job.slots = static_cast<std::uint32_t>(slots_);
    device_.scatter(s, job);
    device_.record(b_->taken[k].get(), s);
    segment_ = (segment_ + 1) % segments;
    slots_ = 0;
  }

  Device device_{};
  buffers* b_ = nullptr;
  tiles cut_;
  std::byte* out_ = nullptr;
  std::size_t capacity_ = 1, segment_ = 0, slots_ = 0;
};

}  // namespace omni::detail
