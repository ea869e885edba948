// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "../../report.hpp"
#include "interface.hpp"

namespace omni::detail {

struct element_loops;

/// A tensor as a call without a codec has it.
struct plain_tensor {
  const element_loops* loops;
  const void* policies;
  std::span<const std::byte> in;
  std::span<std::byte> out;
};

/// A tensor that does not travel as it is: what a call and its engine reduce is made of it, block by block, when the engine comes
/// to a block; and its results are made of what the engine delivers.
class tensor_codec : public interface {
 public:
  /// Before all else: which rank this is, of how many, and the number of the call on its transport.
  virtual void begin(int rank, int ranks, std::uint32_t call) = 0;
  /// Makes what this rank gives of n blocks, at most 64; a bit for each that is not null. Those that are need not be written.
  virtual std::uint64_t encode(std::size_t block, std::size_t n) = 0;
  /// Makes all of it, null blocks too.
  virtual void encode_all() = 0;
  /// The engine will say came() or clear() of each block. Else its results are looked at when it is done.
  virtual void deliver_by_blocks() = 0;
  /// Results of n blocks have been written.
  virtual void came(std::size_t block, std::size_t n) = 0;
  /// What comes of n blocks is null, if nothing comes.
  virtual void clear(std::size_t block, std::size_t n) = 0;
  /// Called when there is nothing else to do: does a little of what is done before settle() at the latest. False if there is none.
  virtual bool use_wait() = 0;
  /// Where results are written, if they are not to lie one after the other; and of n blocks those that do.
  [[nodiscard]] virtual bool scatters() const = 0;
  [[nodiscard]] virtual std::byte* output(std::size_t block) = 0;
  [[nodiscard]] virtual std::size_t together(std::size_t block, std::size_t n) const = 0;
  /// Whether blocks are to travel as their elements that are not null.
  [[nodiscard]] virtual bool packs() const = 0;
  [[nodiscard]] virtual std::size_t tensor_bytes() const = 0;
  /// Of the values that are made of one rank's codes.
  [[nodiscard]] virtual std::size_t decoded_bytes() const = 0;
  // Where ranks share memory an engine may move the values that codes would have, block by block of the tensor itself.
  /// The tensor, if that gives what codes give.
  [[nodiscard]] virtual std::optional<plain_tensor> plain() const = 0;
  /// It will be so: results lie in the tensor, and the engine will say came() of all blocks.
  virtual void send_values() = 0;
  /// Which of n blocks, at most 64, may have some that are not null; writes those of one of them. False, if it has none after all.
  [[nodiscard]] virtual std::uint64_t look(std::size_t block, std::size_t n) = 0;
  [[nodiscard]] virtual bool values(std::size_t block, std::byte* to) = 0;
  /// Whether sums are to be made results; makes one of the sum of what these ranks, a bit for each, have given of a
  /// block.
  [[nodiscard]] virtual bool changes_sums() const = 0;
  virtual void make_result(std::size_t block, std::uint64_t ranks, const std::byte* sum, std::byte* to) = 0;
  /// What one rank alone has to do.
  virtual void copy_through() = 0;
  /// All results are there.
  virtual void settle(report& r) = 0;
  /// Messages that were given up may still be written to its memory.
  virtual void leak() noexcept = 0;
};

}  // namespace omni::detail
