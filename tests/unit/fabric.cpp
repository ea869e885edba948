// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <omni/detail/fabric/software_switch.hpp>
#include <omni/detail/fabric/udp_link.hpp>
#include <omni/fabric.hpp>
#include <random>
#include <vector>

#include "../support/agreeing.hpp"
#include "../support/effort.hpp"
#include "../support/oracle.hpp"
#include "../support/patterns.hpp"

// Calls through a switch, which is an object of this process: what is added, what is lost on the way, who is refused.

namespace {

using omni::detail::software_switch;
using omni::detail::switch_link;
using omni::detail::switch_packet;

/// What goes wrong on the way, each with its probability.
struct weather {
  double lost = 0, twice = 0, late = 0, damaged = 0;
};

/// A switch, or one with so many below it, and the ways to them and between them.
class wire {
 public:
  explicit wire(weather w = {}, omni::detail::switch_leases::settings s = {}, std::uint32_t seed = 1, std::size_t racks = 0)
      : weather_(w), random_(seed), settings_(s), devices_(1 + racks) {
    for (std::size_t i = 0; i < devices_.size(); ++i) restart(i);
  }
  void restart(std::size_t i = 0) {
    const std::lock_guard lock(mutex_);
    auto s = settings_;
    s.above = i == 0 ? 0 : first_device;
    devices_[i] = std::make_unique<software_switch>(s, [this] { return static_cast<std::uint32_t>(random_()); });
  }
  [[nodiscard]] software_switch& device(std::size_t i = 0) { return *devices_[i]; }

  class link final : public switch_link {
   public:
    link(wire& w, std::uint64_t address, std::uint64_t to) : wire_(w), address_(address), to_(to) {}
    void send(std::span<const std::byte> d) override { wire_.from_worker(address_, to_, d); }
    [[nodiscard]] std::uint64_t where() const override { return to_; }
    std::size_t receive(switch_packet& to, double seconds) override { return wire_.receive(address_, to, seconds); }

   private:
    wire& wire_;
    std::uint64_t address_, to_;
  };
  /// Of switches below one, neighbours are at different ones.
  std::unique_ptr<switch_link> way(int rank) {
    const auto r = static_cast<std::uint64_t>(rank);
    return std::make_unique<link>(*this, r + 1, first_device + (devices_.size() == 1 ? 0 : 1 + r % (devices_.size() - 1)));
  }

  /// Stops what comes from a rank and goes to it after so many packets of its own.
  void cut(int rank, int packets) {
    const std::lock_guard lock(mutex_);
    cut_address_ = static_cast<std::uint64_t>(rank) + 1;
    cut_after_ = packets;
  }

 private:
  static constexpr std::uint64_t first_device = 1000;
  struct datagram {
    std::uint64_t from, to;
    std::vector<std::byte> bytes;
  };

  [[nodiscard]] bool happens(double p) { return p > 0 && std::uniform_real_distribution<>(0, 1)(random_) < p; }
  // What becomes of a datagram on the way: it comes to where it is to go, or is kept for later.
  void carry(const datagram& d) {
    for (int copies = happens(weather_.twice) ? 2 : 1; copies > 0; --copies) {
      if (happens(weather_.lost)) continue;
      auto one = d;
      if (happens(weather_.damaged)) {
        const auto kind = random_() % 3;
        if (kind == 0) one.bytes.resize(random_() % one.bytes.size());
        else one.bytes[random_() % one.bytes.size()] ^= static_cast<std::byte>(1 + random_() % 255);
      }
      (happens(weather_.late) ? late_ : coming_).push_back(std::move(one));
    }
  }
  void from_worker(std::uint64_t address, std::uint64_t to, std::span<const std::byte> d) {
    const std::lock_guard lock(mutex_);
    if (address == cut_address_ && cut_after_-- <= 0) return;
    carry({address, to, {d.begin(), d.end()}});
    while (!coming_.empty()) {
      const auto one = std::move(coming_.front());
      coming_.pop_front();
      take(one);
      while (!late_.empty() && happens(0.3)) {
        const auto i = random_() % late_.size();
        const auto x = late_[i];
        late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(i));
        take(x);
      }
    }
    came_.notify_all();
  }
  void take(const datagram& d) {
    if (d.to < first_device) return arrived_[d.to].push_back(d.bytes);
    switch_packet p;
    std::copy_n(d.bytes.begin(), std::min(d.bytes.size(), sizeof(p)), reinterpret_cast<std::byte*>(&p));
    device(d.to - first_device).take(p, d.bytes.size(), d.from, 0, [&](std::uint64_t to, std::span<const std::byte> sent) {
      carry({d.to, to, {sent.begin(), sent.end()}});
    });
  }
  std::size_t receive(std::uint64_t address, switch_packet& to, double seconds) {
    std::unique_lock lock(mutex_);
    auto& q = arrived_[address];
    if (q.empty() && seconds > 0) came_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return !q.empty(); });
    if (q.empty() || (address == cut_address_ && cut_after_ < 0)) return 0;
    const auto d = std::move(q.front());
    q.pop_front();
    std::copy_n(d.begin(), std::min(d.size(), sizeof(to)), reinterpret_cast<std::byte*>(&to));
    return d.size();
  }

  std::mutex mutex_;
  std::condition_variable came_;
  weather weather_;
  std::mt19937 random_;
  omni::detail::switch_leases::settings settings_;
  std::vector<std::unique_ptr<software_switch>> devices_;  // the one above first
  std::map<std::uint64_t, std::deque<std::vector<std::byte>>> arrived_;
  std::deque<datagram> coming_, late_;
  std::uint64_t cut_address_ = 0;
  int cut_after_ = 0;
};

/// Calls f(fabric, rank) on so many ranks.
template <class F>
void on_ranks(wire& w, int ranks, const F& f, const omni::fabric_options& o = {}) {
  testing::agreeing::run(ranks, [&](testing::agreeing& comm) {
    omni::basic_fabric<testing::agreeing> fabric(comm, w.way(comm.rank()), comm.rank(), comm.size(), o);
    f(fabric, comm.rank());
  });
}

