// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <omni/omni.hpp>
#include <omni/transport/udp.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "../support/effort.hpp"
#include "../support/losing.hpp"
#include "../support/partitioners.hpp"
#include "../support/ranks.hpp"
#include "../support/who_packs.hpp"

// Transports that lose packets. Every result is exact, whatever is lost.

using omni::fixed_blocks;
using testing::cell;
using testing::losing;
using testing::losing_served;

namespace {

constexpr double shares[] = {0, 0.001, 0.01, 0.05, 0.2};

template <class Ranks, class T, class Op, class... More>
void check_lossy(const cell& c, const Op& op, const More&... more) {
  CAPTURE(testing::describe(c));
  CAPTURE(losing::network.drop);
  CAPTURE(losing::network.seed);
  const auto inputs = patterns::tensors<patterns::wild>(c.shape, c.seed, c.ranks, c.n, oracle::null_of<Op, T>());
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<Op>{});
  CHECK(testing::allreduce_over<Ranks>(inputs, wanted, c.in_place, op, more...) == "");
}

}  // namespace

TEST_CASE("lost, doubled, delayed, cut and changed packets: exact results, 100 seeds for each share") {
  for (const auto share : shares)
    for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(testing::draws(100)); ++seed) {
      losing::network = testing::trouble(share, seed);
      const auto shape = patterns::all[seed % patterns::all.size()];
      const int ranks = 2 + static_cast<int>(seed % 3);
      const cell c{ranks, 150 + 17 * (seed % 20), shape, seed, seed % 2 == 0};
      check_lossy<losing, float>(c, omni::sum{}, fixed_blocks{16});
      // One slot of small blocks: several steps, in which the answer to the last is wanted while the next is gathered.
      if (seed % 4 == 0) check_lossy<losing, float>(c, omni::sum{}, fixed_blocks{4}, omni::colocated{600, 1});
    }
}

TEST_CASE("the same with servers") {
  for (const auto share : shares)
    for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(testing::draws(100)); ++seed) {
      losing::network = testing::trouble(share, seed);
      const auto shape = patterns::all[seed % patterns::all.size()];
      const int workers = 2 + static_cast<int>(seed % 2);
      const cell c{workers, 150 + 17 * (seed % 20), shape, seed, seed / 2 % 2 == 0};
      check_lossy<losing_served<2>, float>(c, omni::sum{}, fixed_blocks{16});
      const omni::dedicated one_slot{.servers = 2, .packet_bytes = 600, .window = 1};
      if (seed % 4 < 2) check_lossy<losing_served<2>, float>(c, omni::sum{}, fixed_blocks{4}, one_slot);
    }
}

namespace {

constexpr std::size_t scattered_size = 17024;  // large enough to be asked whether packing is worth while
/// Two calls of a tensor that has an element in so many that is not null; all ranks' reports of the first.
template <class Ranks, class T, class Op>
std::vector<omni::report> packed_reports(int ranks, int who, std::size_t every, const Op& op) {
  constexpr auto n = scattered_size;
  const auto null = oracle::null_of<Op, T>();
  std::vector<std::vector<T>> inputs(static_cast<std::size_t>(ranks), std::vector<T>(n, null));
  for (std::size_t r = 0; r < inputs.size(); ++r)
    for (std::size_t i = every == 1 ? 0 : 3 * r; i < n; i += every) inputs[r][i] = static_cast<T>(1 + i % 100 + r);
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<Op>{});
  std::vector<omni::report> reports(inputs.size());
  std::vector<int> right(inputs.size());
  Ranks::run(ranks, [&](auto& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    auto x = inputs[r];
    std::vector<T> out(n, T(7));
    const auto blocks = testing::blocks_of(who, r, 64);
    reports[r] = omni::allreduce(comm, x, out, op, blocks);
    omni::allreduce(comm, x, op, blocks);
    right[r] = oracle::equal(x, wanted) && oracle::equal(out, wanted) ? 1 : 0;
  });
  CHECK(right == std::vector<int>(inputs.size(), 1));
  return reports;
}

}  // namespace

