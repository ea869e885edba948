// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

namespace testing {

/// Contiguous memory with the elements of a vector, which std::vector<bool> has not.
class bools {
 public:
  explicit bools(const std::vector<bool>& v)
      : n_(v.size()), memory_(std::make_unique<bool[]>(v.size())) {  // NOLINT(modernize-avoid-c-arrays)
    std::copy(v.begin(), v.end(), memory_.get());
  }
  [[nodiscard]] bool* data() { return memory_.get(); }
  [[nodiscard]] const bool* data() const { return memory_.get(); }
  [[nodiscard]] std::size_t size() const { return n_; }
  [[nodiscard]] bool* begin() { return memory_.get(); }
  [[nodiscard]] bool* end() { return memory_.get() + n_; }
  [[nodiscard]] std::vector<bool> vector() const { return std::vector<bool>(memory_.get(), memory_.get() + n_); }

 private:
  std::size_t n_;
  std::unique_ptr<bool[]> memory_;  // NOLINT(modernize-avoid-c-arrays)
};

template <class T>
using storage = std::conditional_t<std::is_same_v<T, bool>, bools, std::vector<T>>;

template <class T>
const std::vector<T>& as_vector(const std::vector<T>& v) {
  return v;
}
inline std::vector<bool> as_vector(const bools& b) { return b.vector(); }

}  // namespace testing
