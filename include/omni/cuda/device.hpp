// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "arithmetic.hpp"
#include "compact.hpp"
#include "fold_tiles.hpp"
#include "pack_tile.hpp"
#include "scatter.hpp"

// What the device path asks of a device. cuda/runtime.hpp does it with CUDA; the tests do it on the host, late and in any order
// that streams and events allow.

namespace omni::detail {

/// What `fill` is given.
struct fill_job {
  std::byte* out = nullptr;
  std::uint64_t bytes = 0;
  std::uint32_t width = 1;  ///< of vectors: what the address is a multiple of, 16 at most
  null_bits null;
};

/// A handle of a device: cheap to copy, equal if it is the same one. Everything but memory is done in the order of a stream, and
/// nothing waits but `synchronize`. What fails throws, here or in a later call.
template <class D>
concept accelerator = std::copyable<D> && std::equality_comparable<D> &&
    requires(D& d, typename D::stream s, typename D::event e, void* p, const void* c, std::size_t n) {
  { d.allocate(n) } -> std::convertible_to<void*>;         // on the device
  { d.allocate_pinned(n) } -> std::convertible_to<void*>;  // on the host, where the device can copy from and to
  d.release(p);
  d.release_pinned(p);
  { d.make_stream() } -> std::convertible_to<typename D::stream>;
  { d.make_event() } -> std::convertible_to<typename D::event>;
  d.destroy(s);
  d.destroy(e);
  d.copy(s, p, c, n);
  d.clear(s, p, n);
  d.record(e, s);
  d.wait(s, e);  // what comes after it in the stream
  { d.reached(e) } -> std::convertible_to<bool>;
  d.synchronize(e);
  d.drain(s);  // waits for all of it; never throws
  d.compact(s, compact_job{});
  d.pack(s, pack_job{});
  d.scatter(s, scatter_job{});
  d.template fold<float, sum>(s, fold_job{});
  d.expand(s, expand_job{});
  d.fill(s, fill_job{});
  { d.reach_others() } -> std::convertible_to<bool>;  // before their memory is used: whether kernels can read all of it
  d.enter();                                          // an object while which this thread works with the device
};

/// A fold by what has been the type and the operation of a call.
template <class Device>
using fold_on = void (*)(Device&, typename Device::stream, const fold_job&);
/// Nothing where the device folds no such elements, or not by such an operation.
template <class Device, class T, class Op>
constexpr fold_on<Device> fold_by() {
  if constexpr (folds_on_device<T, Op>())
    return [](Device& d, typename Device::stream s, const fold_job& job) { d.template fold<T, Op>(s, job); };
  else return nullptr;
}

/// Memory that grows and is kept.
template <class Device, bool Pinned>
class device_memory {
 public:
  device_memory() = default;
  device_memory(const device_memory&) = delete;
  device_memory& operator=(const device_memory&) = delete;
  device_memory(device_memory&& other) noexcept
      : device_(other.device_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  device_memory& operator=(device_memory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~device_memory() { release(); }

  /// At least so many bytes; what it held is lost if it grows. Nothing on the device may be using it then.
  void reserve(Device& device, std::size_t bytes) {
    if (bytes <= size_) return;
    release();
    device_ = device;
    data_ = static_cast<std::byte*>(Pinned ? device.allocate_pinned(bytes) : device.allocate(bytes));
    size_ = bytes;
  }
  [[nodiscard]] std::byte* data() const { return data_; }
  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  void release() noexcept {
    if (data_ == nullptr) return;
    if (Pinned) device_.release_pinned(data_);
    else device_.release(data_);
    data_ = nullptr;
    size_ = 0;
  }
  Device device_{};
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A stream or an event, made when it is first needed.
template <class Device, class Handle>
class device_handle {
 public:
  device_handle() = default;
  device_handle(const device_handle&) = delete;
  device_handle(device_handle&&) = delete;
  device_handle& operator=(const device_handle&) = delete;
  device_handle& operator=(device_handle&&) = delete;
  ~device_handle() {
    if (made_) device_.destroy(handle_);
  }
  void make(Device& device) {
    if (made_) return;
    device_ = device;
    if constexpr (std::same_as<Handle, typename Device::stream>) handle_ = device.make_stream();
    else handle_ = device.make_event();
    made_ = true;
  }
  [[nodiscard]] Handle get() const { return handle_; }

 private:
  Device device_{};
  Handle handle_{};
  bool made_ = false;
};

}  // namespace omni::detail