TEST_CASE("blocks travel as their elements that are not null, whoever packs, whatever is lost") {
  for (const auto share : {0.0, 0.05})
    for (const int who : testing::who_packs) {
      if (testing::few && share == 0 && who != 1) continue;
      CAPTURE(share);
      CAPTURE(who);
      losing::network = testing::trouble(share, static_cast<std::uint64_t>(31 + who));
      for (const int ranks : {1, 3}) {
        CAPTURE(ranks);
        const auto few = packed_reports<losing, float>(ranks, who, 50, omni::sum{});
        for (std::size_t r = 0; r < few.size(); ++r) {
          const bool packs = testing::blocks_of(who, r).pack != omni::packing::never;
          // But for those of which a rank is the owner itself.
          const auto own = static_cast<double>(packs ? (scattered_size - 3 * r + 49) / 50 : scattered_size);
          const auto others = own * (ranks - 1) / ranks;
          CHECK(static_cast<double>(few[r].elements_sent) == doctest::Approx(others).epsilon(0.06));
          if (who == 0) CHECK(few[r].bytes_saved == 0);
          // Of a block's 256 bytes 14 remain at most, and of its sums no more than of all ranks'. What is sent again does not
          // count.
          const auto plain = 2.0 * (ranks - 1) / ranks * (scattered_size * sizeof(float));
          if (who == 1 && ranks > 1) CHECK(static_cast<double>(few[r].bytes_saved) == doctest::Approx(plain * 0.93).epsilon(0.06));
        }
        packed_reports<losing, int>(ranks, who, 50, omni::band{});
        // Blocks that would be longer so go as they are.
        for (const auto& r : packed_reports<losing, double>(ranks, who, 1, omni::min{})) CHECK(r.bytes_saved == 0);
      }
      packed_reports<losing_served<2>, float>(3, who, 50, omni::sum{});
      packed_reports<losing_served<1>, int>(2, who, 20, omni::max{});
    }
}

TEST_CASE("a packed block that lies is refused by whom it is sent to") {
  using omni::detail::packed_header;
  using omni::detail::slot_kind;
  constexpr std::size_t n = 64;
  std::vector<int> x(n, 0), out(n, 0);
  x[5] = 7;
  // Of a datagram that lies there.
  const auto size_of = [](const omni::detail::aligned_bytes& room) {
    omni::detail::slot_header h;
    std::memcpy(&h, room.span().data(), sizeof(h));
    return static_cast<std::size_t>(h.bytes);
  };
  struct without_identity {
    int operator()(int a, int b) const { return a + b; }
  };
  // What an owner makes of a contribution, and a worker of a result, with these bits, and so many bytes that say that this many
  // elements are in a list.
  const auto answers = [&](const auto& op, std::uint64_t present, std::uint64_t packed, std::uint32_t elements, std::size_t bytes) {
    using op_type = std::decay_t<decltype(op)>;
    using call_type = omni::detail::typed_call<int, op_type, fixed_blocks, omni::scalar_detector>;
    const typename call_type::policies policies(op, {n}, {});
    call_type call(policies, x, out);
    call.topology = "colocated";
    const auto mine = omni::detail::sign(call, "colocated", 512, 1);
    omni::detail::reductions known;
    known.add(call);
    omni::detail::slot_owner owner(1, 1, 0, 1, 0, &known);
    omni::detail::slot_worker worker(call, mine, 1, 0, {1});
    std::vector<omni::detail::aligned_bytes> sent;
    const auto keep = [&](int, std::span<const std::byte> d) {
      sent.emplace_back(d.size());
      std::copy(d.begin(), d.end(), sent.back().span().begin());
    };
    const auto read = [](std::span<const std::byte> datagram) {
      omni::detail::slot_reader d;
      REQUIRE(d.parse(datagram));
      return d;
    };
    worker.start(0, 0, keep);
    owner.take(0, read(sent.at(0).span()), keep);
    worker.take(0, read(sent.at(1).span()), 0, keep);
    REQUIRE(sent.size() == 3);
    const auto forged = [&](slot_kind kind) {
      omni::detail::aligned_bytes room(512);
      omni::detail::slot_writer d(room.span(), {.kind = kind, .step = 1, .rows = 1, .present = present, .packed = packed});
      d.row(0, omni::detail::slot_map::no_row);
      auto* const at = d.add(bytes);
      std::memset(at, 0, bytes);
      const packed_header h = elements | std::uint32_t{2} << 30U;
      if (packed != 0 && bytes >= sizeof(h)) std::memcpy(at, &h, sizeof(h));
      static_cast<void>(d.close());
      return room;
    };
    const auto told = [&](const auto& take) -> std::string {
      try {
        take();
      } catch (const omni::protocol& e) {
        return e.what();
      }
      return "taken";
    };
    const auto contribution = forged(slot_kind::contribution), result = forged(slot_kind::result);
    return std::array{told([&] { owner.take(0, read(contribution.span().first(size_of(contribution))), keep); }),
                      told([&] { worker.take(0, read(result.span().first(size_of(result))), 0, keep); })};
  };
  const auto refused = [](const std::array<std::string, 2>& told, const char* why) {
    for (const auto& t : told) {
      CAPTURE(t);
      CHECK(t.find(why) != std::string::npos);
    }
  };
  constexpr const char* length = "length and contents differ";
  refused(answers(omni::sum{}, 1, 1, 1, 9), "taken");
  refused(answers(omni::sum{}, 1, 0, 0, 256), "taken");
  refused(answers(omni::sum{}, 1, 3, 1, 9), "packed blocks that are not there");
  refused(answers(omni::sum{}, 1, 1, 65, 4 + 65 * 5), length);
  refused(answers(omni::sum{}, 1, 1, 1, 8), length);
  refused(answers(omni::sum{}, 1, 1, 1, 10), length);
  refused(answers(omni::sum{}, 1, 1, 2, 14), length);  // the same index twice
  refused(answers(omni::sum{}, 1, 0, 0, 255), length);
  CHECK(answers(omni::sum{}, 0, 1, 0, 4)[0].find("packed blocks that are not there") != std::string::npos);
  refused(answers(without_identity{}, 1, 1, 1, 9), "packed blocks where no element is null");
}

