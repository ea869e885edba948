// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <omni/omni.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "../support/agreeing.hpp"
#include "../support/collectives.hpp"
#include "../support/device_ranks.hpp"
#include "../support/staged_calls.hpp"

// reduce_scatter, allgather, reduce and broadcast of tensors on a device in software, on ranks that are threads.

namespace {

using omni::transport::threads;
using testing::collective_cell;
using testing::late_device;
using testing::late_machine;
using testing::staged_calls;
using device_buffers = omni::detail::borrowed_buffers<late_device>;

template <class T, class Op, class... Policies>
void check(const collective_cell& c, const Op& op, const Policies&... policies) {
  std::vector<std::string> wrong(static_cast<std::size_t>(c.ranks));
  threads::run(c.ranks, [&](threads& comm) {
    late_machine machine(c.seed + static_cast<std::uint64_t>(comm.rank()));
    staged_calls by{machine};
    wrong[static_cast<std::size_t>(comm.rank())] = testing::run_collectives_by<T>(by, comm, comm.rank(), c, op, policies...);
    device_buffers::drop();
  });
  const auto where = c.str();
  CAPTURE(where);
  for (const auto& w : wrong) CHECK(w == "");
}

}  // namespace

namespace elsewhere {

/// What a device_span is to nvcc: the collectives of it are found by its name.
struct tensor {
  late_machine* machine = nullptr;
  std::span<float> there{};

  [[nodiscard]] std::size_t size() const { return there.size(); }
  [[nodiscard]] tensor subspan(std::size_t first, std::size_t n) const { return {machine, there.subspan(first, n)}; }
};
template <class A>
auto& of(A& argument) {
  if constexpr (std::is_same_v<std::remove_const_t<A>, tensor>) return argument.there;
  else return argument;
}
template <omni::detail::collective_kind C, class Go>
auto go(auto& comm, tensor& data, auto&... more) {
  return testing::stage<C, Go>(*data.machine, comm, data.there, of(more)...);
}
using kind = omni::detail::collective_kind;
using waits = omni::detail::run_it;
using starts = omni::detail::start_it;
auto reduce_scatter(auto& comm, tensor& x, auto&... more) { return go<kind::reduce_scatter, waits>(comm, x, more...); }
auto allgather(auto& comm, tensor& x, auto&... more) { return go<kind::allgather, waits>(comm, x, more...); }
auto reduce(auto& comm, tensor& x, auto&... more) { return go<kind::reduce, waits>(comm, x, more...); }
auto broadcast(auto& comm, tensor& x, auto&... more) { return go<kind::broadcast, waits>(comm, x, more...); }
auto ireduce_scatter(auto& comm, tensor& x, auto&... more) { return go<kind::reduce_scatter, starts>(comm, x, more...); }
auto iallgather(auto& comm, tensor& x, auto&... more) { return go<kind::allgather, starts>(comm, x, more...); }
auto ireduce(auto& comm, tensor& x, auto&... more) { return go<kind::reduce, starts>(comm, x, more...); }
auto ibroadcast(auto& comm, tensor& x, auto&... more) { return go<kind::broadcast, starts>(comm, x, more...); }

}  // namespace elsewhere

