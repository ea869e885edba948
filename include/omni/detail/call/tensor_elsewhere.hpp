// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "../../block.hpp"
#include "interface.hpp"

namespace omni::detail {

/// A tensor that does not lie in the host's memory, as a call and its engine see it: what is not null is asked of it, and it says
/// when it has come so far; blocks are read and written where it has them.
class tensor_elsewhere : public interface {
 public:
  /// Whether the marks of a block are known, and await() for when nothing else is left to do.
  [[nodiscard]] virtual bool available(std::size_t block) = 0;
  virtual void await(std::size_t block) = 0;
  /// Blocks below are available.
  [[nodiscard]] virtual std::size_t arrived() const = 0;
  /// A bit for each of n blocks that has to be sent. Precondition: available().
  [[nodiscard]] virtual std::uint64_t marks(std::size_t block, std::size_t n) const = 0;
  /// Of one that is not packed.
  [[nodiscard]] virtual const std::byte* input(std::size_t block) const = 0;
  /// From now on blocks are to come packed (docs/wire_format.md), if it can, or not (as at first); automatic: that is said when the
  /// first have arrived.
  virtual void pack(packing how) = 0;
  /// What begins with a block that has come packed: else nothing.
  [[nodiscard]] virtual std::span<const std::byte> packed(std::size_t block) const = 0;
  [[nodiscard]] virtual std::byte* output(std::size_t block, std::size_t n) = 0;
  /// Of n blocks from this one on, those that lie one after the other.
  [[nodiscard]] virtual std::size_t together(std::size_t block, std::size_t n) const = 0;
  /// What one rank alone has to do.
  virtual void copy_through() = 0;
  /// Waits for results that are still on their way to the caller's memory.
  virtual void settle() = 0;
  /// Whether the tensor is not there yet: that wait is for no other rank.
  [[nodiscard]] virtual bool is_held_up() = 0;
  /// Of memory that it has beside the caller's, here and there.
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

}  // namespace omni::detail