/// One call of each rank; whether all outputs are what is folded in rank order.
template <class T, class Op, class... More>
int wrong_outputs(wire& w, int ranks, std::size_t n, patterns::shape shape, std::uint64_t seed, bool in_place, const Op& op,
                  const More&... more) {
  const auto null = oracle::null_of<Op, T>();
  const auto inputs = patterns::tensors<patterns::wild>(shape, seed, ranks, n, null);
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<Op>{});
  std::atomic<int> wrong = 0;
  on_ranks(w, ranks, [&](auto& fabric, int rank) {
    if (!fabric.uses_switch()) ++wrong;

    auto x = inputs[static_cast<std::size_t>(rank)];
    std::vector<T> out(n, static_cast<T>(77));  // what is not written shows
    const auto r = in_place ? omni::allreduce(fabric, x, op, omni::in_network{}, more...)
                            : omni::allreduce(fabric, x, out, op, omni::in_network{}, more...);
    if (!oracle::equal(in_place ? x : out, wanted)) ++wrong;
    if (ranks > 1 && r.topology != "in_network") ++wrong;
  });
  return wrong;
}

}  // namespace

TEST_CASE("fabric: sums, least and largest of integers are exact, in place and not") {
  std::uint64_t seed = 0;
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const std::size_t n : {0U, 1U, 255U, 256U, 257U, 5000U, 100000U})
      for (const auto shape : {patterns::shape::uniform, patterns::shape::all_null, patterns::shape::none_null}) {
        CAPTURE(ranks);
        CAPTURE(n);
        wire w;
        const bool in_place = ++seed % 2 == 0;
        CHECK(wrong_outputs<std::int32_t>(w, ranks, n, shape, seed, in_place, omni::sum{}) == 0);
        CHECK(wrong_outputs<std::uint64_t>(w, ranks, n, shape, seed, !in_place, omni::sum{}) == 0);
        if (n == 100000U) continue;
        CHECK(wrong_outputs<std::int8_t>(w, ranks, n, shape, seed, in_place, omni::sum{}) == 0);
        CHECK(wrong_outputs<std::int16_t>(w, ranks, n, shape, seed, in_place, omni::min{}) == 0);
        CHECK(wrong_outputs<std::uint32_t>(w, ranks, n, shape, seed, in_place, omni::max{}) == 0);
        CHECK(wrong_outputs<std::uint32_t>(w, ranks, n, shape, seed, in_place, omni::min{}) == 0);
        CHECK(wrong_outputs<std::int64_t>(w, ranks, n, shape, seed, in_place, omni::max{}) == 0);
        CHECK(wrong_outputs<std::uint64_t>(w, ranks, n, shape, seed, in_place, omni::min{}) == 0);
        CHECK(wrong_outputs<float>(w, ranks, n, shape, seed, in_place, omni::min{}) == 0);
        CHECK(wrong_outputs<double>(w, ranks, n, shape, seed, in_place, omni::max{}) == 0);
      }
}

namespace {

/// Sums of such floats through a switch; how many elements are off by more than is promised, and what the report says.
template <class T>
struct float_sums {
  int off = 0, different = 0;
  omni::report said;
  std::vector<T> out;

  float_sums(wire& w, const std::vector<std::vector<T>>& inputs, const omni::shared_exponent& arithmetic = {}) {
    const auto ranks = inputs.size();
    std::vector<std::vector<T>> outs = inputs;
    std::vector<omni::report> reports(ranks);
    on_ranks(w, static_cast<int>(ranks), [&](auto& fabric, int rank) {
      const auto r = static_cast<std::size_t>(rank);
      reports[r] = omni::allreduce(fabric, outs[r], omni::in_network{}, arithmetic);
    });
    said = reports[0];
    out = outs[0];
    // N 2^-m, where 2^(bits - 1) is above N 2^m.
    const double bound = std::ldexp(ranks, static_cast<int>(std::bit_width(ranks)) + 1 - static_cast<int>(arithmetic.bits));
    CHECK(said.error_bound == bound);
    for (const auto& o : outs) different += std::memcmp(o.data(), out.data(), out.size() * sizeof(T)) == 0 ? 0 : 1;
    constexpr std::size_t block = 128;  // the least that a lane may have for the widest of these
    const std::size_t b = arithmetic.bits == 64 ? block : 2 * block;
    for (std::size_t first = 0; first < out.size(); first += b) {
      const auto last = std::min(first + b, out.size());
      long double largest = 0;
      for (const auto& x : inputs)
        for (auto i = first; i < last; ++i)
          largest = std::max(largest, std::fabs(static_cast<long double>(static_cast<double>(x[i]))));
      for (auto i = first; i < last; ++i) {
        long double exact = 0;
        for (const auto& x : inputs) exact += static_cast<double>(x[i]);
        const auto got = static_cast<double>(out[i]);
        const auto ulp = static_cast<long double>(std::numeric_limits<T>::epsilon()) * std::fabs(exact) / 2 +
                         static_cast<long double>(std::numeric_limits<T>::denorm_min()) / 2;
        if (!(std::fabs(got - exact) <= largest * bound + ulp)) ++off;
      }
    }
  }
};

template <class T>
std::vector<std::vector<T>> scaled(int ranks, std::size_t n, std::uint32_t seed, int low, int high) {
  patterns::generator random(seed);
  std::vector<std::vector<T>> x(static_cast<std::size_t>(ranks), std::vector<T>(n));
  // Each block has a scale of its own, and in it each rank and each element.
  for (std::size_t i = 0; i < n; ++i) {
    static int scale = 0;
    if (i % 256 == 0) scale = std::uniform_int_distribution<>(low, high)(random);
    for (auto& rank : x) {
      const auto spread = static_cast<int>(random() % 40);
      rank[i] =
          static_cast<T>(std::ldexp(std::uniform_real_distribution<>(-1, 1)(random), scale - (random() % 4 == 0 ? spread : 0)));
    }
  }
  return x;
}

}  // namespace

