// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <omni/detail/carry/adapted.hpp>
#include <omni/error.hpp>
#include <span>
#include <string>

namespace {

using omni::detail::adapted;
using omni::detail::any_box;
using omni::detail::mailbox_room;

/// No more than the concepts ask for.
struct bare {
  struct mailbox {
    [[nodiscard]] static std::uint32_t call() { return 7; }
    static void send(int /*peer*/, unsigned /*stream*/, std::span<const std::byte> /*bytes*/, std::uint64_t /*token*/) {}
    static void receive(int /*peer*/, unsigned /*stream*/, std::span<std::byte> /*to*/, std::uint64_t /*token*/) {}
    [[nodiscard]] static std::span<const omni::completion> poll() { return {}; }
    [[nodiscard]] static std::span<const omni::completion> wait() { return {}; }
    static void cancel(unsigned /*stream*/) {}
    static void abandon() {}
  };
  static constexpr bool may_lose = false;
  [[nodiscard]] static int rank() { return 2; }
  [[nodiscard]] static int size() { return 5; }
  [[nodiscard]] static std::size_t preferred_packet_bytes() { return 1000; }
  [[nodiscard]] static mailbox open() { return {}; }
};

/// And what may be offered beside.
struct rich : bare {
  static constexpr bool agrees_first = true;
  std::string why;
  std::uint32_t asked = 0;
  [[nodiscard]] std::uint32_t queue() { return ++asked; }
  [[nodiscard]] bool may_start(std::uint32_t ticket) const { return ticket == asked; }
  void mark_broken(const std::string& w) { why = w; }
  [[nodiscard]] bool is_usable() const { return why.empty(); }
  [[nodiscard]] static bool one_host() { return false; }
  [[nodiscard]] static int servers() { return 3; }
};

template <std::size_t Bytes>
struct counted final : any_box {
  explicit counted(int& a) : alive(a) { ++alive; }
  counted(const counted&) = delete;
  counted(counted&&) = delete;
  counted& operator=(const counted&) = delete;
  counted& operator=(counted&&) = delete;
  ~counted() override { --alive; }
  [[nodiscard]] std::uint32_t call() const override { return static_cast<std::uint32_t>(Bytes); }
  int& alive;
  std::array<std::byte, Bytes> more{};
};

}  // namespace

TEST_CASE("carry: what a transport does not offer has a default") {
  bare transport;
  adapted<bare&> there(transport);
  CHECK(there.rank() == 2);
  CHECK(there.size() == 5);
  CHECK(there.preferred_packet_bytes() == 1000);
  CHECK(there.identity() == &transport);
  CHECK(there.keep_alive() == nullptr);
  CHECK(there.servers() == 0);
  CHECK(there.may_start(there.queue()));
  CHECK(there.nothing_queued());
  CHECK(there.is_open());
  there.mark_broken("an error");
  CHECK(there.is_usable());
  CHECK_FALSE(there.is_roll_called());
  CHECK_FALSE(there.call_roll({}).has_value());
  CHECK_FALSE(there.say_farewell(0));
  CHECK_FALSE(there.has_left(1));
  CHECK_FALSE(there.agrees_first());
  CHECK_FALSE(there.checks_calls());
  CHECK(there.shared_window() == nullptr);
  CHECK(there.one_host());
  CHECK_FALSE(there.has_levels(0, true));
  CHECK_FALSE(there.measured().known());
  CHECK_FALSE(there.takes_device_memory());
  mailbox_room room;
  auto& messages = there.open(room);
  CHECK(messages.call() == 7);
  CHECK_FALSE(messages.shares_packets());
  CHECK(messages.enter());
  CHECK(messages.room(10).empty());
  CHECK_THROWS_AS(there.open_datagrams(room), omni::usage);
}
TEST_CASE("carry: what it offers is used") {
  rich transport;
  adapted<rich&> there(transport);
  CHECK(there.agrees_first());
  CHECK(there.queue() == 1);
  CHECK(there.may_start(1));
  CHECK_FALSE(there.may_start(2));
  CHECK_FALSE(there.one_host());
  CHECK(there.servers() == 3);
  there.mark_broken("an error");
  CHECK(transport.why == "an error");
  CHECK_FALSE(there.is_usable());
}
TEST_CASE("carry: a room for mailboxes of any size ends each once") {
  int alive = 0;
  {
    mailbox_room room;
    CHECK(room.emplace([&] { return counted<8>(alive); }).call() == 8);
    CHECK(alive == 1);
    CHECK(room.emplace([&] { return counted<4096>(alive); }).call() == 4096);
    CHECK(alive == 1);
    room.clear();
    CHECK(alive == 0);
    CHECK(room.emplace([&] { return counted<16>(alive); }).call() == 16);
  }
  CHECK(alive == 0);
}
