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

/// The caller's tensor, and what a call without a codec knows of its elements.
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

  // ---- values instead of codes
  // Where ranks share memory an engine may move what decoding a rank's codes would give. Results are the same to the bit.

  /// The caller's tensor, if its values may travel so; nothing if codes have to. All ranks of a call say the same.
  [[nodiscard]] virtual std::optional<plain_tensor> plain() const = 0;
  /// Values will travel: results lie in the caller's tensor, and the engine calls came() for all blocks.
  virtual void send_values() = 0;
  /// A bit for each of n blocks, at most 64, that may not be null.
  [[nodiscard]] virtual std::uint64_t look(std::size_t block, std::size_t n) = 0;
  /// Writes the values of a block. False, and nothing is written, if the block is null.
  [[nodiscard]] virtual bool values(std::size_t block, std::byte* to) = 0;
  /// Whether a result is not the sum itself, but what the sum's code would give.
  [[nodiscard]] virtual bool changes_sums() const = 0;
  /// Makes a block's result of its sum, which lies elsewhere. `ranks` has a bit for each rank that has given the block.
  virtual void make_result(std::size_t block, std::uint64_t ranks, const std::byte* sum, std::byte* to) = 0;

  /// What one rank alone has to do.
  virtual void copy_through() = 0;
  /// All results are there.
  virtual void settle(report& r) = 0;
  /// Messages that were given up may still be written to its memory.
  virtual void leak() noexcept = 0;
};

}  // namespace omni::detail