TEST_CASE("fabric: sums of floats keep the bound of a shared exponent, at both ends of the range") {
  wire w;
  for (const int ranks : {2, 3, 4, 7, 16}) {
    CAPTURE(ranks);
    const auto seed = static_cast<std::uint32_t>(ranks);
    const auto check = [&](const auto& sums) {
      CHECK(sums.off == 0);
      CHECK(sums.different == 0);
      CHECK(sums.said.topology == "in_network");
      CHECK(sums.said.error_bound > 0);
    };
    check(float_sums<float>(w, scaled<float>(ranks, 100000, seed, -10, 10)));
    check(float_sums<float>(w, scaled<float>(ranks, 20000, seed, -149, 122)));
    check(float_sums<float>(w, scaled<float>(ranks, 20000, seed, -149, -120)));
    check(float_sums<double>(w, scaled<double>(ranks, 20000, seed, -1074, 1017)));
    check(float_sums<double>(w, scaled<double>(ranks, 20000, seed, -1074, 1017), {.bits = 64}));
  }
}

TEST_CASE("fabric: the largest magnitudes of all ranks do not overflow") {
  for (const int ranks : {2, 3, 4, 8, 31, 32}) {
    wire w;
    std::vector<std::vector<double>> x(static_cast<std::size_t>(ranks), std::vector<double>(600, std::nextafter(2.0, 0.0)));
    for (auto& rank : x) std::fill(rank.begin() + 300, rank.end(), -std::nextafter(2.0, 0.0));
    const float_sums<double> sums(w, x);
    CHECK(sums.off == 0);
    CHECK(sums.out[0] > 1.9 * ranks);
    CHECK(sums.out[599] < -1.9 * ranks);
  }
}

TEST_CASE("fabric: blocks that are not finite are reduced on the hosts, all others by the switch") {
  wire w;
  constexpr int ranks = 3;
  constexpr std::size_t n = 20000;
  auto x = scaled<float>(ranks, n, 5, -3, 3);
  for (auto& rank : x) std::fill(rank.begin() + 2560, rank.begin() + 5120, 0.0F);
  x[1][300] = std::numeric_limits<float>::infinity();
  x[2][3000] = std::numeric_limits<float>::quiet_NaN();
  x[0][n - 1] = -std::numeric_limits<float>::infinity();
  for (auto& rank : x) rank[10000] = -0.0F;
  auto outs = x;
  std::vector<omni::report> reports(ranks);
  on_ranks(w, ranks, [&](auto& fabric, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    reports[r] = omni::allreduce(fabric, outs[r], omni::in_network{});
  });
  const auto exact = oracle::fold_in_rank_order(x, oracle::twin<omni::sum>{});
  for (const auto& r : reports) CHECK(r.escaped_blocks == 3);
  for (const auto& out : outs) {
    CHECK(std::isinf(out[300]));
    CHECK(std::isnan(out[3000]));
    CHECK(out[n - 1] == -std::numeric_limits<float>::infinity());
    for (const std::size_t i : {256U, 257U, 511U, 3001U}) CHECK(out[i] == exact[i]);  // beside them: to the bit
    CHECK(out[4000] == 0);
    CHECK(out[10000] == 0);
    CHECK(std::memcmp(out.data(), outs[0].data(), n * sizeof(float)) == 0);
  }
}

TEST_CASE("fabric: 10^6 sums of three ranks keep the bound") {
  wire w;
  constexpr std::size_t blocks = 1000;
  std::size_t checked = 0;
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    const float_sums<float> sums(w, scaled<float>(3, blocks * 256, seed + 100, -40, 40));
    CHECK(sums.off == 0);
    checked += blocks * 256;
  }
  CHECK(checked >= 1000000);
}

namespace {

/// So many elements of a tensor whose packets are lost: most of the time is spent waiting for them, and a quick run has less.
constexpr std::size_t waited(std::size_t n) { return testing::few ? n / 3 : n; }

}  // namespace

TEST_CASE("fabric: packets that are lost, doubled, late and damaged change nothing") {
  std::uint64_t seed = 0;
  for (const weather bad : {weather{.lost = 0.2}, weather{.twice = 0.2}, weather{.late = 0.2}, weather{.damaged = 0.2},
                            weather{.lost = 0.1, .twice = 0.1, .late = 0.1, .damaged = 0.1}}) {
    for (const int ranks : {2, 5}) {
      wire w(bad, {}, static_cast<std::uint32_t>(++seed));
      CHECK(wrong_outputs<std::int32_t>(w, ranks, waited(60000), patterns::shape::uniform, seed, true, omni::sum{}) == 0);
      CHECK(wrong_outputs<std::int64_t>(w, ranks, waited(30000), patterns::shape::none_null, seed, false, omni::sum{}) == 0);
      const auto x = scaled<float>(ranks, waited(30000), static_cast<std::uint32_t>(seed), -3, 3);
      CHECK(float_sums<float>(w, x).off == 0);
    }
  }
}

TEST_CASE("fabric: switches below a switch add as one does, whatever is lost between them") {
  std::uint64_t seed = 0;
  for (const weather bad : {weather{}, weather{.lost = 0.1}, weather{.twice = 0.2, .late = 0.2},
                            weather{.lost = 0.05, .twice = 0.05, .late = 0.05, .damaged = 0.05}})
    for (const auto& job : {std::pair{2, 2}, {5, 2}, {7, 3}}) {
      const int ranks = job.first, racks = job.second;
      CAPTURE(ranks);
      wire w(bad, {}, static_cast<std::uint32_t>(++seed), static_cast<std::size_t>(racks));
      CHECK(wrong_outputs<std::int32_t>(w, ranks, waited(30000), patterns::shape::uniform, seed, true, omni::sum{}) == 0);
      CHECK(wrong_outputs<std::uint64_t>(w, ranks, waited(10000), patterns::shape::none_null, seed, false, omni::min{}) == 0);
      const auto x = scaled<float>(ranks, waited(10000), static_cast<std::uint32_t>(seed), -3, 3);
      const float_sums<float> sums(w, x);
      CHECK(sums.off == 0);
      CHECK(sums.different == 0);
      // To the bit what one switch gives.
      wire one;
      CHECK(float_sums<float>(one, x).out == sums.out);
      // What goes up is a sum; and nobody but the highest makes results.
      CHECK(w.device(0).counters().of[omni_switch_raise] == 0);
      CHECK(w.device(1).counters().of[omni_switch_raise] > 0);
      if (bad.lost == 0 && bad.late == 0)
        for (int i = 0; i <= racks; ++i) CHECK(w.device(static_cast<std::size_t>(i)).leases().jobs() == 0);
    }
}

