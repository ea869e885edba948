// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <omni/cuda/device_call.hpp>
#include <omni/omni.hpp>
#include <span>
#include <string>
#include <vector>

#include "../support/device_ranks.hpp"

// Tensors that stay on their devices: ranks fold there, and blocks go from device to device, as messages or by their address.

namespace {

using omni::transport::threads;
using testing::cell;
using testing::check_on_device;
using testing::device_messages;
using testing::late_device;
using testing::late_machine;
using testing::small_chunks;

using device_buffers = omni::detail::borrowed_buffers<late_device>;

template <class Values, class T, class Op, class... Policies>
void check_both(const cell& c, const Op& op, const Policies&... policies) {
  check_on_device<Values, T, small_chunks, threads>(c, op, policies...);
  check_on_device<Values, T, small_chunks, device_messages>(c, op, policies...);
}

}  // namespace

TEST_CASE_TEMPLATE("device exchange: the bits of the host's path", T, float, double, omni::half, omni::bfloat16, std::int32_t,
                   std::int64_t) {
  std::uint64_t seed = 1;
  for (const auto shape : patterns::all)
    for (const int ranks : {2, 3, 5}) {
      const cell c{ranks, 40001 + 64 * seed, shape, seed++, seed % 2 == 0};
      check_both<patterns::wild, T>(c, omni::sum{}, omni::fixed_blocks{32});
      if (ranks != 3) continue;
      check_both<patterns::wild, T>(c, omni::min{}, omni::fixed_blocks{100});
      check_both<patterns::wild, T>(c, omni::max{});
      check_both<patterns::exact, T>(c, omni::prod{}, omni::fixed_blocks{7});
    }
}
TEST_CASE_TEMPLATE("device exchange: every operation of integers", T, std::uint8_t, std::int16_t, std::uint32_t, std::int64_t) {
  const cell c{3, 20011, patterns::shape::uniform, 9, true};
  check_both<patterns::wild, T>(c, omni::sum{});
  check_both<patterns::wild, T>(c, omni::prod{});
  check_both<patterns::wild, T>(c, omni::min{});
  check_both<patterns::wild, T>(c, omni::max{});
  check_both<patterns::wild, T>(c, omni::band{});
  check_both<patterns::wild, T>(c, omni::bor{});
  check_both<patterns::wild, T>(c, omni::bxor{});
  check_both<patterns::wild, T>(c, omni::land{});
  check_both<patterns::wild, T>(c, omni::lor{});
  check_both<patterns::wild, T>(c, omni::lxor{});
}
TEST_CASE("device exchange: sizes around blocks, tiles and chunks, and more ranks than blocks") {
  std::uint64_t seed = 7;
  for (const int ranks : {2, 4})
    for (const std::size_t block : {1U, 31U, 256U, 5000U, 20000U})
      for (const std::size_t n :
           {std::size_t{1}, block - 1, block, block + 1, 8192 - 1 + block, std::size_t{8192 * 3}, std::size_t{16384 * 5 + 3}})
        for (const bool in_place : {true, false}) {
          if (n == 0) continue;
          check_both<patterns::exact, int>({ranks, n, patterns::shape::uniform, ++seed, in_place}, omni::sum{},
                                           omni::fixed_blocks{block});
        }
}
TEST_CASE("device exchange: chunks of so many blocks that their places are sought in several steps") {
  std::uint64_t seed = 1;
  for (const auto shape : patterns::all)
    for (const int ranks : {2, 3}) {
      const cell c{ranks, 300001, shape, ++seed, true};
      check_on_device<patterns::exact, int, void, threads>(c, omni::sum{}, omni::fixed_blocks{1});
      check_on_device<patterns::exact, int, void, device_messages>(c, omni::sum{}, omni::fixed_blocks{2});
    }
}
TEST_CASE("device exchange: memory that is aligned otherwise on every rank") {
  for (const std::size_t block : {32U, 25U})
    threads::run(3, [&](threads& comm) {
      late_machine machine(static_cast<std::uint64_t>(comm.rank()));  // of the ranks' devices one cannot read the others
      const auto shift = static_cast<std::size_t>(comm.rank());
      std::vector<float> in(40000 + shift, 0.0F), out(40003 + shift, 7.0F);
      for (std::size_t i = shift; i < in.size(); i += 999) in[i] = 1;
      testing::reduce<float, small_chunks>(comm, machine, true, std::span<const float>(in).subspan(shift),
                                           std::span(out).subspan(3 - shift, 40000), omni::fixed_blocks{block});
      std::vector<float> wanted(40000, 0.0F);
      for (std::size_t i = 0; i < wanted.size(); i += 999) wanted[i] = 3;
      CHECK(testing::difference(std::vector<float>(out.begin() + 3 - comm.rank(), out.begin() + 40003 - comm.rank()), wanted) ==
            "");
      CHECK(out[2 - shift] == 7.0F);
      device_buffers::drop();
    });
}
TEST_CASE("device exchange: automatic chooses it where blocks can go from device to device") {
  const auto folds = [](auto& comm, std::size_t n, const auto& op) {
    late_machine machine;
    std::vector<float> x(n, 1.0F);
    testing::reduce<float>(comm, machine, true, std::span<const float>(x), std::span(x), op);
    CHECK(x[n - 1] == 2);
    device_buffers::drop();
    return machine.folds;
  };
  threads::run(2, [&](threads& comm) {
    CHECK(folds(comm, 100000, omni::sum{}) > 0);
    CHECK(folds(comm, 100, omni::sum{}) == 0);                                // small
    CHECK(folds(comm, 100000, [](float a, float b) { return a + b; }) == 0);  // an operation that the device has not
  });
  device_messages::run(2, [&](device_messages& comm) { CHECK(folds(comm, 100000, omni::sum{}) > 0); });
}
TEST_CASE("device exchange: what is not null moves, and nothing is allocated from the second call on") {
  device_messages::run(2, [](device_messages& comm) {
    late_machine machine;
    std::vector<float> x(std::size_t{1} << 20U, 0.0F);
    const auto call = [&] {
      std::fill(x.begin(), x.end(), 0.0F);
      for (std::size_t b = 0; b < 40; ++b) x[b * 25600 + static_cast<std::size_t>(comm.rank())] = 1;
      machine.copied = 0;
      return testing::reduce<float>(comm, machine, true, std::span<const float>(x), std::span(x));
    };
    const auto r = call();
    CHECK(r.topology == "colocated");
    CHECK(r.blocks_total == 4096);
    CHECK(r.blocks_sent == 40);
    CHECK(r.union_blocks == 40);
    // Half of the blocks are of the other's tiles; the sections have two words for 32 blocks.
    const auto least = std::size_t{40} * 1024;
    CHECK(r.bytes_sent >= least);
    CHECK(r.bytes_sent < least + 4096);
    CHECK(r.bytes_received >= least);
    CHECK(r.bytes_received < least + 4096);
    CHECK(machine.copied < 10000);  // sections only
    const auto before = machine.allocations;
    for (int i = 0; i < 3; ++i) call();
    CHECK(machine.allocations == before);
    device_buffers::drop();
  });
}
TEST_CASE("device exchange: calls that do not wait for their output, one upon the other") {
  threads::run(3, [](threads& comm) { CHECK(testing::check_calls_upon_each_other(comm) >= 4); });
}
TEST_CASE("device exchange: requests, many under way") {
  const auto check = [](auto& comm) {
    late_machine machine;
    machine.reaches = true;
    std::vector<std::vector<int>> all(6, std::vector<int>(70000));
    for (int step = 0; step < 2; ++step) {
      std::vector<omni::request> requests;
      for (std::size_t i = 0; i < all.size(); ++i) {
        std::fill(all[i].begin(), all[i].end(), 0);
        all[i][i * 1000] = 1;
        requests.push_back(testing::start<int, small_chunks>(comm, machine, std::span(all[i])));
      }
      for (std::size_t i = all.size(); i-- != 0;) requests[i].wait();
      for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i][i * 1000] == 3);
    }
    device_buffers::drop();
  };
  threads::run(3, check);
  device_messages::run(3, check);
}
TEST_CASE("device exchange: a rank that does not call is missed when the deadline is over") {
  const testing::leaks_are_meant meant;
  threads::run(3, [](threads& comm) {
    if (comm.rank() == 2) return;
    const testing::leaks_are_meant here;
    late_machine machine;
    machine.reaches = true;
    std::vector<int> x(70000, 1);
    try {
      testing::reduce<int>(comm, machine, true, std::span<const int>(x), std::span(x),
                           omni::deadline{std::chrono::milliseconds(200)});
      FAIL_CHECK("no rank is missed");
    } catch (const omni::timeout& e) {
      CHECK(e.peers() == std::vector<int>{2});
    }
    device_buffers::drop();
  });
}
TEST_CASE("device exchange: ranks that call differently, and then alike") {
  const auto check = [](auto& comm) {
    late_machine machine;
    std::vector<float> x(comm.rank() == 1 ? 80000 : 70000, 1.0F);
    CHECK_THROWS_AS(testing::reduce<float>(comm, machine, true, std::span<const float>(x), std::span(x)), omni::mismatch);
    // One whose tensor is so small that it goes another way.
    std::vector<float> z(comm.rank() == 2 ? 100 : 70000, 1.0F);
    CHECK_THROWS_AS(testing::reduce<float>(comm, machine, true, std::span<const float>(z), std::span(z)), omni::mismatch);
    // One whose tensor is on the host.
    std::vector<float> w(70000, 1.0F);
    if (comm.rank() == 0) CHECK_THROWS_AS(omni::allreduce(comm, w), omni::mismatch);
    else CHECK_THROWS_AS(testing::reduce<float>(comm, machine, true, std::span<const float>(w), std::span(w)), omni::mismatch);
    CHECK(w[69999] == 1);
    std::vector<float> y(70000, 1.0F);
    testing::reduce<float>(comm, machine, true, std::span<const float>(y), std::span(y));
    CHECK(y[69999] == 3);
    device_buffers::drop();
  };
  threads::run(3, check);
  device_messages::run(3, check);
}

