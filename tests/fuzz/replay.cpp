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
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../support/leaks.hpp"
#include "targets.hpp"

namespace {

const std::map<std::string, std::function<void(std::span<const std::uint8_t>)>> targets{
    {"packets", fuzz::packets}, {"server", fuzz::server}, {"slots", fuzz::slots}, {"worker", fuzz::worker}};

void keep(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

// What an owner of slots hears from three workers, in this order, and what the first of these hears from it.
struct conversation {
  std::vector<fuzz::item> to_owner, to_worker;
};
conversation held(bool packs) {
  conversation heard;
  omni::detail::reductions known;
  known.add(omni::reduction<int>{});
  omni::detail::slot_owner owner(3, 1, 0, 0, 0, &known);
  std::deque<fuzz::slot_call> calls;
  std::vector<fuzz::item> up, down;
  const auto say = [&](unsigned rank) {
    return [&, rank](int, std::span<const std::byte> d) { up.push_back({rank, {d.begin(), d.end()}}); };
  };
  for (unsigned r = 0; r < 3; ++r) calls.emplace_back(static_cast<int>(r), packs).worker.start(0, 0, say(r));
  while (!up.empty()) {
    for (auto& i : std::exchange(up, {})) {
      heard.to_owner.push_back(i);
      omni::detail::slot_reader d;
      if (!d.parse(i.bytes)) continue;
      owner.take(static_cast<int>(i.about), d, [&](int w, std::span<const std::byte> b) {
        down.push_back({static_cast<unsigned>(w), {b.begin(), b.end()}});
      });
    }
    for (auto& i : std::exchange(down, {})) {
      if (i.about == 0) heard.to_worker.push_back(i);
      omni::detail::slot_reader d;
      if (d.parse(i.bytes)) calls[i.about].worker.take(0, d, 0, say(i.about));
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

  for (const bool packs : {false, true}) {
    const auto* const file = packs ? "packed" : "true";
    const auto heard = held(packs);
    keep(corpus / "slots" / file, fuzz::text(heard.to_owner));
    keep(corpus / "worker" / file, std::string(1, packs ? '\1' : '\0') + fuzz::text(heard.to_worker));
  }
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
  return inputs >= 9 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (std::string(argv[1]) == "run") return replay(argv[2]);
  write_seeds(argv[2]);
  return 0;
}
