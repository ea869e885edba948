// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace omni::detail {

/// A vector whose elements have a type that is known elsewhere. All lengths are in bytes.
class any_vector {
 public:
  virtual ~any_vector() = default;

  [[nodiscard]] virtual std::byte* data() = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;
  [[nodiscard]] virtual std::size_t capacity() const = 0;
  virtual void reserve(std::size_t bytes) = 0;
  /// What is added has any contents.
  virtual void resize(std::size_t bytes) = 0;
  /// Appends a copy; where it lies. `from` lies elsewhere.
  virtual std::byte* append(const void* from, std::size_t bytes) = 0;

  void clear() { resize(0); }

 protected:
  any_vector() = default;
  any_vector(const any_vector&) = default;
  any_vector(any_vector&&) = default;
  any_vector& operator=(const any_vector&) = default;
  any_vector& operator=(any_vector&&) = default;
};

/// A std::vector<T>, which a caller gets.
template <class T>
class vector_of final : public any_vector {
 public:
  std::vector<T> all;

  [[nodiscard]] std::byte* data() override { return reinterpret_cast<std::byte*>(all.data()); }
  [[nodiscard]] std::size_t size() const override { return all.size() * sizeof(T); }
  [[nodiscard]] std::size_t capacity() const override { return all.capacity() * sizeof(T); }
  void reserve(std::size_t bytes) override { all.reserve(bytes / sizeof(T)); }
  void resize(std::size_t bytes) override {
    if constexpr (std::is_default_constructible_v<T>) all.resize(bytes / sizeof(T));
    else all.resize(bytes / sizeof(T), std::bit_cast<T>(std::array<std::byte, sizeof(T)>{}));
  }
  std::byte* append(const void* from, std::size_t bytes) override {
    const auto at = size();
    const auto* const first = static_cast<const T*>(from);
    all.insert(all.end(), first, first + bytes / sizeof(T));
    return data() + at;
  }
};

/// Memory that nobody clears before it is written, from a cache line on.
class byte_vector final : public any_vector {
 public:
  byte_vector() = default;
  byte_vector(const byte_vector&) = delete;
  byte_vector(byte_vector&& other) noexcept { swap(other); }
  byte_vector& operator=(const byte_vector&) = delete;
  byte_vector& operator=(byte_vector&& other) noexcept {
    swap(other);
    return *this;
  }
  ~byte_vector() override = default;

  [[nodiscard]] std::byte* data() override { return memory_.get(); }
  [[nodiscard]] const std::byte* data() const { return memory_.get(); }
  [[nodiscard]] std::size_t size() const override { return size_; }
  [[nodiscard]] std::size_t capacity() const override { return capacity_; }
  void reserve(std::size_t bytes) override {
    if (bytes <= capacity_) return;
    std::unique_ptr<std::byte, release> more(static_cast<std::byte*>(::operator new(bytes, alignment)));
    if (size_ != 0) std::memcpy(more.get(), memory_.get(), size_);
    memory_ = std::move(more);
    capacity_ = bytes;
  }
  void resize(std::size_t bytes) override {
    if (bytes > capacity_) reserve(std::max(bytes, 2 * capacity_));
    size_ = bytes;
  }
  std::byte* append(const void* from, std::size_t bytes) override {
    const auto at = size_;
    resize(at + bytes);
    if (bytes != 0) std::memcpy(memory_.get() + at, from, bytes);
    return memory_.get() + at;
  }
  void swap(byte_vector& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

 private:
  static constexpr std::align_val_t alignment{64};
  struct release {
    void operator()(std::byte* p) const { ::operator delete(p, alignment); }
  };
  std::unique_ptr<std::byte, release> memory_;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace omni::detail
