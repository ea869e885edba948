// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <omni/detail/datagram/datagram_demux.hpp>
#include <optional>
#include <span>
#include <vector>

// One socket, several operations under way.

namespace {

using omni::detail::slot_header;
using omni::detail::slot_kind;

/// Gives out what the test has put in, and keeps what is sent.
struct scripted {
  struct letter {
    int peer;
    omni::detail::aligned_bytes bytes;
  };
  std::deque<letter> arriving;
  std::vector<slot_header> sent;
  omni::detail::aligned_bytes read;

  [[nodiscard]] static int rank() { return 0; }
  [[nodiscard]] static int size() { return 3; }
  [[nodiscard]] static std::size_t datagram_bytes() { return 1024; }
  void send(int /*peer*/, std::span<const std::byte> bytes) {
    omni::detail::slot_reader d;
    if (d.parse(bytes)) sent.push_back(d.header);
  }
  std::optional<omni::detail::datagram> receive(double /*seconds*/) {
    if (arriving.empty()) return std::nullopt;
    const int peer = arriving.front().peer;
    read = std::move(arriving.front().bytes);
    arriving.pop_front();
    return omni::detail::datagram{peer, std::as_const(read).span()};
  }
  void put(int peer, const slot_header& h, bool changed = false) {
    arriving.push_back({peer, omni::detail::aligned_bytes(sizeof(slot_header))});
    auto room = arriving.back().bytes.span();
    static_cast<void>(omni::detail::slot_writer(room, h).close());
    if (changed) room[17] ^= std::byte{4};
  }
};
using office_type = omni::detail::datagram_demux<scripted>;

}  // namespace

TEST_CASE("a word that ends something is kept, however many others wait, and is answered only by a later call") {
  office_type office;
  auto first = office.open();
  {
    auto second = office.open();
    for (std::uint32_t i = 0; i < 1000; ++i) office.socket().put(1, {.call = 1, .kind = slot_kind::contribution, .step = i});
    for (int i = 0; i < 3; ++i) office.socket().put(1, {.call = 1, .kind = slot_kind::done});
    office.socket().put(2, {.call = 1, .kind = slot_kind::done});
    CHECK(!first.receive(0));
    CHECK(office.socket().sent.empty());
    std::size_t contributions = 0;
    std::vector<int> done;
    while (const auto a = second.receive(0)) {
      if (a->datagram.header.kind == slot_kind::done) done.push_back(a->peer);
      else ++contributions;
    }
    CHECK(contributions > 0);
    CHECK(contributions < 1000);
    CHECK(done == std::vector<int>{1, 2});
  }
  office.socket().put(1, {.call = 1, .kind = slot_kind::done});  // over here
  CHECK(!first.receive(0));
  REQUIRE(office.socket().sent.size() == 1);
  CHECK(office.socket().sent[0].kind == slot_kind::farewell);
  CHECK(office.socket().sent[0].call == 1);
}

TEST_CASE("the next call's first datagrams wait for it; what was changed on its way does not") {
  office_type office;
  auto first = office.open();
  office.socket().put(1, {.call = 1, .kind = slot_kind::hello});
  office.socket().put(2, {.call = 1, .kind = slot_kind::hello}, true);
  office.socket().put(2, {.call = 7, .kind = slot_kind::hello});  // of a call that is far away
  CHECK(!first.receive(0));
  auto second = office.open();
  const auto a = second.receive(0);
  REQUIRE(a);
  CHECK(a->peer == 1);
  CHECK(!second.receive(0));
}

TEST_CASE("who has passed a call, and who will not come to it") {
  office_type office;
  auto first = office.open();
  auto second = office.open();
  office.socket().put(1, {.call = 2, .kind = slot_kind::hello, .oldest = 1});
  office.socket().put(2, {.call = 0, .kind = slot_kind::abort});
  static_cast<void>(second.receive(0));
  CHECK(first.passed(1));
  CHECK(!second.passed(1));
  CHECK(first.failed(2));
  CHECK(first.gone(2));
  CHECK(!second.failed(2));
  CHECK(second.gone(2));
  CHECK(!second.gone(1));
  office.socket().put(2, {.call = 1, .kind = slot_kind::hello});  // it had begun that one before
  static_cast<void>(second.receive(0));
  CHECK(!second.gone(2));
  // It fails in a call that has not begun here: there is no box for the word, and it is known all the same.
  office.socket().put(2, {.call = 4, .kind = slot_kind::hello});
  office.socket().put(2, {.call = 4, .kind = slot_kind::abort});
  static_cast<void>(second.receive(0));
  CHECK(!second.gone(2));
  const auto third = office.open(), fourth = office.open(), fifth = office.open();
  CHECK(!third.gone(2));
  CHECK(!fourth.failed(2));
  CHECK(fifth.failed(2));
  CHECK(fifth.gone(2));
}