TEST_CASE("one cluster after the other on a transport: who has left the last one has not left the next") {
  losing::network = testing::trouble(0.05, 21);
  std::atomic<int> right = 0;
  losing::run(4, [&](losing& comm) {
    for (int round = 0; round < 4; ++round) {
      omni::cluster cluster{comm, omni::dedicated{.servers = 1 + round % 2}};
      if (cluster.is_server()) {
        cluster.serve_only(omni::reduction<int>{});
        continue;
      }
      for (int i = 0; i < 3; ++i) {
        std::vector<int> x(400, cluster.rank() + i);
        omni::allreduce(cluster, x, fixed_blocks{16});
        if (x == std::vector<int>(400, cluster.size() * (cluster.size() - 1) / 2 + cluster.size() * i)) ++right;
      }
    }
  });
  CHECK(right == 3 * (3 + 2 + 3 + 2));
}

TEST_CASE("sizes, types, operations, ranks, with 2 % of everything") {
  losing::network = testing::trouble(0.02, 5);
  std::uint64_t seed = 300;
  for (const std::size_t n : {0U, 1U, 15U, 16U, 17U, 1021U, 20011U}) {
    for (const int ranks : {1, 2, 5}) {
      check_lossy<losing, omni::half>({ranks, n, patterns::shape::uniform, ++seed, true}, omni::sum{}, fixed_blocks{16});
      check_lossy<losing, double>({ranks, n, patterns::shape::power_law, ++seed, false}, omni::min{}, fixed_blocks{7});
      check_lossy<losing, std::int64_t>({ranks, n, patterns::shape::clustered, ++seed, true}, omni::band{}, omni::colocated{600, 3},
                                        fixed_blocks{16});
    }
  }
  check_lossy<losing, int>({9, 3000, patterns::shape::hot_end, 1, true}, omni::max{}, fixed_blocks{16});
  // Not commutative, no identity: everything is sent, and folded in the order of the ranks.
  const std::vector<std::vector<long long>> digits(4, std::vector<long long>(200, 0));
  auto inputs = digits;
  for (std::size_t r = 0; r < 4; ++r) std::fill(inputs[r].begin(), inputs[r].end(), static_cast<long long>(r + 1));
  const auto in_order = [](long long a, long long b) { return a * 10 + b; };
  CHECK(testing::allreduce_over<losing>(inputs, std::vector<long long>(200, 1234), true, in_order, fixed_blocks{16}) == "");
}

