// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <omni/cuda/device_call.hpp>
#include <omni/omni.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device_ways.hpp"
#include "late_device.hpp"
#include "leaks.hpp"
#include "ranks.hpp"

// Calls on tensors of a device in software, on ranks that are threads, held against the oracle.

namespace testing {

/// As cuda/allreduce.hpp has it.
template <class T, class Way = void, class Comm, class... More>
omni::report reduce(Comm& comm, late_machine& machine, bool waits, std::span<const T> in, std::span<T> out, const More&... more) {
  return omni::detail::with_device_call<T>(
      late_device{&machine}, late_device::stream{}, waits, nullptr, in, out,
      [&](auto& call, const auto& topology) { return omni::detail::run_there(comm, call, way<Way>(topology)); }, more...);
}
template <class T, class Way = void, class Comm, class... More>
omni::request start(Comm& comm, late_machine& machine, std::span<T> x, const More&... more) {
  return omni::detail::with_device_call<T>(
      late_device{&machine}, late_device::stream{}, true, nullptr, std::span<const T>(x), x,
      [&](auto& call, const auto& topology) { return omni::detail::start_there(comm, call, way<Way>(topology)); }, more...);
}

/// Ranks that are threads, and whose messages may lie in device memory.
class device_messages {
 public:
  using threads = omni::transport::threads;
  static constexpr bool may_lose = false;

  template <class F>
  static void run(int ranks, F&& f) {
    threads::run(ranks, [&](threads& comm) {
      device_messages all(comm);
      f(all);
    });
  }
  explicit device_messages(threads& comm) : comm_(&comm) {}

  [[nodiscard]] int rank() const { return comm_->rank(); }
  [[nodiscard]] int size() const { return comm_->size(); }
  [[nodiscard]] std::size_t preferred_packet_bytes() const { return comm_->preferred_packet_bytes(); }
  [[nodiscard]] static bool takes_device_memory() { return true; }
  void mark_broken(const std::string& why) { comm_->mark_broken(why); }
  [[nodiscard]] bool is_usable() const { return comm_->is_usable(); }
  void expect_usable() const { comm_->expect_usable(); }
  [[nodiscard]] bool is_roll_called() const { return comm_->is_roll_called(); }
  [[nodiscard]] std::optional<std::vector<int>> call_roll(std::chrono::nanoseconds time) { return comm_->call_roll(time); }
  void answer_roll() { comm_->answer_roll(); }
  [[nodiscard]] threads::mailbox open() { return comm_->open(); }

 private:
  threads* comm_;
};

/// One call on every rank against the oracle.
template <class Values, class T, class Way = void, class Ranks = omni::transport::threads, class Op, class... Policies>
void check_on_device(const cell& c, const Op& op, const Policies&... policies) {
  const auto inputs = patterns::tensors<Values>(c.shape, c.seed, c.ranks, c.n, oracle::null_of<Op, T>());
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<Op>{});
  std::vector<std::string> wrong(inputs.size());
  Ranks::run(c.ranks, [&](Ranks& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    late_machine machine(c.seed * 31 + r);
    auto in = inputs[r];
    auto out = c.in_place ? std::vector<T>() : inputs[(r + 1) % inputs.size()];
    auto& result = c.in_place ? in : out;
    const auto told = reduce<T, Way>(comm, machine, true, std::span<const T>(in), std::span(result), op, policies...);
    wrong[r] = difference(result, wanted);
    if (told.extra_bytes < machine.allocated) wrong[r] += " (memory of the device is not told of)";
    if (!c.in_place && !oracle::equal(in, inputs[r])) wrong[r] += " (the input was changed)";
    omni::detail::borrowed_buffers<late_device>::drop();
  });
  const auto where = describe(c);
  CAPTURE(where);
  for (const auto& w : wrong) CHECK(w == "");
}

/// Calls that do not wait for their output, one upon the other; what the device has folded.
template <class Way = void, class Comm>
int check_calls_upon_each_other(Comm& comm) {
  late_machine machine(static_cast<std::uint64_t>(comm.rank()) + 5);
  std::vector<int> x(400000, 0);
  int wanted = 1;
  for (std::size_t i = 0; i < x.size(); i += 999) x[i] = 1;
  for (int step = 0; step < 4; ++step) {
    reduce<int, Way>(comm, machine, false, std::span<const int>(x), std::span(x));
    wanted *= comm.size();
  }
  const auto end = machine.make_event();
  machine.record(end, 0);  // in the caller's stream, where the output may be read
  machine.synchronize(end);
  CHECK(x[999] == wanted);
  CHECK(x[999 * 400] == wanted);
  CHECK(x[1000] == 0);
  omni::detail::borrowed_buffers<late_device>::drop();
  return machine.folds;
}

/// A call in which one operation of rank 1's device fails, at once or late: what every rank has to say, nothing if it is well.
/// `reaches`: the devices can read each other's memory.
template <class Ranks, class Way>
std::vector<std::string> fail_on_device(int ranks, std::size_t elements, long at, bool late, bool reaches) {
  const leaks_are_meant meant;
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  Ranks::run(ranks, [&](Ranks& comm) {
    late_machine machine(static_cast<std::uint64_t>(at));
    machine.reaches = reaches;
    if (comm.rank() == 1) {
      machine.fails_at = at;
      machine.fails_late = late;
    }
    const leaks_are_meant here;
    const auto r = static_cast<std::size_t>(comm.rank());
    std::vector<int> x(elements, 0);
    for (auto i = r; i < x.size(); i += 3000) x[i] = 1;
    try {
      reduce<int, Way>(comm, machine, true, std::span<const int>(x), std::span(x));
    } catch (const omni::cuda_error& e) {
      errors[r] = e.name();
    } catch (const omni::error& e) {
      errors[r] = e.what();
    }
    omni::detail::borrowed_buffers<late_device>::drop();
  });
  return errors;
}

}  // namespace testing
