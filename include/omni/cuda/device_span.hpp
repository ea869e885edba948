// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime.h>

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace omni {

/// A tensor in device memory: a pointer that CUDA knows as device or managed memory, and a length. Whether it is, is asked at the
/// call (`usage` if not).
template <class T>
class device_span {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  constexpr device_span() = default;
  constexpr device_span(T* data, std::size_t size) : data_(data), size_(size) {}
  template <class U>
  requires std::is_same_v<const U, T>
  constexpr device_span(const device_span<U>& other) : data_(other.data()), size_(other.size()) {}  // NOLINT(*-explicit-*)

  [[nodiscard]] constexpr T* data() const { return data_; }
  [[nodiscard]] constexpr std::size_t size() const { return size_; }
  [[nodiscard]] constexpr device_span subspan(std::size_t first, std::size_t n) const { return {data_ + first, n}; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A tensor of which CUDA is asked at the call where it lies: in device memory, or else on the host.
template <class T>
struct located_span {
  T* pointer = nullptr;
  std::size_t length = 0;

  constexpr located_span(T* data, std::size_t size) : pointer(data), length(size) {}
};

/// Argument of a call: it reads its input when what is in the stream at the call is done, and what is put into the stream once it
/// has returned (for a request: once it is done) may read the output. The host does not wait for that, but for collectives other
/// than allreduce.
struct on_stream {
  cudaStream_t stream = nullptr;
};

namespace detail {

/// What has a raw pointer behind data() that the host cannot use: thrust::device_vector and its like.
template <class D>
concept device_container = requires(D& d) {
  { d.size() } -> std::convertible_to<std::size_t>;
  d.data().get();
  requires std::is_pointer_v<decltype(d.data().get())>;
};

template <class T>
device_span<T> as_device_span(const device_span<T>& s) {
  return s;
}
template <device_container D>
auto as_device_span(D& d) {
  return device_span(d.data().get(), d.size());
}

template <class D>
concept on_device = requires(D& d) {
  as_device_span(d);
};

template <class A>
inline constexpr bool is_located = false;
template <class T>
inline constexpr bool is_located<located_span<T>> = true;

}  // namespace detail
}  // namespace omni