namespace {

/// Lets one operation of the device fail, one after the other; counts the calls that failed.
template <class Ranks>
int fail_everywhere(bool reaches) {
  int failures = 0, unheard = 0;
  for (const int ranks : {2, 3})
    for (const bool late : {false, true})
      for (long at = 0; at < 60; ++at) {
        const auto errors = testing::fail_on_device<Ranks, small_chunks>(ranks, 70000, at, late, reaches);
        if (errors[1].empty()) continue;  // it does not do so much
        ++failures;
        CHECK(errors[1].substr(0, 9) == "cudaError");
        if (errors[0].empty()) ++unheard;
        else CHECK(errors[0].find("gave up") != std::string::npos);
      }
  CHECK(unheard <= 2 * 2 * 1);  // when all is written, and only the caller's stream is to be told
  return failures;
}

}  // namespace

TEST_CASE("device exchange: whatever fails on the device of one rank, no other waits") {
  CHECK(fail_everywhere<threads>(true) > 40);
  CHECK(fail_everywhere<threads>(false) > 40);
  CHECK(fail_everywhere<device_messages>(true) > 40);
}

namespace {

/// A rank may send one message that is not as it should be.
class lying_messages : public device_messages {
 public:
  enum class lie { changed, shorter, longer };
  using device_messages::device_messages;
  template <class F>
  static void run(int ranks, F&& f) {
    threads::run(ranks, [&](threads& comm) {
      lying_messages all(comm);
      f(all);
    });
  }
  long lies_at = -1;  ///< number of the message
  lie how = lie::changed;
  std::size_t place = 0;
  bool shows = false;  ///< the lie has to be found