TEST_CASE("fabric: of switches below a switch, one that starts anew is an error on all ranks") {
  for (const std::size_t which : {0U, 1U, 2U}) {
    CAPTURE(which);
    wire w({}, {}, 1, 2);
    std::atomic<int> errors = 0;
    on_ranks(w, 4, [&](auto& fabric, int rank) {
      std::vector<int> x(100000, 1), meet(1, 0);
      omni::allreduce(fabric, x, omni::in_network{});
      omni::allreduce(fabric.comm(), meet, omni::colocated{});
      if (rank == 0) w.restart(which);
      omni::allreduce(fabric.comm(), meet, omni::colocated{});
      try {
        omni::allreduce(fabric, x, omni::in_network{});
      } catch (const omni::error&) {
        ++errors;
      }
    });
    CHECK(errors == 4);
  }
}

TEST_CASE("fabric: ranks that ask for different slots get the fewest; one without a way to its switch stops all") {
  wire w;
  std::atomic<int> wrong = 0, stopped = 0;
  testing::agreeing::run(3, [&](testing::agreeing& comm) {
    omni::fabric_options o;
    o.slots = comm.rank() == 1 ? 5 : 32;
    {
      omni::basic_fabric<testing::agreeing> fabric(comm, w.way(comm.rank()), comm.rank(), comm.size(), o);
      if (comm.rank() == 0 && w.device().leases().slots_leased() != 5) ++wrong;
      std::vector<int> x(70000, comm.rank());
      omni::allreduce(fabric, x, omni::in_network{});
      if (x != std::vector<int>(70000, 3)) ++wrong;
    }
    try {
      omni::basic_fabric<testing::agreeing> fabric(
          comm,
          [&]() -> std::unique_ptr<switch_link> {
            if (comm.rank() == 2) throw omni::usage("no such address");
            return w.way(comm.rank());
          },
          comm.rank(), comm.size(), o);
    } catch (const omni::usage&) {
      stopped += comm.rank() == 2 ? 1 : 0;
    } catch (const omni::error& e) {
      stopped += std::string(e.what()).find("rank 2") != std::string::npos ? 1 : 0;
    }
  });
  CHECK(wrong == 0);
  CHECK(stopped == 3);
}

namespace {

/// A way to a switch that is faster than its rank: while a call lasts, there is always another packet.
class fast_link final : public switch_link {
 public:
  fast_link(std::unique_ptr<switch_link> way, std::size_t& bytes) : way_(std::move(way)), bytes_(bytes) {}
  void send(std::span<const std::byte> d) override { way_->send(d); }
  [[nodiscard]] std::uint64_t where() const override { return way_->where(); }
  std::size_t receive(switch_packet& to, double seconds) override {
    const auto n = way_->receive(to, std::max(seconds, 0.5));
    bytes_ += n;
    return n;
  }

 private:
  std::unique_ptr<switch_link> way_;
  std::size_t& bytes_;
};

}  // namespace

TEST_CASE("fabric: every packet that is received is looked at, however many there are at once") {
  wire w;
  std::atomic<int> wrong = 0;
  testing::agreeing::run(2, [&](testing::agreeing& comm) {
    std::size_t received = 0;
    omni::basic_fabric<testing::agreeing> fabric(comm, std::make_unique<fast_link>(w.way(comm.rank()), received), comm.rank(),
                                                 comm.size());
    received = 0;
    std::vector<int> x(1000000, 1);
    const auto r = omni::allreduce(fabric, x, omni::in_network{});
    if (x != std::vector<int>(1000000, 2) || r.bytes_received != received) ++wrong;
  });
  CHECK(wrong == 0);
}

TEST_CASE("fabric: a switch that has fewer slots than are asked for gives what it has") {
  wire w({}, {.slots = 16});
  CHECK(wrong_outputs<std::int32_t>(w, 3, 50000, patterns::shape::none_null, 1, true, omni::sum{}) == 0);
}

TEST_CASE("fabric: switches of which one has no slots, or none above it, leave a job to the hosts") {
  wire w({}, {.slots = 32}, 1, 2);
  std::atomic<int> wrong = 0;
  on_ranks(w, 3, [&](auto& first, int rank) {
    omni::basic_fabric<testing::agreeing> second(first.comm(), w.way(10 + rank), rank, 3);
    if (!first.uses_switch() || second.why_not().find("slots") == std::string::npos) ++wrong;
    for (auto* fabric : {&first, &second}) {
      std::vector<int> x(50000, 1);
      const auto r = omni::allreduce(*fabric, x, omni::in_network{});
      if (x != std::vector<int>(50000, 3) || (r.topology == "in_network") != (fabric == &first)) ++wrong;
    }
  });
  CHECK(wrong == 0);
  // One rack has room for a job, the other has not: what was leased comes back.
  on_ranks(w, 2, [&](auto& full, int rank) {
    std::vector<int> meet(1, 0);
    static_cast<void>(full);
    omni::allreduce(full.comm(), meet, omni::colocated{});
    if (rank == 0) {
      CHECK(w.device(1).leases().slots_leased() == 32);
      w.restart(2);  // has room again, which the one above has not
    }
    omni::allreduce(full.comm(), meet, omni::colocated{});
    omni::basic_fabric<testing::agreeing> second(full.comm(), w.way(10 + rank), rank, 2);
    if (second.uses_switch()) ++wrong;
    omni::allreduce(full.comm(), meet, omni::colocated{});
    if (w.device(2).leases().slots_leased() != 0) ++wrong;
  });
  CHECK(wrong == 0);

  software_switch alone({}, [] { return 5U; });
  auto p = omni::detail::control_packet(omni_switch_open, {2, 8, 1500, 2, 1});
  p.seal(0);
  omni_switch_header answer{};
  alone.take(p, 64, 1, 0, [&](std::uint64_t, std::span<const std::byte> d) { std::memcpy(&answer, d.data(), sizeof(answer)); });
  CHECK(answer.kind == omni_switch_refuse);
  CHECK(answer.next[0] == static_cast<std::uint32_t>(omni::detail::no_lease::nothing_above));
}

