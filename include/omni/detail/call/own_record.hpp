// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "../../report.hpp"
#include "../memory/copy.hpp"
#include "interface.hpp"

namespace omni::detail {

/// A rank, room for what it is told, and how many bytes that has.
struct told_rank {
  int rank = 0;
  std::span<std::byte> room;
  std::size_t bytes = 0;
};

/// What a call tells all ranks with its first word, and what it makes of what they tell: in its record in the place of blocks,
/// where ranks share memory; else in the messages by which ranks agree. What it throws ends the call.
class own_record : public interface {
 public:
  // ---- records

  /// Bytes of the room that it wants.
  [[nodiscard]] virtual std::size_t bytes() const = 0;
  /// Writes this rank's; how many bytes.
  virtual std::size_t write(std::span<std::byte> room, stores how) = 0;
  /// Folds what all ranks have written, when they are known to have called alike: everything, or a part that the others will read.
  /// How many bytes that has; nothing if there are no parts. `has_room`: all ranks had the room that they wanted.
  [[nodiscard]] virtual std::optional<std::size_t> fold(std::span<const std::span<const std::byte>> all, bool has_room,
                                                        std::span<std::byte> room, report& r) = 0;
  /// Takes the parts of all ranks.
  virtual void take(std::span<const std::span<const std::byte>> parts, report& r) = 0;

  /// Whether what was folded and taken was all that the call has to do.
  [[nodiscard]] virtual bool is_done() const { return true; }

  // ---- messages

  /// Writes what goes with them; how many bytes.
  virtual std::size_t write_message(std::span<std::byte> room) = 0;
  /// Where messages go straight to each rank: writes for each what it has to know. False, and nothing written, if all are told the
  /// same.
  virtual bool write_messages(std::span<told_rank> /*all, this one, too*/) { return false; }
  /// Folds what came from all ranks, when they are known to have called alike.
  virtual void fold_messages(std::span<const std::span<const std::byte>> all, report& r) = 0;
};

}  // namespace omni::detail
