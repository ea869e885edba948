// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
//     omni-fuzz-replay run CORPUS     # every input that was ever found worth keeping, through its target
//     omni-fuzz-replay seeds CORPUS   # writes what correct peers send, for the fuzzer to begin with
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <omni/omni.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../support/leaks.hpp"
#include "targets.hpp"

namespace {

const std::map<std::string, std::function<void(std::span<const std::uint8_t>)>> targets{
    {"packets", fuzz::packets}, {"server", fuzz::server}, {"slots", fuzz::slots}};

void keep(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

// What three workers say to an owner of slots, in the order in which it is heard. `packs`: blocks travel packed.
std::vector<fuzz::item> said_to_owner(bool packs) {
  using call_type = omni::detail::typed_call<int, omni::sum, omni::fixed_blocks, omni::simd_detector>;
  std::vector<fuzz::item> heard;
  std::vector<std::vector<int>> data;
  for (int r = 0; r < 3; ++r) {
    data.push_back(fuzz::input_of(r));
    for (std::size_t i = 0; packs && i < data.back().size(); ++i)
      if (i % 8 != 0) data.back()[i] = 0;
  }
  omni::detail::reductions known;
  known.add(omni::reduction<int>{});
  omni::detail::slot_owner owner(3, 1, 0, 0, 0, &known);
  std::vector<std::unique_ptr<omni::detail::slot_worker>> workers;
  std::vector<fuzz::item> to_owner, to_worker;
  const auto say = [&](int rank) {
    return [&, rank](int, std::span<const std::byte> d) {
      to_owner.push_back({static_cast<unsigned>(rank), {d.begin(), d.end()}});
    };
  };
  const call_type::policies policies({}, {16}, {});
  std::deque<call_type> calls;
  for (int r = 0; r < 3; ++r) {
    auto& x = data[static_cast<std::size_t>(r)];
    const auto& c = calls.emplace_back(policies, x, x);
    auto mine = sign(c, "dedicated", 600, 4);
    mine.largest_block = 16;
    mine.blocks = (fuzz::elements - 1) / 16 + 1;
    workers.push_back(std::make_unique<omni::detail::slot_worker>(c, mine, 1, 0, std::vector<std::uint64_t>{~std::uint64_t{0}, 0},
                                                                  std::nullopt, packs));
    workers.back()->start(0, 0, say(r));
  }
  while (!to_owner.empty()) {
    auto next = std::exchange(to_owner, {});
    for (auto& i : next) {
      heard.push_back(i);
      omni::detail::slot_reader d;
      if (!d.parse(i.bytes)) continue;
      owner.take(static_cast<int>(i.about), d, [&](int w, std::span<const std::byte> b) {
        to_worker.push_back({static_cast<unsigned>(w), {b.begin(), b.end()}});
      });
    }
    for (auto& i : std::exchange(to_worker, {})) {
      omni::detail::slot_reader d;
      if (d.parse(i.bytes)) workers[i.about]->take(0, d, 0, say(static_cast<int>(i.about)));
    }
  }
  return heard;
}

void write_seeds(const std::filesystem::path& corpus) {
  for (unsigned which = 0; which < 4; ++which) {
    std::vector<fuzz::item> sent;
    omni::transport::threads::run(2, [&](omni::transport::threads& inner) {
      std::vector<testing::recorded_packet> mine;
      testing::recorder comm(inner, mine);
      auto x = fuzz::input_of(inner.rank());
      fuzz::call(comm, x, which);
      if (inner.rank() == 1)
        for (auto& p : mine) sent.push_back({p.stream, std::move(p.bytes)});
    });
    keep(corpus / "packets" / ("true_" + std::to_string(which)), std::string(1, static_cast<char>(which)) + fuzz::text(sent));
  }
  std::vector<fuzz::item> sent[2];
  omni::transport::threads::run(3, [&](omni::transport::threads& inner) {
    std::vector<testing::recorded_packet> mine;
    testing::recorder comm(inner, mine);
    omni::cluster cluster{comm, omni::dedicated{.servers = 1}};
    if (cluster.is_server()) {
      cluster.serve_only(omni::reduction<int>{});
      return;
    }
    auto x = fuzz::input_of(cluster.rank());
    omni::allreduce(cluster, x, omni::fixed_blocks{16}, omni::dedicated{.packet_bytes = 500});
    const auto w = static_cast<unsigned>(cluster.rank());
    for (auto& p : mine) sent[w].push_back({w, p.bytes});
  });
  sent[0].insert(sent[0].end(), sent[1].begin(), sent[1].end());
  keep(corpus / "server" / "true", fuzz::text(sent[0]));

  keep(corpus / "slots" / "true", fuzz::text(said_to_owner(false)));
  keep(corpus / "slots" / "packed", fuzz::text(said_to_owner(true)));
}

int replay(const std::filesystem::path& corpus) {
  const testing::leaks_are_meant meant;
  std::size_t inputs = 0;
  for (const auto& [name, run] : targets)
    for (const auto& file : std::filesystem::directory_iterator(corpus / name)) {
      std::ifstream in(file.path(), std::ios::binary);
      const std::vector<char> text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
      run({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
      ++inputs;
    }
  std::printf("%zu inputs\n", inputs);
  return inputs >= 7 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (std::string(argv[1]) == "run") return replay(argv[2]);
  write_seeds(argv[2]);
  return 0;
}
