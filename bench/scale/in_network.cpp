// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// An allreduce through switches on a simulated network: each worker and each switch does what it does, packet by packet, and time
// is that of the links. Racks of up to 32 workers, each with a switch; of several racks, one switch above. Links have a rate and a
// latency each way; a packet takes its turn, and goes on when all of it is there. Computing takes no time.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <omni/allreduce.hpp>
#include <omni/detail/fabric/network_worker.hpp>
#include <omni/detail/fabric/software_switch.hpp>
#include <omni/engines.hpp>
#include <queue>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "../json_file.hpp"

namespace {

using omni::detail::network_worker;
using omni::detail::software_switch;
using omni::detail::switch_packet;
using call_type = omni::detail::typed_call<std::int32_t, omni::sum, omni::fixed_blocks, omni::simd_detector>;

struct network {
  double bytes_per_second = 125e6, latency = 5e-6;
};

class simulation {
 public:
  using address = std::uint64_t;  // workers from 1 on, then the racks' switches, then the one above

  simulation(const network& n, std::size_t workers, std::size_t rack, const std::vector<std::int32_t>& in)
      : network_(n), racks_((workers - 1) / rack + 1), rack_(rack) {
    const auto nodes = workers + racks_ + (racks_ > 1 ? 1 : 0);
    up_.assign(nodes + 1, 0);
    down_.assign(nodes + 1, 0);
    first_switch_ = workers + 1;
    for (std::size_t s = first_switch_; s <= nodes; ++s)
      switches_.push_back(std::make_unique<software_switch>(
          omni::detail::switch_leases::settings{.slots = 128, .above = racks_ > 1 && s < nodes ? nodes : 0},
          [this] { return static_cast<std::uint32_t>(random_()); }));
    leases_.resize(workers);
    for (std::size_t w = 0; w < workers; ++w) {
      calls_.push_back(std::make_unique<call_type>(policies_, in, out_.emplace_back(in.size())));
      join(w, std::min(rack, workers - w / rack * rack));
    }
  }

  /// Seconds until the last worker has the sum.
  double run() {
    const auto began = now_;
    double ended = now_;
    std::vector<std::unique_ptr<network_worker>> all;
    for (auto& o : out_) std::fill(o.begin(), o.end(), -1);  // what is not written shows
    for (std::size_t w = 0; w < leases_.size(); ++w)
      all.push_back(
          std::make_unique<network_worker>(*calls_[w], *omni::detail::native_loops<std::int32_t, omni::sum>(), leases_[w]));
    const auto sender = [this](std::size_t w) { return [this, w](std::span<const std::byte> d) { send(w + 1, switch_of(w), d); }; };
    for (std::size_t w = 0; w < all.size(); ++w) all[w]->start(now_, sender(w));
    deliver([&](address to, const switch_packet& p, std::size_t bytes) {
      auto& worker = *all[to - 1];
      worker.take(p, bytes, now_, sender(to - 1));
      ended = now_;
    });
    for (const auto& w : all)
      if (!w->finished()) throw std::runtime_error("a worker waits for ever");
    return ended - began;
  }
  [[nodiscard]] const std::deque<std::vector<std::int32_t>>& out() const { return out_; }

 private:
  using datagram = std::shared_ptr<const std::vector<std::byte>>;
  struct event {
    double at;
    std::uint64_t order;
    address from, to;
    datagram d;
    bool operator<(const event& o) const { return at != o.at ? at > o.at : order > o.order; }
  };

  [[nodiscard]] address switch_of(std::size_t worker) const { return first_switch_ + worker / rack_; }
  // Each node has a link to what is above it.
  void send(address from, address to, std::span<const std::byte> bytes) {
    send(from, to, std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end()));
  }
  void send(address from, address to, const datagram& d) {
    auto& link = from < to ? up_[from] : down_[to];
    constexpr double headers = 8 + 14 + 20 + 8 + 4 + 12;  // preamble, Ethernet, IP, UDP, check, gap
    link = std::max(link, now_) + (static_cast<double>(d->size()) + headers) / network_.bytes_per_second;
    events_.push({link + network_.latency, ++order_, from, to, d});
  }
  template <class Worker>
  void deliver(const Worker& to_worker) {
    switch_packet p;
    while (!events_.empty()) {
      const auto e = events_.top();
      events_.pop();
      now_ = e.at;
      std::memcpy(static_cast<void*>(&p), e.d->data(), e.d->size());
      if (e.to < first_switch_) {
        to_worker(e.to, p, e.d->size());
        continue;
      }
      // A result is the same datagram for all.
      datagram last;
      const void* last_from = nullptr;
      switches_[e.to - first_switch_]->take(p, e.d->size(), e.from, now_, [&](address to, std::span<const std::byte> d) {
        if (last_from != d.data() || last->size() != d.size()) last = std::make_shared<std::vector<std::byte>>(d.begin(), d.end());
        last_from = d.data();
        send(e.to, to, last);
      });
    }
  }
  omni_switch_header ask(std::size_t w, switch_packet p) {
    p.seal(0);
    omni_switch_header answer{};
    send(w + 1, switch_of(w), p.view(0));
    deliver([&](address, const switch_packet& a, std::size_t) { answer = a.header; });
    return answer;
  }
  void join(std::size_t w, std::size_t in_rack) {
    auto& l = leases_[w];
    if (w % rack_ == 0) {
      auto question = omni::detail::control_packet(
          omni_switch_open, {static_cast<std::uint32_t>(in_rack), 32, switch_packet::most_bytes, static_cast<std::uint32_t>(racks_),
                             static_cast<std::uint32_t>(w / rack_)});
      question.header.round = 1;
      const auto h = ask(w, question);
      if (h.kind != omni_switch_lease) throw std::runtime_error("no lease");
      l.job = h.job;
      l.key = h.key;
      l.pairs = h.next[1];
      l.lanes = h.next[2];
      l.loses = false;
      l.workers = static_cast<int>(leases_.size());
      l.rounds.assign(h.next[0], 0);
    } else {
      l = leases_[w / rack_ * rack_];
    }
    l.worker = static_cast<int>(w % rack_);
    const auto question = omni::detail::job_packet(omni_switch_join, l.job, l.key, static_cast<unsigned>(l.worker));
    if (ask(w, question).kind != omni_switch_joined) throw std::runtime_error("a worker cannot join");
  }

