// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "../detail/call/tensor_elsewhere.hpp"
#include "../detail/memory/workspace.hpp"
#include "device_input.hpp"
#include "device_output.hpp"
#include "exchange_chunks.hpp"

namespace omni::detail {

/// All that a call on a device keeps for the next one.
template <class Device>
struct device_buffers {
  explicit device_buffers(const Device& d) : device(d) {}
  Device device;
  device_handle<Device, typename Device::event> called;
  input_buffers<Device> input;
  output_buffers<Device> output;
  exchange_buffers<Device> exchange;
  device_memory<Device, true> staged_in, staged_out;  // of collectives that go through the host as a whole

  [[nodiscard]] std::size_t bytes() const {
    return input.bytes() + output.bytes() + exchange.bytes() + staged_in.size() + staged_out.size();
  }
};

/// Borrowed from a pool of the thread, returned when the call has ended. The pool keeps as many as have been out at once.
template <class Device>
class borrowed_buffers {
 public:
  explicit borrowed_buffers(const Device& device) {
    auto* const pool = spare();
    if (pool == nullptr) {
      mine_ = std::make_unique<device_buffers<Device>>(device);
      return;
    }
    auto& all = pool->all;
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& b) { return b->device == device; });
    if (found == all.end()) {
      all.reserve(all.size() + pool->out + 1);  // while it may fail
      mine_ = std::make_unique<device_buffers<Device>>(device);
    } else {
      mine_ = std::move(*found);
      all.erase(found);
    }
    ++pool->out;
  }
  borrowed_buffers(const borrowed_buffers&) = delete;
  borrowed_buffers(borrowed_buffers&&) = delete;
  borrowed_buffers& operator=(const borrowed_buffers&) = delete;
  borrowed_buffers& operator=(borrowed_buffers&&) = delete;
  ~borrowed_buffers() {
    auto* const pool = spare();
    if (pool == nullptr) return;
    if (pool->out != 0) --pool->out;  // unless another thread has lent them
    if (mine_ != nullptr && pool->all.size() < pool->all.capacity()) pool->all.push_back(std::move(mine_));
  }
  device_buffers<Device>& operator*() const { return *mine_; }
  device_buffers<Device>* operator->() const { return mine_.get(); }
  /// Never frees them: what was given up may still be written to them, or read by other ranks.
  void leak() { static_cast<void>(mine_.release()); }
  /// Gives back what this thread keeps.
  static void drop() {
    if (auto* const pool = spare()) pool->all.clear();
  }

 private:
  struct buffer_pool {
    std::vector<std::unique_ptr<device_buffers<Device>>> all;
    std::size_t out = 0;
  };
  static buffer_pool* spare() { return kept_by_thread<buffer_pool>(); }
  std::unique_ptr<device_buffers<Device>> mine_;
};

/// What an allreduce does on the device: the tensor's way to the engine and the union's way back.
///
/// An error of the device is thrown from where the engine asks, not from where the call is made: the engine tells the other ranks.
template <accelerator Device>
class device_transfer final : public tensor_elsewhere {
 public:
  using stream = typename Device::stream;

  struct tensor {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::size_t bytes = 0, block_bytes = 1;
    null_bits null;
    bool skips = true;                ///< null blocks are not sent
    std::size_t element = 0;          ///< bytes, if blocks may be packed
    fold_on<Device> folds = nullptr;  ///< the contributions, if the device can
  };

  /// Work begins when what is in the caller's stream now is done. With `waits` the call ends when the output is written; else what
  /// is put into the stream afterwards may read it. `failed`: what has gone wrong already.
  device_transfer(const Device& device, const tensor& t, stream callers, bool waits, std::exception_ptr failed = nullptr)
      : device_(device), tensor_(t), callers_(callers), waits_(waits), buffers_(device), failed_(std::move(failed)) {
    try {
      if (!failed_) begin();
    } catch (...) {
      failed_ = std::current_exception();
    }
  }
  device_transfer(const device_transfer&) = delete;
  device_transfer(device_transfer&&) = delete;
  device_transfer& operator=(const device_transfer&) = delete;
  device_transfer& operator=(device_transfer&&) = delete;
  /// After an error the device may still be reading and writing what belongs to the next call.
  ~device_transfer() override {
    if (!settled_) drain();
    if (leaks_) buffers_.leak();
  }

  /// Throws what has gone wrong already.
  void expect_begun() const {
    if (failed_) std::rethrow_exception(failed_);
  }
  /// An object while which this thread works with the device.
  [[nodiscard]] auto enter() { return device_.enter(); }

  // For an engine that reduces on the host:

