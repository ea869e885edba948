// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// Every form of the call once: what each compiler that README.md names has to compile. Never run.

#include <mpi.h>

#include <array>
#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <omni/compress/compress.hpp>
#include <omni/omni.hpp>
#include <omni/transport/testing/lossy.hpp>
#include <omni/transport/udp.hpp>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

struct pair_of {
  double first = 0;
  std::int64_t second = 0;
};
struct latest {
  static constexpr std::string_view name = "latest";
  static pair_of identity() { return {}; }
  pair_of operator()(const pair_of& a, const pair_of& b) const { return b.second > a.second ? b : a; }
};
/// Partitioner: one block.
struct whole {
  static std::size_t count(std::size_t n) { return n == 0 ? 0 : 1; }
  static omni::block_range block(std::size_t /*i*/, std::size_t n) { return {0, n}; }
  static std::size_t largest(std::size_t n) { return n; }
  friend bool operator==(const whole&, const whole&) = default;
};

namespace {

template <class T>
void of_type(MPI_Comm comm) {
  std::vector<T> x(10);
  omni::allreduce(comm, x);
}

void data(MPI_Comm comm) {
  std::vector<float> vector(100);
  const std::vector<float> input(100);
  std::array<double, 3> array{};
  std::array<int, 4> fixed{};
  std::span<float> span(vector);
  const std::span<const float, 10> ten(input.data(), 10);
  omni::allreduce(comm, vector);
  omni::allreduce(comm, span);
  omni::allreduce(comm, array);
  omni::allreduce(comm, std::span(fixed));
  omni::allreduce(comm, input, vector);
  omni::allreduce(comm, ten, span.first(10), omni::max{});
  omni::allreduce(comm, std::as_const(input), vector, std::plus<>{});
  std::vector<std::span<float>> group{span.first(3), span.last(5)};
  std::vector<std::vector<int>> layers(3), reduced(3);
  omni::allreduce(comm, group);
  omni::allreduce(comm, std::as_const(layers), reduced, omni::min{});
  omni::allreduce<omni::ring>(comm, layers);
  omni::iallreduce(comm, group).wait();
}

void collectives(MPI_Comm comm) {
  std::vector<float> whole(100), part(50);
  const std::vector<float> input(100), mine(50);
  const std::vector<std::size_t> sizes{30, 70};
  std::array<double, 4> few{};
  omni::reduce_scatter(comm, whole);
  omni::reduce_scatter(comm, input, part, omni::max{}, omni::fixed_blocks{64});
  omni::reduce_scatter(comm, whole, omni::part_sizes{sizes}, omni::colocated{}, std::plus<>{});
  omni::allgather(comm, whole);
  omni::allgather(comm, mine, whole, omni::null_value{1.0F});
  omni::allgather(comm, std::span(mine), whole, omni::part_sizes{sizes}, omni::deadline{std::chrono::seconds(9)});
  omni::reduce(comm, whole, omni::root{1});
  omni::reduce(comm, input, whole, [](float a, float b) { return a + b; });
  omni::reduce<omni::colocated>(comm, few, omni::root{0});
  omni::broadcast(comm, whole);
  omni::broadcast(comm, few, omni::root{1}, omni::scalar_detector{});
  std::vector<std::span<float>> group{std::span(whole).first(3), std::span(whole).last(5)};
  omni::reduce(comm, group, omni::min{});
  omni::broadcast(comm, group);
  omni::ireduce_scatter(comm, input, part).wait();
  omni::iallgather(comm, mine, whole).wait();
  omni::ireduce(comm, whole, omni::root{0}).wait();
  omni::ibroadcast(comm, group, omni::root{0}).wait();
}

void types(MPI_Comm comm) {
  of_type<std::int8_t>(comm);
  of_type<std::uint8_t>(comm);
  of_type<std::int64_t>(comm);
  of_type<double>(comm);
  of_type<long double>(comm);
  of_type<omni::half>(comm);
  of_type<omni::bfloat16>(comm);
  of_type<std::complex<float>>(comm);
}

void operations(MPI_Comm comm) {
  std::vector<unsigned> x(10);
  std::array<bool, 8> truths{};
  std::vector<pair_of> pairs(10);
  omni::allreduce(comm, x, omni::prod{});
  omni::allreduce(comm, x, omni::band{});
  omni::allreduce(comm, truths, omni::prod{});
  omni::allreduce(comm, truths, omni::lxor{});
  omni::allreduce(comm, pairs, latest{});
  omni::allreduce(comm, x, [](unsigned a, unsigned b) { return 2 * a + b; });
}

void policies(MPI_Comm comm) {
  std::vector<float> x(100);
  omni::allreduce<omni::colocated, omni::scalar_detector>(comm, x);
  omni::allreduce(comm, x, omni::replicated{.packet_bytes = 4096, .window = 3}, omni::fixed_blocks{64}, omni::sum{});
  omni::allreduce(comm, x, whole{}, omni::automatic{.small_bytes = 1}, omni::deadline{std::chrono::seconds(1)});
  omni::allreduce(comm, x, omni::hierarchical<omni::colocated, omni::hierarchical<omni::colocated, omni::ring>>{});
  const omni::report r = omni::allreduce<omni::ring>(comm, x);
  static_cast<void>(r.density);
}

float larger_of(float a, float b) { return a < b ? b : a; }

void requests_and_plans(MPI_Comm comm) {
  std::vector<float> x(100), y(100);
  omni::request a = omni::iallreduce(comm, x);
  omni::request b = omni::iallreduce<omni::colocated>(comm, std::as_const(x), y, omni::max{});
  while (!a.test()) {
  }
  b.wait();
  omni::plan p{comm, x.size(), omni::sum{}, omni::fixed_blocks{32}};
  p.run(x);
  auto scatter = omni::plan_reduce_scatter(comm, x.size(), omni::max{});
  scatter.run(x, y);
  omni::plan_reduce(comm, x.size(), omni::root{0}).run(x);
  omni::plan{comm, x.size(), larger_of}.run(x);
  omni::plan_reduce(comm, x.size(), larger_of, omni::root{0}).run(x);
  static_cast<void>(omni::calibrate(comm));
}

void pairs(MPI_Comm comm) {
  const std::vector<std::uint32_t> keys(3);
  const std::vector<float> values(12);
  const std::vector<std::size_t> sizes(2, 100);
  const auto one = omni::allreduce(comm, omni::sparse_view{keys, values});
  const auto wide = omni::allreduce(comm, omni::sparse_view{keys, values, 4}, omni::max{}, omni::replicated{});
  const auto part = omni::reduce_scatter(comm, omni::sparse_view{keys, values}, omni::part_sizes{sizes}, omni::min{});
  const auto whole = omni::reduce(comm, omni::sparse_view{keys, values}, omni::root{0}, omni::colocated{});
  omni::sparse_tensor<std::uint32_t, float> later;
  omni::iallreduce(comm, omni::sparse_view{keys, values}, later, omni::max{}).wait();
  omni::ireduce_scatter(comm, omni::sparse_view{keys, values}, later, omni::part_sizes{sizes}).wait();
  omni::ireduce(comm, omni::sparse_view{keys, values}, later, omni::root{0}).wait();
  static_cast<void>(one.keys.size() + wide.values.size() + part.keys.size() + whole.keys.size());
}

int servers(MPI_Comm comm) {
  omni::cluster cluster{comm, omni::dedicated{.servers = 2}};
  if (cluster.is_server()) {
    cluster.serve();
    return 0;
  }
  std::vector<float> x(100);
  omni::allreduce(cluster, x);
  omni::allreduce<omni::colocated>(cluster, x);
  omni::cluster part{cluster, cluster.workers()};
  omni::iallreduce(part, x).wait();
  return 1;
}

void compressors(MPI_Comm comm) {
  std::vector<float> x(1000), y(1000);
  std::vector<double> g(1000);
  std::vector<std::span<float>> group{std::span(x).first(10), std::span(y).first(20)};
  omni::allreduce(comm, x, omni::natural{});
  omni::allreduce<omni::natural>(comm, x, y);
  omni::allreduce(comm, x, y, omni::top_blocks{.share = 0.1}, omni::colocated{}, omni::measured_error{});
  omni::allreduce(comm, group, omni::random_k{} | omni::to<omni::half>{}, omni::sum{});
  omni::iallreduce(comm, g, omni::random_blocks{} | (omni::top_k{} | omni::eight_bits())).wait();
  omni::plan p{comm, x.size(), omni::sign{}, omni::fixed_blocks{64}};
  p.run(x);
  const omni::error_feedback feedback(x.size(), omni::threshold_blocks{.least = 1});
  omni::allreduce(comm, x, feedback);
  const omni::diana<omni::bernoulli, double> estimate(g.size());
  omni::allreduce(comm, g, estimate);
  omni::vr_diana<omni::natural_dithering, double> reduced(g.size(), 10);
  std::vector<double> at_x(g), at_w(g);
  reduced.renew(at_w);
  reduced.reduce(comm, at_x, at_w, g);
}

void transports(MPI_Comm comm) {
  std::vector<float> x(100);
  omni::transport::mpi messages(comm);
  omni::allreduce(messages, x);
  omni::transport::udp datagrams(comm);
  omni::allreduce(datagrams, x, omni::colocated{});
  omni::transport::threads::run(2, [&](omni::transport::threads& t) {
    std::vector<int> mine(10);
    omni::allreduce(t, mine);
    omni::transport::lossy loses(t, {});
    omni::allreduce(loses, mine);
  });
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  data(MPI_COMM_WORLD);
  types(MPI_COMM_WORLD);
  collectives(MPI_COMM_WORLD);
  operations(MPI_COMM_WORLD);
  policies(MPI_COMM_WORLD);
  requests_and_plans(MPI_COMM_WORLD);
  pairs(MPI_COMM_WORLD);
  compressors(MPI_COMM_WORLD);
  transports(MPI_COMM_WORLD);
  return servers(MPI_COMM_WORLD);
}