  network network_;
  std::size_t racks_, rack_;
  std::deque<std::vector<std::int32_t>> out_;  // of each worker
  call_type::policies policies_{{}, omni::fixed_blocks{256}, {}};
  std::vector<std::unique_ptr<call_type>> calls_;
  address first_switch_ = 0;
  std::vector<double> up_, down_;  // when a link is free
  std::vector<std::unique_ptr<software_switch>> switches_;
  std::vector<omni::detail::switch_lease> leases_;
  std::priority_queue<event> events_;
  std::uint64_t order_ = 0;
  double now_ = 0;
  std::mt19937 random_{5};
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"An allreduce through switches on a simulated network"};
  std::vector<std::size_t> workers{8, 16, 32, 64, 128, 256, 512};
  std::vector<double> densities{100, 10, 1};
  std::size_t rack = 32, elements = std::size_t{1} << 20U;
  double gigabits = 1, latency = 5;
  double within = 0;
  std::string json;
  app.add_option("--workers", workers, "how many")->delimiter(',')->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--rack", rack, "workers at a switch")->capture_default_str()->check(CLI::Range(1, OMNI_SWITCH_WORKERS));
  app.add_option("--elements", elements, "of 32-bit integers")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--densities", densities, "percent of blocks that are not null")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--rate", gigabits, "of all links, Gbit/s")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--latency", latency, "of all links, microseconds")->capture_default_str()->check(CLI::NonNegativeNumber);
  app.add_option("--within", within, "the exit status is 1 if the time grows by more than this factor");
  app.add_option("--json", json, "file for the results");
  CLI11_PARSE(app, argc, argv);
  auto rows = nlohmann::json::array();
  int code = 0;
  for (const auto percent : densities) {
    std::mt19937 random(3);
    std::vector<std::int32_t> in(elements);
    std::size_t filled = 0;
    for (std::size_t first = 0; first < elements; first += 256) {
      if (std::uniform_real_distribution<>(0, 100)(random) >= percent) continue;
      for (auto i = first; i < std::min(first + 256, elements); ++i) in[i] = static_cast<std::int32_t>(random() >> 12U) + 1;
      filled += std::min<std::size_t>(256, elements - first);
    }
    double first_seconds = 0;
    for (const auto n : workers) {
      simulation s({gigabits * 1e9 / 8, latency * 1e-6}, n, rack, in);
      s.run();
      const auto seconds = s.run();  // of a fabric that is in use
      bool exact = true;
      for (const auto& out : s.out())
        for (std::size_t i = 0; i < elements; ++i)
          exact = exact && out[i] == static_cast<std::int32_t>(static_cast<std::uint32_t>(in[i]) * static_cast<std::uint32_t>(n));
      if (first_seconds == 0) first_seconds = seconds;
      if (!exact || (within > 0 && seconds > within * first_seconds)) code = 1;
      const auto limit = static_cast<double>(filled) * 4 / (gigabits * 1e9 / 8);
      std::printf("%4zu workers in %2zu racks  %5.4g %%  %9.3f ms  x S / B %.3f  x the fewest workers' %.3f%s\n", n,
                  (n - 1) / rack + 1, percent, seconds * 1e3, seconds / limit, seconds / first_seconds, exact ? "" : "  WRONG");
      std::fflush(stdout);
      rows.push_back(
          {{"workers", n}, {"percent", percent}, {"seconds", seconds}, {"over_limit", seconds / limit}, {"exact", exact}});
    }
  }
  return std::max(code, write_json(json, {{"rows", rows}, {"elements", elements}, {"gigabits", gigabits}, {"rack", rack}}));
}
