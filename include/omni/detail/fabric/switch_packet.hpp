// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "switch_program.h"

namespace omni::detail {

static_assert(sizeof(omni_switch_header) == 64 && std::endian::native == std::endian::little);

/// A packet to or from a switch: a header, and room for all the blocks that there may be.
struct switch_packet {
  omni_switch_header header{};
  std::array<omni_u64, OMNI_SWITCH_PAIRS> pairs{};

  static constexpr std::size_t most_bytes = sizeof(omni_switch_header) + OMNI_SWITCH_PAIRS * sizeof(omni_u64);

  [[nodiscard]] std::size_t bytes(std::size_t pairs_of_block) const {
    return sizeof(header) + static_cast<std::size_t>(std::popcount(header.lanes)) * pairs_of_block * sizeof(omni_u64);
  }
  /// Says of itself what it is, so that whoever gets it sees whether it is whole.
  void seal(std::size_t pairs_of_block) {
    header.magic = OMNI_SWITCH_MAGIC;
    const auto s = sums(pairs_of_block);
    omni_switch_seal(&header, &s);
  }
  [[nodiscard]] std::span<const std::byte> view(std::size_t pairs_of_block) const {
    return {reinterpret_cast<const std::byte*>(this), bytes(pairs_of_block)};
  }
  [[nodiscard]] const void* end_of(std::size_t received) const { return reinterpret_cast<const std::byte*>(this) + received; }
  /// Whether so many bytes are a packet of its kind, as it was sent. `pairs_of_block`: of data; control packets have no blocks.
  [[nodiscard]] bool is_whole(std::size_t received, std::size_t pairs_of_block) const {
    if (received < sizeof(header) || header.magic != OMNI_SWITCH_MAGIC) return false;
    if (received != bytes(pairs_of_block)) return false;
    const auto s = sums(pairs_of_block);
    return omni_switch_is_sealed(&header, &s) != 0;
  }

 private:
  [[nodiscard]] omni_switch_sums sums(std::size_t pairs_of_block) const {
    return omni_switch_sums_of(&header, pairs.data(), end_of(most_bytes), static_cast<omni_u32>(pairs_of_block));
  }
};
static_assert(sizeof(switch_packet) == switch_packet::most_bytes);

/// Why a switch does not lease slots.
enum class no_lease : std::uint32_t { full = 1, too_many_workers, bad_request, gone, nothing_above };

/// A packet of control: of a kind, with a few numbers.
inline switch_packet control_packet(omni_switch_kind kind, std::initializer_list<std::uint32_t> numbers = {}) {
  switch_packet p;
  p.header.kind = static_cast<omni_u8>(kind);
  std::size_t i = 0;
  for (const auto n : numbers) p.header.next[i++] = n;
  return p;
}

/// One of a worker of a job.
inline switch_packet job_packet(omni_switch_kind kind, unsigned job, std::uint32_t key, unsigned worker) {
  auto p = control_packet(kind);
  p.header.job = static_cast<omni_u16>(job);
  p.header.key = key;
  p.header.worker = static_cast<omni_u8>(worker);
  return p;
}

/// The way to a switch. Datagrams may be lost, come twice, late, or damaged.
class switch_link {
 public:
  switch_link() = default;
  switch_link(const switch_link&) = delete;
  switch_link(switch_link&&) = delete;
  switch_link& operator=(const switch_link&) = delete;
  switch_link& operator=(switch_link&&) = delete;
  virtual ~switch_link() = default;

  virtual void send(std::span<const std::byte> datagram) = 0;
  /// The switch: a number that is the same on all ranks that are at the same one.
  [[nodiscard]] virtual std::uint64_t where() const { return 0; }
  /// Whether what is sent may be lost.
  [[nodiscard]] virtual bool loses() const { return true; }
  /// The largest datagram that the way takes in one piece.
  [[nodiscard]] virtual std::size_t most_bytes() const { return switch_packet::most_bytes; }
  /// Waits up to so many seconds for one; its bytes, or 0.
  [[nodiscard]] virtual std::size_t receive(switch_packet& to, double seconds) = 0;
};

}  // namespace omni::detail
