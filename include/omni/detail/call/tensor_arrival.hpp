// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "interface.hpp"

namespace omni::detail {

/// The way of a call's tensors to the memory that it has them in, and of the results from there. The engine waits for
/// the input, so that the other ranks hear if it does not come.
class tensor_arrival : public interface {
 public:
  /// Whether the input is there. Throws if it will not come.
  [[nodiscard]] virtual bool is_here() = 0;
  virtual void await() = 0;
  /// Takes the results back, all of which are there.
  virtual void settle() = 0;
  /// It will not come, and there may be no memory for it.
  [[nodiscard]] virtual bool has_failed() const = 0;
  /// Of memory that it has beside the caller's.
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

}  // namespace omni::detail
