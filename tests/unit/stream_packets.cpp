// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <omni/detail/streams/out_stream.hpp>
#include <omni/detail/streams/stream_options.hpp>
#include <span>
#include <vector>

namespace {

using omni::detail::out_stream;
using omni::detail::packet_limits;
using omni::detail::signature;
using omni::detail::stream_options;

constexpr std::size_t at_once = std::size_t{62} << 10U, shaking_hands = std::size_t{128} << 10U;

/// Takes every message off the sender's hands.
struct eager final : omni::detail::any_mailbox {
  std::vector<std::size_t> sizes;
  std::vector<std::uint64_t> tokens;
  void send(int /*peer*/, unsigned /*stream*/, std::span<const std::byte> bytes, std::uint64_t token) override {
    sizes.push_back(bytes.size());
    tokens.push_back(token);
  }
  void receive(int /*peer*/, unsigned /*stream*/, std::span<std::byte> /*buffer*/, std::uint64_t /*token*/) override {}
  [[nodiscard]] std::span<const omni::completion> poll() override { return {}; }
  [[nodiscard]] std::span<const omni::completion> wait() override { return {}; }
  void cancel(unsigned /*stream*/) override {}
  void abandon() override {}
  [[nodiscard]] std::uint32_t call() const override { return 0; }
};

}  // namespace

TEST_CASE("packets: as large as the transport likes them, as far as all buffers are few") {
  const auto packet = [](int ranks, std::size_t preferred) { return stream_options{}.limits(ranks, preferred, 4).packet_bytes; };
  CHECK(packet(28, at_once) == at_once);
  CHECK(packet(64, at_once) == 28032);           // 12 MiB / 64 / 7, in lines
  CHECK(packet(8, shaking_hands) == 131072);     // on a fast link
  CHECK(packet(54, shaking_hands) == 131072);    // 48 MiB are 133152 for each of 7
  CHECK(packet(64, shaking_hands) == 112320);    // 48 MiB / 64 / 7
  CHECK(packet(100000, shaking_hands) == 2048);  // never less
  // A rank called with anything else can receive the first.
  for (const std::size_t preferred : {at_once, shaking_hands})
    for (const int ranks : {2, 8, 64, 512}) {
      CAPTURE(ranks);
      const auto chosen = stream_options{}.limits(ranks, preferred, 4);
      CHECK(chosen.first_bytes == chosen.packet_bytes);
      CHECK(stream_options{.packet_bytes = 1 << 20U, .window = 3}.limits(ranks, preferred, 4).first_bytes == chosen.first_bytes);
      CHECK(stream_options{}.limits(ranks, preferred, 1 << 22U).first_bytes == chosen.first_bytes);
    }
}

TEST_CASE("packets: small ones only early in a stream, though the peer always seems to wait for more") {
  for (const std::size_t largest : {at_once, shaking_hands}) {
    CAPTURE(largest);
    constexpr std::size_t block = 1024, rows = 8192;
    std::deque<std::vector<std::byte>> memory;
    const auto room = [&](std::size_t bytes) { return std::span(memory.emplace_back(bytes)); };
    const std::array peers{1, 2, 3};
    const signature mine{};
    eager messages;
    out_stream stream;
    stream.open(0, 0, peers, packet_limits{largest, largest, 2}, rows, 0, mine);
    stream.make_room(room);
    for (std::size_t row = 0; row < rows; ++row) {
      auto* const at = stream.add(messages, row, block);
      REQUIRE(at != nullptr);
      std::memset(at, 1, block);
      if (stream.idle() && stream.worthwhile()) static_cast<void>(stream.flush(messages, row + 1));
      for (; !messages.tokens.empty(); messages.tokens.pop_back()) stream.sent(messages.tokens.back());
    }
    REQUIRE(stream.close(messages));
    const auto& sizes = messages.sizes;
    // The first comes when there is a quarter of a packet, and each is half as large as all before it, up to a full one.
    CHECK(sizes.front() < largest / 4 + 2 * block);
    std::size_t sent = 0, full = 0;
    for (std::size_t i = 0; i + peers.size() < sizes.size(); i += peers.size()) {
      CAPTURE(i);
      const bool is_full = sizes[i] + block + 4 > largest;
      CHECK((is_full || 2 * sizes[i] > sent));
      if (is_full) ++full;
      sent += sizes[i];
    }
    CHECK(full + 8 > sizes.size() / peers.size());
    CHECK(full + 5 < sizes.size() / peers.size());  // they grow by half, whatever the number of peers
    CHECK(full > (rows * block) / largest - 5);
  }
}

TEST_CASE("packets: the rows of a full one have room from the start, so that a later call allocates nothing") {
  constexpr std::size_t packet = std::size_t{32} << 10U, rows = 100000;
  for (const std::size_t block : {std::size_t{4}, std::size_t{64}, std::size_t{1024}}) {
    CAPTURE(block);
    std::deque<std::vector<std::byte>> memory;
    const auto room = [&](std::size_t bytes) { return std::span(memory.emplace_back(bytes)); };
    const std::array peers{1};
    const signature mine{};
    eager messages;
    out_stream stream;
    packet_limits limits{packet, packet, 2};
    limits.least_block = block;
    stream.open(0, 0, peers, limits, rows, 0, mine);
    stream.make_room(room);
    const auto kept = stream.kept_bytes();
    CHECK(kept <= (packet / (block + 4) + 1) * 4);
    std::size_t many = 1000;
    for (std::size_t row = 0; messages.sizes.empty() && row < rows; row += many) {
      many = 1000;
      REQUIRE(stream.add(messages, row, block, many) != nullptr);
    }
    CHECK(messages.sizes.front() + block + 4 > packet);
    CHECK(stream.kept_bytes() == kept);
  }
}
