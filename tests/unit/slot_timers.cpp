// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <omni/detail/slots/slot_worker.hpp>
#include <omni/omni.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

// When a worker sends a datagram again: one worker with two slots, its owner, and a clock that the test sets.

namespace {

using call_type = omni::detail::typed_call<int, omni::sum, omni::fixed_blocks, omni::scalar_detector>;
using letters = std::vector<std::vector<std::byte>>;

// Eight blocks, of which each slot has four, one a step.
class conversation {
 public:
  conversation() {
    known_.add<int>(omni::sum{});
    owner_.emplace(1, std::size_t{1}, std::size_t{0}, 99, 7U, &known_);
    call_.topology = "colocated";
    worker_.emplace(call_, sign(call_, "colocated", 512, 2), std::size_t{1}, 7U, std::vector<std::uint64_t>{0xff});
    worker_->start(0, 0, to_owner());
    hear(answers(take_sent()), 0);
    REQUIRE(sent_.size() == 2);
  }
  // What the worker has sent since the last time.
  letters take_sent() { return std::exchange(sent_, {}); }
  letters sent_by_tick(double now) {
    REQUIRE(sent_.empty());
    worker_->tick(now, 0, to_owner());
    return take_sent();
  }
  letters answers(const letters& of) {
    letters all;
    for (const auto& l : of)
      with(l, [&](const auto& d) {
        owner_->take(0, d, [&](int, std::span<const std::byte> b) { all.emplace_back(b.begin(), b.end()); });
      });
    return all;
  }
  void hear(const letters& all, double now) {
    for (const auto& l : all) with(l, [&](const auto& d) { worker_->take(0, d, now, to_owner()); });
  }
  [[nodiscard]] double due() const { return worker_->due(); }
  [[nodiscard]] bool is_over() const { return worker_->finished(); }
  static bool says_done(const letters& all) {
    bool found = false;
    for (const auto& l : all) with(l, [&](const auto& d) { found = found || d.header.kind == omni::detail::slot_kind::done; });
    return found;
  }

 private:
  static constexpr std::size_t block = 90;

  omni::detail::slot_worker::send_function to_owner() {
    return [this](int, std::span<const std::byte> b) { sent_.emplace_back(b.begin(), b.end()); };
  }
  template <class F>
  static void with(const std::vector<std::byte>& l, const F& f) {
    omni::detail::aligned_bytes room(l.size());
    std::copy(l.begin(), l.end(), room.span().begin());
    omni::detail::slot_reader d;
    REQUIRE(d.parse(room.span()));
    f(d);
  }

  std::vector<int> x_ = std::vector<int>(8 * block, 1);
  call_type::policies policies_{{}, {block}, {}};
  call_type call_{policies_, x_, x_};
  omni::detail::reductions known_;
  std::optional<omni::detail::slot_owner> owner_;
  std::optional<omni::detail::slot_worker> worker_;
  letters sent_;
};

}  // namespace

TEST_CASE("slots: what is not answered is sent again, at intervals that double") {
  conversation c;
  const auto first = c.take_sent();
  const auto wait = c.due();
  CHECK(c.sent_by_tick(0.99 * wait).empty());
  CHECK(c.sent_by_tick(wait) == first);
  CHECK(c.due() == doctest::Approx(3 * wait));
  CHECK(c.sent_by_tick(2.99 * wait).empty());
  CHECK(c.sent_by_tick(3.01 * wait) == first);
}

TEST_CASE("slots: what the owner has yet to come to waits its turn") {
  conversation c;
  const auto first = c.take_sent();
  const auto lost = first[1];
  const auto wait = c.due(), answered = 0.9 * wait;
  c.hear(c.answers({first[0]}), answered);
  auto next = c.take_sent();
  REQUIRE(next.size() == 1);

  // One answer: the other slot's may be the next. It is put off until the owner has been silent for as long as one waits now.
  CHECK(c.sent_by_tick(wait).empty());
  const auto put_off = c.due();
  CHECK(put_off == doctest::Approx(answered + wait));  // quick answers took no time: the greeting's

  SUBCASE("the owner falls silent") {
    CHECK(c.sent_by_tick(0.99 * put_off).empty());
    const auto again = c.sent_by_tick(1.01 * put_off);
    CHECK(std::find(again.begin(), again.end(), lost) != again.end());
  }
  SUBCASE("the owner has answered what came later: the datagram was lost, and the owner's being alive does not put it off again") {
    c.hear(c.answers(next), 0.95 * put_off);
    next = c.take_sent();
    REQUIRE(next.size() == 1);
    CHECK(c.sent_by_tick(1.01 * put_off) == letters{lost});
  }
}

TEST_CASE("slots: a worker that is done says so for a quarter of a second or more, until it is answered") {
  conversation c;
  auto some = c.take_sent();
  for (; !conversation::says_done(some); some = c.take_sent()) {
    REQUIRE(!some.empty());
    c.hear(c.answers(some), 0);
  }
  double now = 0;
  for (int words = 1; !c.is_over(); ++words) {
    REQUIRE(words < 100);
    now = c.due();
    c.sent_by_tick(now);
  }
  CHECK(now >= 0.25);
  CHECK(now < 5);
}

TEST_CASE("slots: answers that the network doubles do not make a worker wait longer") {
  conversation c;
  const auto wait = c.due();
  auto some = c.take_sent();
  for (int step = 0; step < 3; ++step) {
    const auto answers = c.answers(some);
    for (int copies = 0; copies < 50; ++copies) c.hear(answers, 0);
    some = c.take_sent();
  }
  REQUIRE(!some.empty());
  CHECK(c.due() == doctest::Approx(wait));
}