  [[nodiscard]] bool available(std::size_t block) override {
    expect_begun();
    if (!scans_) {
      scans_ = true;
      input_.begin(device_, buffers_->input, job(), tensor_.element, packs_, buffers_->called.get());
    }
    return input_.available(block);
  }
  void await(std::size_t block) override {
    if (!available(block)) input_.await(block);
  }
  /// Whether the device still has to do what was in the caller's stream before the call.
  [[nodiscard]] bool is_held_up() override {
    expect_begun();
    const auto guard = device_.enter();
    return !device_.reached(buffers_->called.get());
  }
  [[nodiscard]] std::uint64_t marks(std::size_t block, std::size_t n) const override { return input_.marks(block, n); }
  [[nodiscard]] std::size_t arrived() const override { return input_.arrived(); }
  [[nodiscard]] const std::byte* input(std::size_t block) const override { return input_.slot(block); }
  void pack(packing how) override {
    packs_ = how;
    if (scans_) input_.pack(how);
  }
  [[nodiscard]] std::span<const std::byte> packed(std::size_t block) const override { return input_.packed(block); }
  [[nodiscard]] std::byte* output(std::size_t block, std::size_t n) override { return output_.room(block, n); }
  [[nodiscard]] std::size_t together(std::size_t block, std::size_t n) const override { return input_.together(block, n); }

  // For one that leaves the tensor on the device:

  /// The widest vectors that the tensor's memory is aligned for.
  [[nodiscard]] std::uint32_t width() const {
    const auto addresses = reinterpret_cast<std::uintptr_t>(tensor_.in) | reinterpret_cast<std::uintptr_t>(tensor_.out);
    return tiles(tensor_.bytes, tensor_.block_bytes, addresses).width;
  }
  exchange_chunks<Device>& begin_exchange(std::uint32_t width, int rank, int ranks, std::size_t chunk_bytes, passage way) {
    auto& b = *buffers_;
    exchange_.begin(device_, b.exchange, job(), tensor_.out, width, rank, ranks, chunk_bytes, way, b.called.get(),
                    b.output.writing.get());
    return exchange_;
  }
  [[nodiscard]] fold_on<Device> folds() const { return tensor_.folds; }
  [[nodiscard]] bool reaches_others() { return device_.reach_others(); }
  /// Others may go on reading and writing the buffers.
  void leak() { leaks_ = true; }

  // For both:

  [[nodiscard]] std::size_t bytes() const override { return buffers_->bytes(); }

  /// What one rank alone has to do.
  void copy_through() override {
    expect_begun();
    if (tensor_.in != tensor_.out) output_.copy(tensor_.in);
  }
  /// The engine has written all results.
  void settle() override {
    expect_begun();
    const auto written = output_.finish();
    const auto guard = device_.enter();
    if (waits_) device_.synchronize(written);
    else device_.wait(callers_, written);
    settled_ = true;
  }

 private:
  void begin() {
    const auto guard = device_.enter();
    auto& b = *buffers_;
    b.called.make(device_);
    device_.record(b.called.get(), callers_);
    const tiles cut(tensor_.bytes, tensor_.block_bytes, reinterpret_cast<std::uintptr_t>(tensor_.out));
    // A segment takes what lies together in a tile of the input.
    output_.begin(device_, b.output, cut, tensor_.out, job().cut.tile_blocks, b.called.get());
    if (tensor_.skips && tensor_.in != tensor_.out && tensor_.bytes != 0) output_.fill(tensor_.null);
  }
  [[nodiscard]] compact_job job() const {
    compact_job j;
    j.cut = tiles(tensor_.bytes, tensor_.block_bytes, reinterpret_cast<std::uintptr_t>(tensor_.in));
    j.in = tensor_.in;
    j.null = tensor_.null;
    j.all = !tensor_.skips;
    return j;
  }
  void drain() noexcept {
    try {
      const auto guard = device_.enter();
      auto& b = *buffers_;
      for (const auto s : {b.input.scanning.get(), b.input.copying.get(), b.exchange.scanning.get(), b.exchange.folding.get(),
                           b.output.writing.get()})
        device_.drain(s);
    } catch (...) {  // NOLINT(bugprone-empty-catch): it is the end of a call that has failed already
    }
  }

  Device device_;
  tensor tensor_;
  stream callers_;
  bool waits_;
  borrowed_buffers<Device> buffers_;
  device_input<Device> input_;
  device_output<Device> output_;
  exchange_chunks<Device> exchange_;
  packing packs_ = packing::never;
  bool scans_ = false, settled_ = false, leaks_ = false;
  std::exception_ptr failed_;
};

}  // namespace omni::detail