TEST_CASE("fabric: many calls of one fabric, also several under way, in order") {
  wire w({.lost = 0.02});
  constexpr int ranks = 3;
  std::atomic<int> wrong = 0;
  on_ranks(w, ranks, [&](auto& fabric, int rank) {
    for (int k = 0; k < 30; ++k) {
      std::vector<int> x(static_cast<std::size_t>(100 + 997 * k), rank + k), y(5000, k), z(7, rank);
      auto first = omni::iallreduce(fabric, x, omni::in_network{});
      auto second = omni::iallreduce(fabric, y, omni::in_network{});
      omni::allreduce(fabric, z, omni::max{}, omni::in_network{});
      second.wait();
      first.wait();
      if (x != std::vector<int>(x.size(), 3 + 3 * k) || y != std::vector<int>(y.size(), 3 * k) || z != std::vector<int>(7, 2))
        ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("fabric: what a switch cannot do runs on the hosts, to the bit") {
  wire w;
  on_ranks(w, 3, [&](auto& fabric, int rank) {
    std::vector<float> x(1000, 0.1F * static_cast<float>(rank + 1)), exact = x;
    omni::allreduce(fabric.comm(), exact, omni::colocated{});
    CHECK(omni::allreduce(fabric, x, omni::native{}, omni::in_network{}).topology != "in_network");
    CHECK(x == exact);
    std::vector<int> p(1000, rank + 1);
    CHECK(omni::allreduce(fabric, p, omni::prod{}, omni::in_network{}).topology != "in_network");
    CHECK(p == std::vector<int>(1000, 6));
    std::vector<int> own(100000, 1);
    CHECK(omni::allreduce(fabric, own, [](int a, int b) { return a + b; }).topology != "in_network");
    CHECK(own == std::vector<int>(100000, 3));
    std::vector<std::vector<int>> group{std::vector<int>(300, 1), std::vector<int>(70000, rank)};
    CHECK(omni::allreduce(fabric, group, omni::in_network{}).topology == "in_network");
    CHECK(group[0] == std::vector<int>(300, 3));
    CHECK(group[1] == std::vector<int>(70000, 3));
    std::vector<std::vector<float>> rounded{std::vector<float>(70000, 0.1F), std::vector<float>(70000, 0.0F)};
    if (rank == 1) rounded[1][5] = std::numeric_limits<float>::infinity();
    const auto sums = omni::allreduce(fabric, rounded, omni::in_network{});
    CHECK(sums.error_bound > 0);
    CHECK(sums.escaped_blocks == 1);
    CHECK(omni::allreduce(fabric, own).topology == "in_network");
    std::vector<int> small(10, 1);
    CHECK(omni::allreduce(fabric, small).topology != "in_network");
  });
}

TEST_CASE("fabric: two jobs share a switch; a third hears that there are no slots, and runs on the hosts") {
  wire w({}, {.slots = 64});
  std::atomic<int> wrong = 0;
  on_ranks(w, 2, [&](auto& first, int rank) {
    testing::agreeing& comm = first.comm();
    omni::basic_fabric<testing::agreeing> second(comm, w.way(10 + rank), rank, 2);
    omni::basic_fabric<testing::agreeing> third(comm, w.way(20 + rank), rank, 2);
    if (!first.uses_switch() || !second.uses_switch() || third.uses_switch()) ++wrong;
    if (third.why_not().find("slots") == std::string::npos) ++wrong;
    for (int k = 0; k < 5; ++k)
      for (auto* fabric : {&first, &second, &third}) {
        std::vector<int> x(50000, rank + k);
        const auto r = omni::allreduce(*fabric, x, omni::in_network{});
        if (x != std::vector<int>(50000, 1 + 2 * k) || (r.topology == "in_network") != (fabric != &third)) ++wrong;
      }
  });
  CHECK(wrong == 0);
  CHECK(w.device().leases().slots_leased() == 0);  // those that leave give them back
}

TEST_CASE("fabric: a switch that starts anew in the middle is an error on all ranks, not a wrong sum") {
  wire w;
  std::atomic<int> errors = 0;
  on_ranks(w, 2, [&](auto& fabric, int rank) {
    std::vector<int> x(1000, 1);
    omni::allreduce(fabric, x, omni::in_network{});
    std::vector<int> meet(1, 0);
    omni::allreduce(fabric.comm(), meet, omni::colocated{});
    if (rank == 0) w.restart();
    omni::allreduce(fabric.comm(), meet, omni::colocated{});
    try {
      omni::allreduce(fabric, x, omni::in_network{});
    } catch (const omni::error& e) {
      CAPTURE(e.what());
      CHECK((std::string(e.what()).find("does not know this job") != std::string::npos ||
             std::string(e.what()).find("gave up") != std::string::npos));
      ++errors;
    }
    CHECK(!fabric.uses_switch());
  });
  CHECK(errors == 2);
}

TEST_CASE("fabric: a worker that falls silent is named when the time is up") {
  wire w;
  std::atomic<int> named = 0, heard = 0;
  on_ranks(w, 3, [&](auto& fabric, int rank) {
    if (rank == 0) w.cut(2, 3);
    std::vector<int> meet(1, 0);
    omni::allreduce(fabric.comm(), meet, omni::colocated{});
    std::vector<int> x(100000, 1);
    try {
      omni::allreduce(fabric, x, omni::in_network{}, omni::deadline{std::chrono::milliseconds(700)});
    } catch (const omni::timeout& e) {
      if (rank != 2 && e.peers() == std::vector<int>{2}) ++named;
    } catch (const omni::error&) {
      if (rank != 2) ++heard;  // of it, from one that was first
    }
  });
  CHECK(named >= 1);
  CHECK(named + heard == 2);
}

TEST_CASE("fabric: lanes of many rows, of which most are null, in place and not") {
  std::uint64_t seed = 0;
  for (const auto shape :
       {patterns::shape::power_law, patterns::shape::identical, patterns::shape::disjoint, patterns::shape::single})
    for (const bool in_place : {true, false}) {
      wire w({}, {.most_slots = 2});
      CHECK(wrong_outputs<std::int32_t>(w, 3, 200000, shape, ++seed, in_place, omni::sum{}) == 0);
      CHECK(wrong_outputs<float>(w, 3, 200000, shape, ++seed, in_place, omni::max{}) == 0);
    }
}

TEST_CASE("switch: the check of a packet tells one bit in both halves of a word, wherever it lies") {
  omni::detail::switch_packet p;
  patterns::generator random(3);
  int unseen = 0;
  p.header.lanes = 1;
  for (int k = 0; k < 100000; ++k) {
    for (std::size_t i = 0; i < 128; i += 8) p.pairs[i] = random();
    p.seal(128);
    const auto i = random() % 32;
    p.pairs[random() % 128] ^= std::uint64_t{1} << i | std::uint64_t{1} << (i + 32);
    unseen += p.is_whole(p.bytes(128), 128) ? 1 : 0;
  }
  CHECK(unseen == 0);
}

TEST_CASE("switch: a round begins only when the one before it is complete") {
  using namespace omni::detail;
  omni_switch_job job{};
  job.key = 1;
  job.workers = 2;
  job.pairs = OMNI_SWITCH_CHUNK;
  auto slot = std::make_unique<omni_switch_slot>();
  omni_switch_clear(slot.get(), job.workers);
  const auto send = [&](unsigned worker, std::uint32_t round, std::uint64_t value) {
    switch_packet p;
    p.header.kind = omni_switch_contribution;
    p.header.worker = static_cast<omni_u8>(worker);
    p.header.round = round;
    p.header.lanes = 1;
    p.pairs.fill(value);
    return static_cast<int>(omni_switch_take(slot.get(), &p.header, p.pairs.data(), p.end_of(sizeof(p)), &job));
  };
  CHECK(send(0, 1, 5) == omni_switch_late);
  CHECK(send(0, 0, 5) == omni_switch_absorb);
  CHECK(send(0, 1, 7) == omni_switch_late);
  CHECK(send(0, 2, 7) == omni_switch_late);
  CHECK(send(0, 0, 5) == omni_switch_tell);
  CHECK(send(1, 0, 6) == omni_switch_spread);
  CHECK(slot->version[0].pairs[0] == 11);
  CHECK(send(1, 0, 6) == omni_switch_answer);
  CHECK(send(0, 1, 7) == omni_switch_absorb);
  CHECK(send(0, 2, 9) == omni_switch_late);
  CHECK(send(1, 1, 8) == omni_switch_spread);
  CHECK(slot->version[0].pairs[0] == 11);  // still there
  CHECK(slot->version[1].pairs[0] == 15);
  CHECK(send(1, 2, 1) == omni_switch_absorb);
  CHECK(send(1, 0, 6) == omni_switch_late);
}

TEST_CASE("switch: below another, a round ends with what comes from above, once") {
  using namespace omni::detail;
  omni_switch_job job{};
  job.key = 1;
  job.workers = 2;
  job.pairs = OMNI_SWITCH_CHUNK;
  job.slots = 1;
  job.above_address = 9;
  job.above_key = 4;
  job.above_job = 3;
  job.above_worker = 1;
  auto slot = std::make_unique<omni_switch_slot>();
  omni_switch_clear(slot.get(), job.workers);
  switch_packet p;
  const auto send = [&](omni_switch_kind kind, unsigned worker, std::uint32_t round, std::uint64_t value, std::uint32_t seen = 0) {
    const bool from_above = kind == omni_switch_result || kind == omni_switch_pending;
    p.header = {};
    p.header.magic = OMNI_SWITCH_MAGIC;
    p.header.kind = static_cast<omni_u8>(kind);
    p.header.worker = static_cast<omni_u8>(worker);
    p.header.round = round;
    p.header.job = from_above ? 3 : 0;
    p.header.key = from_above ? 4 : 1;
    p.header.seen = seen;
    p.header.lanes = kind == omni_switch_ask || kind == omni_switch_pending ? 0 : 1;
    p.pairs.fill(value);
    return static_cast<int>(omni_switch_take(slot.get(), &p.header, p.pairs.data(), p.end_of(sizeof(p)), &job));
  };
  CHECK(send(omni_switch_contribution, 0, 0, 5) == omni_switch_absorb);
  CHECK(send(omni_switch_result, 0, 0, 50) == omni_switch_late);  // not before its own sum
  CHECK(send(omni_switch_contribution, 1, 0, 6) == omni_switch_raise);
  omni_switch_reply(slot.get(), &p.header, p.pairs.data(), p.end_of(sizeof(p)), &job, 0, omni_switch_raise);
  CHECK(static_cast<int>(p.header.kind) == omni_switch_contribution);
  CHECK(static_cast<int>(p.header.worker) == 1);
  CHECK(p.header.job == 3);
  CHECK(p.header.key == 4);
  CHECK(p.pairs[0] == 11);
  CHECK(send(omni_switch_contribution, 0, 1, 7) == omni_switch_late);  // nobody has the result
  CHECK(send(omni_switch_ask, 1, 0, 0) == omni_switch_tell);
  CHECK(send(omni_switch_ask, 0, 0, 0) == omni_switch_raise);
  CHECK(send(omni_switch_pending, 0, 0, 0, 1) == omni_switch_raise);  // the one above has that of another
  CHECK(send(omni_switch_pending, 0, 0, 0, 2) == omni_switch_absorb);
  p.header.kind = omni_switch_result;
  p.header.lanes = 1;
  p.header.op = omni_switch_min_32;  // not what was sent up
  CHECK(static_cast<int>(omni_switch_take(slot.get(), &p.header, p.pairs.data(), p.end_of(sizeof(p)), &job)) == omni_switch_late);
  CHECK(slot->version[0].lanes == 1);
  CHECK(send(omni_switch_result, 0, 0, 50) == omni_switch_spread);
  CHECK(slot->version[0].pairs[0] == 50);
  CHECK(send(omni_switch_result, 0, 0, 60) == omni_switch_late);
  CHECK(slot->version[0].pairs[0] == 50);
  CHECK(send(omni_switch_ask, 1, 0, 0) == omni_switch_answer);
  CHECK(send(omni_switch_contribution, 0, 1, 7) == omni_switch_absorb);
  // Only that switch sends results, of that job.
  p.header.kind = omni_switch_result;
  p.header.job = 3;
  p.header.key = 4;
  CHECK(omni_switch_is_ours(&p.header, &job, 9) == 1);
  CHECK(omni_switch_is_ours(&p.header, &job, 8) == 0);
  p.header.key = 1;
  CHECK(omni_switch_is_ours(&p.header, &job, 9) == 0);
  job.above_address = 0;
  p.header.key = 4;
  CHECK(omni_switch_is_ours(&p.header, &job, 0) == 0);
}

TEST_CASE("switch: of 10^6 packets that nobody could have sent, damaged or of strangers, none is added") {
  using namespace omni::detail;
  patterns::generator random(7);
  software_switch device({.slots = 64}, [&] { return static_cast<std::uint32_t>(random()); });
  switch_packet answer;
  const auto send = [&](std::uint64_t /*to*/, std::span<const std::byte> d) {
    std::memcpy(static_cast<void*>(&answer), d.data(), d.size());
  };
  auto p = control_packet(omni_switch_open, {3, 8, 1500});
  p.seal(0);
  device.take(p, 64, 1, 0, send);
  const auto lease = answer.header;
  REQUIRE(lease.kind == omni_switch_lease);
  for (std::uint64_t w = 0; w < 3; ++w) {
    p = control_packet(omni_switch_join);
    p.header.job = lease.job;
    p.header.key = lease.key;
    p.header.worker = static_cast<omni_u8>(w);
    p.seal(0);
    device.take(p, 64, w + 1, 0, send);
    REQUIRE(answer.header.kind == omni_switch_joined);
  }
  const auto make = [&] {
    switch_packet c;
    c.header.kind = omni_switch_contribution;
    c.header.job = lease.job;
    c.header.key = lease.key;
    c.header.worker = static_cast<omni_u8>(random() % 3);
    c.header.slot = static_cast<omni_u16>(random() % 8);
    c.header.lanes = 1;
    std::uint64_t word = random();
    for (auto& x : c.pairs) x = word += 0x9e3779b97f4a7c15U;
    return c;
  };
  for (int i = 0; i < 1000000; ++i) {
    auto c = make();
    std::uint64_t address = c.header.worker + 1U;
    std::size_t bytes = c.bytes(lease.next[1]);
    const auto kind = random() % 8;
    if (kind == 0) c.header.key ^= 1U << random() % 32;
    if (kind == 1) address = 4 + random() % 100;
    if (kind == 2) c.header.worker = static_cast<omni_u8>(3 + random() % 250);
    if (kind == 3) c.header.slot = static_cast<omni_u16>(8 + random() % 60000);
    if (kind == 4) c.header.round = 1 + static_cast<omni_u32>(random() % 0xffffff00U);
    if (kind == 5) c.header.job = static_cast<omni_u16>(lease.job + 1 + random() % 1000);
    c.seal(lease.next[1]);
    if (kind == 6) bytes -= 1 + random() % (bytes - 1);
    if (kind == 7) reinterpret_cast<std::byte*>(&c)[random() % bytes] ^= static_cast<std::byte>(1 + random() % 255);
    device.take(c, bytes, address, 0, send);
  }
  const auto& n = device.counters().of;
  CHECK(n[omni_switch_absorb] + n[omni_switch_spread] + n[omni_switch_raise] == 0);
  CHECK(n[omni_switch_damaged] + n[omni_switch_strange] + n[omni_switch_late] == 1000000);
}

TEST_CASE("switch: a job ends when all have left that have joined it, and by nobody else's word") {
  using namespace omni::detail;
  std::uint32_t drawn = 0;
  software_switch device({.slots = 64}, [&] { return ++drawn; });
  switch_packet answer;
  const auto say = [&](switch_packet p, std::uint64_t address) {
    p.seal(0);
    device.take(p, 64, address, 0,
                [&](std::uint64_t, std::span<const std::byte> d) { std::memcpy(static_cast<void*>(&answer), d.data(), d.size()); });
    return answer.header;
  };
  // Addresses are 1 above a worker's number; the first two join, the third does not.
  const auto lease = say(control_packet(omni_switch_open, {3, 8, 1500}), 1);
  REQUIRE(lease.kind == omni_switch_lease);
  const auto of = [&](omni_switch_kind kind, unsigned worker) { return job_packet(kind, lease.job, lease.key, worker); };
  say(of(omni_switch_leave, 2), 3);  // before anybody has joined; not the asker
  CHECK(device.leases().jobs() == 1);
  for (const unsigned w : {0U, 1U}) CHECK(say(of(omni_switch_join, w), w + 1).kind == omni_switch_joined);
  say(of(omni_switch_leave, 0), 1);
  say(of(omni_switch_leave, 2), 3);  // has not joined
  say(of(omni_switch_leave, 1), 7);  // a stranger
  CHECK(device.leases().jobs() == 1);
  say(of(omni_switch_leave, 1), 2);
  CHECK(device.leases().jobs() == 0);
  CHECK(device.leases().slots_leased() == 0);
}

TEST_CASE("fabric: packets that a link never takes are an error, and not sent for ever") {
  omni::detail::udp_link link("127.0.0.1:9");
  std::vector<std::byte> small(64), large(70000);
  link.send(small);
  CHECK_THROWS_WITH_AS(link.send(large),
                       "omni: a link on the way to the switch takes no packets of 70000 bytes; give all links the same MTU, or a "
                       "fabric_options::packet_bytes that all take",
                       omni::error);
}

TEST_CASE("switch: slots of a job that is silent come back when the lease is over, and not before") {
  using namespace omni::detail;
  std::uint32_t drawn = 0;
  software_switch device({.slots = 64, .most_slots = 64, .seconds = 10}, [&] { return ++drawn; });
  switch_packet answer;
  const auto ask = [&](double now, std::uint32_t number) {
    auto p = control_packet(omni_switch_open, {2, 64, 8256});
    p.header.round = number;
    p.seal(0);
    device.take(p, 64, 1, now,
                [&](std::uint64_t, std::span<const std::byte> d) { std::memcpy(static_cast<void*>(&answer), d.data(), d.size()); });
    return static_cast<int>(answer.header.kind);
  };
  CHECK(ask(0, 1) == omni_switch_lease);
  CHECK(ask(1, 1) == omni_switch_lease);  // the same again, as the answer was lost
  CHECK(device.leases().jobs() == 1);
  CHECK(ask(9, 2) == omni_switch_refuse);
  CHECK(answer.header.next[0] == static_cast<std::uint32_t>(no_lease::full));
  CHECK(ask(11, 3) == omni_switch_lease);
  CHECK(device.leases().jobs() == 1);
}

TEST_CASE("shared_exponent: on hosts the bits are those of sums of integers, whatever the topology") {
  constexpr int ranks = 5;
  constexpr std::size_t n = 70000;
  auto x = scaled<float>(ranks, n, 11, -130, 100);
  for (auto& rank : x) std::fill(rank.begin() + 512, rank.begin() + 1024, 0.0F);
  x[3][700] = 3;
  x[1][3000] = std::numeric_limits<float>::infinity();
  // As the documentation has it: multiples of 2^(e - m), with m = 31 - bits(5).
  std::vector<float> wanted(n);
  for (std::size_t first = 0; first < n; first += 256) {
    const auto last = std::min(first + 256, n);
    float largest = 0;
    for (const auto& rank : x)
      for (auto i = first; i < last; ++i) largest = std::max(largest, std::fabs(rank[i]));
    int e = 0;
    static_cast<void>(std::frexp(largest, &e));
    for (auto i = first; i < last && std::isfinite(largest); ++i) {
      long long sum = 0;
      for (const auto& rank : x) sum += std::llrint(std::ldexp(static_cast<double>(rank[i]), 28 - e));
      wanted[i] = static_cast<float>(std::ldexp(static_cast<double>(sum), e - 28));
    }
  }
  std::atomic<int> wrong = 0;
  testing::agreeing::run(ranks, [&](testing::agreeing& comm) {
    const auto check = [&](const auto& topology, const auto&... more) {
      const auto& in = x[static_cast<std::size_t>(comm.rank())];
      auto out = in;
      const auto r = omni::allreduce(comm, in, out, topology, omni::shared_exponent{}, more...);
      for (std::size_t i = 0; i < n; ++i)
        if (i < 2816 || i >= 3072) wrong += std::bit_cast<std::uint32_t>(out[i]) == std::bit_cast<std::uint32_t>(wanted[i]) ? 0 : 1;
      wrong += std::isinf(out[3000]) && std::isfinite(out[3001]) && r.escaped_blocks == 1 && r.error_bound == std::ldexp(5.0, -28)
                   ? 0
                   : 1;
    };
    check(omni::colocated{});
    check(omni::ring{});
    check(omni::replicated{});
    check(omni::automatic{}, omni::deadline{std::chrono::seconds(30)});
    std::vector<double> d(1000, 0.1 * comm.rank()), e = d;
    omni::allreduce(comm, d, omni::shared_exponent{.bits = 64});
    omni::allreduce(comm, e, omni::ring{}, omni::shared_exponent{.bits = 64});
    wrong += d == e && std::fabs(d[999] - 1.0) < 1e-15 ? 0 : 1;
    // Blocks that are not finite have the bits of one topology, too; half sums as integers, and nothing at all.
    auto one = x[static_cast<std::size_t>(comm.rank())], other = one;
    omni::allreduce(comm, one, omni::ring{}, omni::shared_exponent{});
    omni::allreduce(comm, other, omni::shared_exponent{});
    wrong += std::memcmp(one.data(), other.data(), n * sizeof(float)) == 0 ? 0 : 1;
    std::vector<omni::half> h(700, omni::half(0.25F * static_cast<float>(comm.rank())));
    std::vector<omni::bfloat16> b(700, omni::bfloat16(2.0F));
    std::vector<float> none;
    omni::allreduce(comm, h, omni::shared_exponent{});
    omni::allreduce(comm, b, omni::replicated{}, omni::shared_exponent{});
    omni::allreduce(comm, none, omni::shared_exponent{});
    wrong += static_cast<float>(h[699]) == 2.5F && static_cast<float>(b[0]) == 10.0F ? 0 : 1;
    // Nothing to round: as without it.
    std::vector<int> k(1000, 1 << 30);
    omni::allreduce(comm, k, omni::max{}, omni::shared_exponent{});
    wrong += k == std::vector<int>(1000, 1 << 30) ? 0 : 1;
  });
  CHECK(wrong == 0);
}

TEST_CASE("shared_exponent: ranks with other types are told, however small the tensor is") {
  std::atomic<int> told = 0;
  testing::agreeing::run(3, [&](testing::agreeing& comm) {
    try {
      if (comm.rank() == 1) {
        std::vector<double> x(100, 1);
        omni::allreduce(comm, x, omni::shared_exponent{});
      } else {
        std::vector<float> x(100, 1);
        omni::allreduce(comm, x, omni::shared_exponent{});
      }
    } catch (const omni::mismatch&) {
      ++told;
    }
  });
  CHECK(told == 3);
}

TEST_CASE("fabric: a switch's address has a port") {
  for (const char* const wrong :
       {"127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:99999", "127.0.0.1:48x"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(omni::detail::udp_link{wrong}, omni::usage);
  }
  CHECK((omni::detail::udp_link("127.0.0.1:4800").where() & 0xffffU) == 4800);
}

TEST_CASE("shared_exponent: ranks that want other sums of a group are told, too") {
  wire w;
  std::atomic<int> told = 0;
  on_ranks(w, 3, [&](auto& fabric, int rank) {
    std::vector<std::vector<double>> group{std::vector<double>(1000, 1), std::vector<double>(2000, 1)};
    try {
      omni::allreduce(fabric, group, omni::in_network{}, omni::shared_exponent{rank == 1 ? 64 : 32});
    } catch (const omni::mismatch&) {
      ++told;
    }
  });
  CHECK(told == 3);
}

TEST_CASE("fabric: a plain communicator has no switch") {
  testing::agreeing::run(2, [&](testing::agreeing& comm) {
    std::vector<int> x(10, 1);
    using levels = omni::hierarchical<omni::colocated, omni::in_network>;
    CHECK_THROWS_WITH_AS(omni::allreduce(comm, x, omni::in_network{}), doctest::Contains("no switch"), omni::usage);
    CHECK_THROWS_WITH_AS(omni::allreduce(comm, x, levels{}), doctest::Contains("no switch"), omni::usage);
    omni::allreduce(comm, x);
    CHECK(x == std::vector<int>(10, 2));
  });
}