TEST_CASE("device staged: plans, run and started") {
  const std::vector<std::size_t> sizes{3000, 0, 2001};
  constexpr std::size_t n = 5001;
  threads::run(3, [&](threads& comm) {
    late_machine machine(11);
    const auto r = static_cast<std::size_t>(comm.rank()), mine = sizes[r];
    auto scatter = omni::plan_reduce_scatter(comm, n, omni::part_sizes{sizes}, omni::max{});
    auto gather = omni::plan_allgather(comm, n, omni::part_sizes{sizes});
    auto reduce = omni::plan_reduce(comm, n, omni::root{1});
    auto broadcast = omni::plan_broadcast(comm, n, omni::root{2});
    for (const bool started : {false, true}) {
      std::vector<float> in(n, static_cast<float>(r)), part(mine, 7.0F), all(n, 7.0F);
      elsewhere::tensor x{&machine, in}, p{&machine, part}, whole{&machine, all};
      const auto run = [&](auto& plan, auto&... data) {
        if (started) plan.start(data...).wait();
        else plan.run(data...);
      };
      run(scatter, x, p);
      CHECK(part == std::vector<float>(mine, 2.0F));
      run(reduce, x, whole);
      CHECK(all == std::vector<float>(n, comm.rank() == 1 ? 3.0F : 7.0F));
      run(gather, p, whole);
      CHECK(all == std::vector<float>(n, 2.0F));
      run(broadcast, x);
      CHECK(in == std::vector<float>(n, 2.0F));
      CHECK_THROWS_AS(run(gather, whole, p), omni::usage);  // the whole tensor comes last
    }
    device_buffers::drop();
  });
}
TEST_CASE("device staged: sizes, patterns, roots and parts") {
  std::uint64_t seed = 0;
  for (const int ranks : {1, 2, 3, 5})
    for (const std::size_t n : {0U, 1U, 7U, 5000U, 30001U})
      for (const auto shape : patterns::all) {
        const collective_cell c{ranks, n, shape, ++seed, static_cast<int>(seed) % ranks, seed % 2 == 0, seed % 3 != 0};
        check<float>(c, omni::sum{});
        if (n == 5000) check<omni::half>(c, omni::max{}, omni::fixed_blocks{48});
      }
}
TEST_CASE("device staged: what a rank neither gives nor gets does not cross, and a second call allocates nothing") {
  using kind = omni::detail::collective_kind;
  constexpr std::size_t n = 30000;
  threads::run(3, [&](threads& comm) {
    late_machine machine(7);
    std::vector<float> x(n, 1.0F), part(n / 3, 1.0F);
    const auto bytes = [&](const auto& call) {
      call();
      const auto before = machine.copied;
      const auto allocations = machine.allocations;
      call();
      CHECK(machine.allocations == allocations);
      return machine.copied - before;
    };
    const std::size_t all = n * sizeof(float), own = all / 3;
    const bool is_root = comm.rank() == 2;
    const omni::root root{2};
    CHECK(bytes([&] { testing::stage<kind::reduce_scatter>(machine, comm, x); }) == all + own);
    CHECK(bytes([&] { testing::stage<kind::reduce_scatter>(machine, comm, x, part); }) == all + own);
    CHECK(bytes([&] { testing::stage<kind::allgather>(machine, comm, x); }) == all + own);
    CHECK(bytes([&] { testing::stage<kind::allgather>(machine, comm, part, x); }) == all + own);
    CHECK(bytes([&] { testing::stage<kind::reduce>(machine, comm, x, root); }) == (is_root ? 2 * all : all));
    CHECK(bytes([&] { testing::stage<kind::broadcast>(machine, comm, x, root); }) == all);
    device_buffers::drop();
  });
}
TEST_CASE("device staged: calls are in the order of the caller's stream") {
  using kind = omni::detail::collective_kind;
  threads::run(2, [&](threads& comm) {
    late_machine machine(11);
    std::vector<int> x(9000, 0);
    machine.push(0, [&] { x[8000] = 1; });  // late, as all that is in a stream
    testing::stage<kind::reduce>(machine, comm, x, omni::root{1});
    testing::stage<kind::broadcast>(machine, comm, x, omni::root{1});
    CHECK(x[8000] == 2);
    device_buffers::drop();
  });
}
TEST_CASE("device staged: whatever fails on the device of one rank, no other waits, and none takes it for a result") {
  using kind = omni::detail::collective_kind;
  const testing::leaks_are_meant meant;
  const auto run = [&](const auto& call, long at, bool late) {
    std::vector<std::string> errors(3);
    threads::run(3, [&](threads& comm) {
      const testing::leaks_are_meant here;
      late_machine machine(static_cast<std::uint64_t>(at) + 1);
      if (comm.rank() == 1) {
        machine.fails_at = at;
        machine.fails_late = late;
      }
      try {
        call(machine, comm);
      } catch (const omni::cuda_error& e) {
        errors[static_cast<std::size_t>(comm.rank())] = e.name();
      } catch (const omni::error& e) {
        errors[static_cast<std::size_t>(comm.rank())] = e.what();
      }
      device_buffers::drop();
    });
    return errors;
  };
  // On rank 1: the copy to the host, an event, the copy back, an event. Before the ranks meet the others hear of it.
  const auto check_failures = [&](const auto& call, long operations, long before_meeting) {
    for (const bool late : {false, true})
      for (long at = 0; at < operations; ++at) {
        CAPTURE(at);
        CAPTURE(late);
        const auto errors = run(call, at, late);
        CHECK(errors[1].rfind("cuda", 0) == 0);
        for (const std::size_t r : {std::size_t{0}, std::size_t{2}}) CHECK((errors[r] != "") == (at < before_meeting));
      }
    const auto well = run(call, operations, false);
    for (const auto& e : well) CHECK(e == "");
  };
  check_failures(
      [](late_machine& machine, threads& comm) {
        std::vector<float> x(9000, 1.0F);
        testing::stage<kind::reduce_scatter>(machine, comm, x);
        if (comm.rank() != 1) CHECK(x[static_cast<std::size_t>(comm.rank()) * 3000] == 3);
      },
      4, 2);
  check_failures(
      [](late_machine& machine, threads& comm) {
        std::vector<float> x(9000, 1.0F), part(3000, 1.0F);
        testing::stage<kind::allgather>(machine, comm, part, x);
      },
      4, 2);
  check_failures(
      [](late_machine& machine, threads& comm) {
        std::vector<float> x(9000, 1.0F);
        testing::stage<kind::reduce>(machine, comm, x, omni::root{1});
      },
      4, 2);
  // Of an operation without an identity nothing is looked at, only sent.
  check_failures(
      [](late_machine& machine, threads& comm) {
        std::vector<float> x(9000, 1.0F);
        testing::stage<kind::reduce_scatter>(machine, comm, x, [](float a, float b) { return a + b; });
        if (comm.rank() != 1) CHECK(x[static_cast<std::size_t>(comm.rank()) * 3000] == 3);
      },
      4, 2);
  check_failures(
      [](late_machine& machine, threads& comm) {
        std::vector<float> x(9000, 1.0F);
        testing::stage<kind::broadcast>(machine, comm, x, omni::root{1});
      },
      2, 2);
  // A rank that gives nothing: the others have what they get.
  check_failures(
      [](late_machine& machine, threads& comm) {
        std::vector<float> x(9000, static_cast<float>(comm.rank()));
        testing::stage<kind::broadcast>(machine, comm, x, omni::root{2});
        if (comm.rank() == 0) CHECK(x[8999] == 2);
      },
      2, 0);
}
TEST_CASE(
    "device staged: of a device that has failed before the call all hear, also from ranks that give nothing; then nothing goes "
    "on") {
  using kind = omni::detail::collective_kind;
  const testing::leaks_are_meant meant;
  std::vector<std::string> errors(3), later(3);
  threads::run(3, [&](threads& comm) {
    const testing::leaks_are_meant here;
    const auto r = static_cast<std::size_t>(comm.rank());
    late_machine machine(5);
    const auto failed = comm.rank() == 1
                            ? std::make_exception_ptr(omni::cuda_error("cudaSomething", "cudaErrorUnknown", 999, "before"))
                            : std::exception_ptr();
    std::vector<float> x(90000, 1.0F);
    const auto call = [&] {
      omni::detail::stage_tensors<kind::broadcast, omni::detail::run_it, float>(
          comm, late_device{&machine}, late_device::stream{}, failed, std::span<const float>(x), std::span(x), omni::root{0});
    };
    try {
      call();
    } catch (const omni::error& e) {
      errors[r] = e.what();
    }
    try {
      call();
    } catch (const omni::error& e) {
      later[r] = e.what();
    }
    device_buffers::drop();
  });
  for (const auto& e : errors) CHECK(e != "");
  for (const auto& e : later) CHECK(e != "");
}
TEST_CASE("device staged: a tensor is looked at once it has come, and never on a device that has failed") {
  using kind = omni::detail::collective_kind;
  constexpr std::size_t n = 400000;
  std::size_t received = 0;
  testing::agreeing::run(4, [&](testing::agreeing& comm) {
    late_machine machine(static_cast<std::uint64_t>(comm.rank()) + 31);
    std::vector<float> empty(n, 0.0F), x(n, 1.0F);
    testing::stage<kind::reduce>(machine, comm, empty, omni::root{0});  // leaves zeros in the memory of the next call
    const auto r = testing::stage<kind::reduce>(machine, comm, x, omni::root{0});
    if (comm.rank() == 0) {
      CHECK(x == std::vector<float>(n, 4.0F));
      received = r.bytes_received;
    }
    device_buffers::drop();
  });
  CHECK(received < 2 * n * sizeof(float));  // dense, it goes by way of owners; one that seemed empty would come from all

  const testing::leaks_are_meant meant;
  const auto bytes = n * sizeof(float);
  void* const hidden = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // as the memory of a device is
  std::vector<std::string> errors(2);
  threads::run(2, [&](threads& comm) {
    const testing::leaks_are_meant here;
    const auto r = static_cast<std::size_t>(comm.rank());
    late_machine machine(7);
    std::vector<float> x(n, 1.0F);
    const auto failed = r == 1 ? std::make_exception_ptr(omni::cuda_error("cudaSomething", "cudaErrorUnknown", 999, "before"))
                               : std::exception_ptr();
    const std::span<float> there = r == 1 ? std::span(static_cast<float*>(hidden), n) : std::span(x);
    try {
      omni::detail::stage_tensors<kind::reduce_scatter, omni::detail::run_it, float>(
          comm, late_device{&machine}, late_device::stream{}, failed, std::span<const float>(there), there);
    } catch (const omni::cuda_error&) {
      errors[r] = "of the device";
    } catch (const omni::error& e) {
      errors[r] = e.what();
    }
    device_buffers::drop();
  });
  ::munmap(hidden, bytes);
  CHECK(errors[1] == "of the device");
  CHECK(errors[0].find("gave up") != std::string::npos);
}
TEST_CASE("device staged: requests, several at once, and calls of other types") {
  using kind = omni::detail::collective_kind;
  using omni::detail::start_it;
  threads::run(3, [&](threads& comm) {
    late_machine machine(static_cast<std::uint64_t>(comm.rank()) + 9);
    const auto me = static_cast<std::size_t>(comm.rank());
    std::vector<int> a(9001, 1), b(9000, 1), c(30, comm.rank()), d(3000, comm.rank());
    const std::vector<std::size_t> sizes{4000, 1, 5000};
    auto first = testing::stage<kind::reduce_scatter, start_it>(machine, comm, a, omni::part_sizes{sizes});
    auto second = testing::stage<kind::broadcast, start_it>(machine, comm, c, omni::root{1});
    auto third = testing::stage<kind::allgather, start_it>(machine, comm, d, b, omni::colocated{.packet_bytes = 2000});
    CHECK(third.wait().blocks_sent == (me == 0 ? 0 : 12));
    second.wait();
    first.wait();
    CHECK(a[me == 0 ? 3999 : me == 1 ? 4000 : 9000] == 3);
    CHECK(c[29] == 1);
    CHECK(b[2999] == 0);
    CHECK(b[8999] == 2);
    device_buffers::drop();
    // Not made of bytes that a vector would give, and by a detector of the caller's.
    const auto flags = std::make_unique<bool[]>(1000);  // NOLINT(*-avoid-c-arrays)
    flags[me] = true;
    std::span<bool> all(flags.get(), 1000);
    testing::stage<kind::reduce>(machine, comm, all, omni::root{0}, omni::lor{}, omni::scalar_detector{}, omni::colocated{});
    if (me == 0) CHECK((flags[0] && flags[1] && flags[2] && !flags[3]));
    device_buffers::drop();
  });
}
TEST_CASE("device staged: parts that do not add up, and other parts on one rank") {
  using kind = omni::detail::collective_kind;
  threads::run(2, [&](threads& comm) {
    late_machine machine(3);
    std::vector<float> x(1000, 1.0F);
    const std::vector<std::size_t> wrong{600, 600}, wrapped{~std::size_t{0} - 8, 1009},
        mine{comm.rank() == 0 ? 300U : 400U, comm.rank() == 0 ? 700U : 600U};
    CHECK_THROWS_AS(testing::stage<kind::reduce_scatter>(machine, comm, x, omni::part_sizes{wrong}), omni::usage);
    CHECK_THROWS_AS(testing::stage<kind::allgather>(machine, comm, x, omni::part_sizes{wrapped}), omni::usage);
    CHECK_THROWS_AS(testing::stage<kind::allgather>(machine, comm, x, omni::part_sizes{mine}), omni::mismatch);
    // Of a part for which there would be no room nothing is copied.
    const std::vector<std::size_t> one{100};
    std::vector<float> part(2000, 1.0F), all(100);
    CHECK_THROWS_AS(testing::stage<kind::allgather>(machine, comm, part, all, omni::part_sizes{one}), omni::usage);
    device_buffers::drop();
  });
}