  class mailbox : public threads::mailbox {
   public:
    mailbox(threads::mailbox honest, lying_messages& group) : threads::mailbox(std::move(honest)), group_(&group) {}
    void send(int peer, unsigned stream, std::span<const std::byte> bytes, std::uint64_t token) {
      std::vector<std::byte> sent(bytes.begin(), bytes.end());
      if (group_->sent_++ == group_->lies_at) {
        // A section of results, in the calls that have large ones: but for what only threads read, all of it follows from its
        // marks.
        const auto at = group_->place % sent.size();
        group_->shows =
            group_->how == lie::changed && stream == 1 && sent.size() > 1000 && sent.size() % 1024 != 0 && (at < 4 || at >= 16);
        if (group_->how == lie::changed) sent[at] ^= static_cast<std::byte>(1U << group_->place % 8);
        else sent.resize(group_->how == lie::shorter ? group_->place % sent.size() : sent.size() + 1 + group_->place % 9);
      }
      threads::mailbox::send(peer, stream, sent, token);
    }

   private:
    lying_messages* group_;
  };
  [[nodiscard]] bool has_lied() const { return lies_at >= 0 && sent_ > lies_at; }
  [[nodiscard]] mailbox open() { return {device_messages::open(), *this}; }

 private:
  long sent_ = 0;
};

}  // namespace

TEST_CASE("device exchange: messages that lie are found, or change no more than elements") {
  const testing::leaks_are_meant meant;
  int found = 0, lies = 0, must_show = 0;
  auto g = patterns::make_generator(3, 1);
  for (const auto how : {lying_messages::lie::changed, lying_messages::lie::shorter, lying_messages::lie::longer})
    for (long at = 0; at < 30; ++at)
      for (int again = 0; again < (how == lying_messages::lie::changed ? 8 : 2); ++again) {
        const auto place = static_cast<std::size_t>(g());
        std::vector<int> errors(3, 0);
        bool lied = false, shows = false;
        lying_messages::run(3, [&](lying_messages& comm) {
          const testing::leaks_are_meant here;
          if (comm.rank() == 1) {
            comm.lies_at = at;
            comm.how = how;
            comm.place = place;
          }
          late_machine machine(static_cast<std::uint64_t>(at));
          std::vector<int> x(70000, 0);
          for (std::size_t i = static_cast<std::size_t>(comm.rank()) * 500; i < x.size(); i += 3000) x[i] = 1;
          try {
            // Blocks of one element: sections of many words, most of them empty.
            testing::reduce<int, small_chunks>(comm, machine, true, std::span<const int>(x), std::span(x),
                                               omni::fixed_blocks{again % 2 == 0 ? 256U : 1U});
          } catch (const omni::error&) {
            errors[static_cast<std::size_t>(comm.rank())] = 1;
          }
          if (comm.rank() == 1) {
            lied = comm.has_lied();
            shows = comm.shows;
          }
          device_buffers::drop();
        });
        if (!lied) continue;  // it sends fewer messages
        ++lies;
        if (errors[0] + errors[2] != 0) ++found;
        else CHECK((how == lying_messages::lie::changed && !shows));
        if (shows) ++must_show;
      }
  CHECK(must_show > 20);
  CHECK(lies > 200);
  CHECK(found > lies / 2);
}