TEST_CASE("many calls and requests under way at once") {
  losing::network = testing::trouble(0.03, 11);
  std::atomic<int> wrong = 0;
  losing::run(3, [&](losing& comm) {
    for (int round = 0; round < testing::draws(12); ++round) {
      std::vector<std::vector<int>> x(5);
      std::vector<omni::request> requests;
      for (std::size_t k = 0; k < x.size(); ++k) {
        x[k].assign(100 * k + 1, comm.rank() + static_cast<int>(k));
        requests.push_back(omni::iallreduce(comm, x[k], fixed_blocks{32}));
      }
      for (std::size_t k = x.size(); k-- > 0;) {
        requests[k].wait();
        if (x[k] != std::vector<int>(100 * k + 1, 3 + 3 * static_cast<int>(k))) ++wrong;
      }
    }
  });
  CHECK(wrong == 0);
  losing::run(2, [&](losing& comm) {
    omni::plan p{comm, 300, omni::min{}};
    for (int i = 0; i < 10; ++i) {
      std::vector<int> x(300, i - comm.rank());
      p.run(x);
      if (x != std::vector<int>(300, i - 1)) ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("calls that differ are named on every rank, and the next one works") {
  losing::network = testing::trouble(0.05, 3);
  for (const int kind : {0, 1, 2}) {
    std::vector<std::string> field(3), afterwards(3);
    losing::run(3, [&](losing& comm) {
      const auto r = static_cast<std::size_t>(comm.rank());
      const bool odd = comm.rank() == 1;
      std::vector<int> x(odd && kind == 0 ? 70 : 80, 1);
      std::vector<float> y(80, 1);
      try {
        if (odd && kind == 1) omni::allreduce(comm, y, fixed_blocks{16});
        else if (odd && kind == 2) omni::allreduce(comm, x, omni::max{}, fixed_blocks{16});
        else omni::allreduce(comm, x, fixed_blocks{16});
        field[r] = "none";
      } catch (const omni::mismatch& e) {
        field[r] = e.field() + (e.rank() == (odd ? 0 : 1) ? "" : " of another rank");
      }
      std::vector<int> z(5, comm.rank());
      omni::allreduce(comm, z);
      afterwards[r] = z == std::vector<int>(5, 3) ? "right" : "wrong";
    });
    for (std::size_t r = 0; r < 3; ++r) {
      CHECK(field[r] == std::vector<std::string>{"count", "type", "operation"}[static_cast<std::size_t>(kind)]);
      CHECK(afterwards[r] == "right");
    }
  }
}

namespace {

// Owners that refuse say something else than they mean.
struct lying_socket : omni::detail::message_socket {
  static inline std::uint32_t reason, about;
  using message_socket::message_socket;

  void send(int peer, std::span<const std::byte> bytes) {
    omni::detail::slot_header h;
    if (bytes.size() >= sizeof(h)) std::memcpy(&h, bytes.data(), sizeof(h));
    if (h.kind != omni::detail::slot_kind::refusal) return message_socket::send(peer, bytes);
    std::vector<std::byte> changed(bytes.begin(), bytes.end());
    h.reason = reason;
    h.about = about;
    h.checksum = omni::detail::slot_checksum(h, std::span(changed).subspan(sizeof(h)));
    std::memcpy(changed.data(), &h, sizeof(h));
    message_socket::send(peer, changed);
  }
};

// How a call ends of which a rank fails by a std::domain_error of its own.
template <class F>
std::string end_of(const F& call) {
  try {
    call();
    return "returned";
  } catch (const std::domain_error&) {
    return "its own";
  } catch (const omni::protocol&) {
    return "protocol";
  } catch (const omni::error&) {
    return "unusable";
  }
}

}  // namespace

TEST_CASE("a refusal that lies about its reason or its rank is an error") {
  std::vector<std::string> got(2);
  for (const auto& [reason, about] : {std::pair{9U, 1U}, {0U, 1U}, {1U, 3U}, {4U, 3U}, {3U, 0xffffffffU}}) {
    lying_socket::reason = reason;
    lying_socket::about = about;
    omni::transport::threads::run(3, [&](omni::transport::threads& inner) {
      using network = omni::detail::datagram_demux<lying_socket>;
      network all(inner, std::size_t{700});
      omni::cluster<omni::detail::plain_members<network>> comm(all, omni::dedicated{.servers = 1});
      if (comm.is_server()) return static_cast<void>(comm.serve_only(omni::reduction<int>{}));
      std::vector<int> x(comm.rank() == 0 ? 80 : 70, 1);
      got[static_cast<std::size_t>(comm.rank())] = end_of([&] { omni::allreduce(comm, x, fixed_blocks{16}); });
    });
    CAPTURE(lying_socket::reason);
    CAPTURE(lying_socket::about);
    for (const auto& g : got) CHECK(g == "protocol");
  }
}

TEST_CASE("an operation that throws on one rank ends the call on all") {
  losing::network = testing::trouble(0.05, 4);
  std::vector<std::string> got(3), next(3);
  losing::run(3, [&](losing& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    std::vector<int> x(500, 60000);
    got[r] = end_of([&] {
      omni::allreduce(
          comm, x,
          [throws = comm.rank() == 1](int a, int b) {
            if (throws) throw std::domain_error("too large");
            return a + b;
          },
          fixed_blocks{16});
    });
    next[r] = end_of([&] { omni::allreduce(comm, x); });
  });
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(got[r] == (r == 1 ? "its own" : "protocol"));
    CHECK(next[r] == "unusable");
  }
}

namespace {

// On one rank it cannot.
struct failing_detector : omni::simd_detector {
  bool fails = false;
  template <class T>
  std::uint64_t mark(std::span<const T> in, std::size_t block, const T& identity) const {
    if (fails) throw std::domain_error("cannot look");
    return omni::simd_detector::mark(in, block, identity);
  }
};

}  // namespace

TEST_CASE("a rank that fails in a call which has not begun elsewhere: the others hear of it when it does") {
  losing::network = testing::trouble(0, 1);
  std::atomic<bool> failed = false;
  std::array<std::string, 2> last;
  std::atomic<int> right = 0;
  losing::run(2, [&](losing& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    std::array<std::vector<int>, 3> x;
    x.fill(std::vector<int>(500, 1));
    const auto begin = [&](std::size_t i) {
      return omni::iallreduce(comm, x[i], fixed_blocks{16}, failing_detector{{}, r == 1 && i == 2});
    };
    std::vector<omni::request> requests;
    requests.push_back(begin(0));
    if (r == 1) {
      requests.push_back(begin(1));
      last[r] = end_of([&] { begin(2).wait(); });
      failed = true;
    } else {
      while (!failed) requests[0].test();
      requests.push_back(begin(1));
      last[r] = end_of([&] { begin(2).wait(); });
    }
    for (auto& q : requests) q.wait();
    if (x[0] == std::vector<int>(500, 2) && x[1] == x[0]) ++right;
  });
  CHECK(last[0] == "protocol");
  CHECK(last[1] == "its own");
  CHECK(right == 2);
}

TEST_CASE("blocks that do not fit in packets are cut, and packets have to have a size") {
  losing::network = testing::trouble(0.01, 1);
  std::uint64_t seed = 500;
  for (const std::size_t n : {1U, 76U, 255U, 257U, 3001U}) {
    check_lossy<losing, double>({3, n, patterns::shape::uniform, ++seed, seed % 2 == 0}, omni::max{});
    check_lossy<losing, double>({2, n, patterns::shape::none_null, ++seed, seed % 2 == 0}, omni::max{}, fixed_blocks{100000});
  }
  std::atomic<int> refused = 0, right = 0;
  losing::run(2, [&](losing& comm) {
    std::vector<double> x(1000, 1);
    try {
      omni::allreduce(comm, x, fixed_blocks{16}, omni::colocated{300, 3});
    } catch (const omni::usage& e) {
      if (std::string(e.what()).find("at least 512 bytes, not 300") != std::string::npos) ++refused;
    }
    std::vector<std::vector<double>> group{{1}, std::vector<double>(20, 1)};  // equal blocks in the first
    CHECK_THROWS_AS(omni::allreduce(comm, group, testing::growing_blocks{}), omni::usage);
    CHECK(group[0][0] == 1);
    omni::allreduce(comm, x, fixed_blocks{16});  // nothing was sent: all is as it was
    if (x == std::vector<double>(1000, 2)) ++right;
  });
  CHECK(refused == 2);
  CHECK(right == 2);
}

TEST_CASE("servers keep slots x packet x workers, however many and large the calls") {
  losing::network = testing::trouble(0.01, 8);
  std::atomic<std::size_t> most = 0;
  std::atomic<int> wrong = 0;
  losing::run(4, [&](losing& comm) {
    omni::cluster cluster{comm, omni::dedicated{.servers = 1}};
    if (cluster.is_server()) {
      cluster.serve_only(omni::reduction<float>{}, omni::reduction<int>{});
      most = cluster.buffer_bytes();
      return;
    }
    for (int i = 0; i < testing::draws(60); ++i) {
      std::vector<float> x(i % 10 == 5 ? 40000 : 100, 1);
      std::vector<int> y(i % 7 == 6 ? 9000 : 10, 2);
      omni::allreduce(cluster, x, fixed_blocks{32});
      omni::allreduce(cluster, y, omni::max{}, fixed_blocks{64});
      if (std::ranges::any_of(x, [](float v) { return v != 3; }) || std::ranges::any_of(y, [](int v) { return v != 2; })) ++wrong;
    }
  });
  CHECK(wrong == 0);
  constexpr std::size_t slots = 62;  // 128 KiB / (3 workers x 700 bytes)
  CHECK(most > 700 * 4);
  CHECK(most <= (slots + 2) * 704 * 4);
}

TEST_CASE("udp: sockets of this host") {
  std::uint64_t seed = 700;
  for (const std::size_t datagram : {1472U, 16000U})
    for (const int ranks : {1, 2, 4}) {
      std::atomic<int> right = 0;
      omni::transport::threads::run(ranks, [&](omni::transport::threads& others) {
        omni::transport::udp net(others, omni::transport::udp_options{.datagram_bytes = datagram, .address = "127.0.0.1"});
        for (const std::size_t n : {0U, 3U, 5000U, 100000U}) {
          const auto inputs = patterns::tensors<patterns::wild>(patterns::shape::clustered, seed + n, ranks, n, 0.0F);
          auto x = inputs[static_cast<std::size_t>(others.rank())];
          omni::allreduce(net, x);
          if (oracle::equal(x, oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{}))) ++right;
        }
      });
      CHECK(right == 4 * ranks);
      seed += 10;
    }
  std::atomic<int> served = 0;
  omni::transport::threads::run(4, [&](omni::transport::threads& others) {
    omni::transport::udp net(others, omni::transport::udp_options{.address = "127.0.0.1"});
    omni::cluster cluster{net, omni::dedicated{.servers = 2}};
    if (cluster.is_server()) {
      cluster.serve_only(omni::reduction<float>{});
      return;
    }
    for (const std::size_t n : {0U, 3U, 5000U, 100000U}) {
      const auto inputs = patterns::tensors<patterns::wild>(patterns::shape::uniform, seed + n, 2, n, 0.0F);
      auto x = inputs[static_cast<std::size_t>(cluster.rank())];
      omni::allreduce(cluster, x);
      if (oracle::equal(x, oracle::fold_in_rank_order(inputs, oracle::twin<omni::sum>{}))) ++served;
    }
  });
  CHECK(served == 4 * 2);
  omni::transport::threads::run(1, [&](omni::transport::threads& others) {
    CHECK_THROWS_AS(omni::transport::udp(others, omni::transport::udp_options{.datagram_bytes = 100}), omni::usage);
    CHECK_THROWS_AS(omni::transport::udp(others, omni::transport::udp_options{.address = "nowhere"}), omni::usage);
    for (const char* const of_many : {"0.0.0.0", "255.255.255.255", "239.1.2.3"})  // peers could not tell who sends
      CHECK_THROWS_AS(omni::transport::udp(others, omni::transport::udp_options{.address = of_many}), omni::usage);
  });
  ::setenv("OMNI_UDP_ADDRESS", "here", 1);  // NOLINT(concurrency-mt-unsafe)
  omni::transport::threads::run(1, [&](omni::transport::threads& others) {
    CHECK_THROWS_WITH(omni::transport::udp(others, omni::transport::udp_options{}),
                      "omni: OMNI_UDP_ADDRESS is \"here\"; it has to be the IPv4 address of an interface");
  });
  ::unsetenv("OMNI_UDP_ADDRESS");  // NOLINT(concurrency-mt-unsafe)
  // A rank that cannot, here for an address that no host has (RFC 5737), does not keep the others.
  std::array<std::string, 3> said;
  omni::transport::threads::run(3, [&](omni::transport::threads& others) {
    const auto rank = others.rank();
    try {
      omni::transport::udp(others, omni::transport::udp_options{.address = rank == 1 ? "192.0.2.1" : "127.0.0.1"});
    } catch (const omni::error& e) {
      said[static_cast<std::size_t>(rank)] = e.what();
    }
  });
  CHECK(said[0] == "omni: rank 1 could not open its UDP socket");
  CHECK(said[1].find("bind failed") != std::string::npos);
  CHECK(said[2] == said[0]);
}
