// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#include <thrust/device_vector.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <omni/cuda/cuda.hpp>
#include <omni/detect/scalar.hpp>
#include <omni/plan.hpp>
#include <omni/transport/testing/threads.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "../support/oracle.hpp"
#include "../support/patterns.hpp"

// The device path on a device. Needs nothing but CUDA: ranks are threads, checks are counted. Leaves with 77 where there is no
// device, which ctest takes for "skipped". `--quick` is for compute-sanitizer's memcheck, `--least` for its racecheck, under
// which a kernel takes a thousand times as long.

namespace {

using omni::detail::check_cuda;
using omni::transport::threads;

enum class effort : std::uint8_t { full, quick, least };

std::mutex mutex;
int checks = 0, failures = 0;

void expect(bool good, const std::string& what) {
  const std::lock_guard lock(mutex);
  ++checks;
  if (good) return;
  if (++failures <= 50) std::printf("FAILED: %s\n", what.c_str());
}

/// Told at once: a sanitizer that does not end has shown something all the same.
void done(const char* part) {
  const std::lock_guard lock(mutex);
  std::printf("%s: %d checks so far, %d failed\n", part, checks, failures);
  std::fflush(stdout);
}

/// Device memory that begins `shift` elements past what cudaMalloc gives.
template <class T>
class device_tensor {
 public:
  explicit device_tensor(const std::vector<T>& x, std::size_t shift = 0) : n_(x.size()), shift_(shift) {
    check_cuda(cudaMalloc(&memory_, (n_ + shift) * sizeof(T) + 1), "cudaMalloc");
    put(x);
  }
  device_tensor(const device_tensor&) = delete;
  device_tensor& operator=(const device_tensor&) = delete;
  ~device_tensor() { cudaFree(memory_); }
  void put(const std::vector<T>& x) {
    check_cuda(cudaMemcpy(data(), x.data(), n_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  [[nodiscard]] std::vector<T> get() const {
    std::vector<T> x(n_);
    check_cuda(cudaMemcpy(x.data(), data(), n_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return x;
  }
  [[nodiscard]] T* data() const { return static_cast<T*>(memory_) + shift_; }
  [[nodiscard]] omni::device_span<T> span() const { return {data(), n_}; }

 private:
  void* memory_ = nullptr;
  std::size_t n_, shift_;
};

/// One launch of the kernel that compacts, and of the one that scatters, against plain loops.
template <class T>
void kernels(std::size_t n, std::size_t block, std::size_t shift, const T& null, const T& other, unsigned one_in) {
  using namespace omni::detail;
  std::vector<T> x(n, null);
  auto g = patterns::make_generator(n, static_cast<int>(block));
  for (std::size_t b = 0; b < n; b += block)
    if (g() % one_in == 0) x[b + g() % std::min(block, n - b)] = other;
  const auto where = std::to_string(sizeof(T)) + " bytes, " + std::to_string(n) + " elements, blocks of " + std::to_string(block) +
                     ", shift " + std::to_string(shift);
  device_tensor<T> in(x, shift);
  compact_job job;
  job.cut = tiles(n * sizeof(T), block * sizeof(T), reinterpret_cast<std::uintptr_t>(in.data()));
  job.in = reinterpret_cast<const std::byte*>(in.data());
  tile_null_bits(null, job.null);
  job.tile_count = static_cast<std::uint32_t>(job.cut.count());
  device_tensor<std::uint32_t> marks(std::vector<std::uint32_t>(job.tile_count * job.cut.words, 7));
  device_tensor<std::uint32_t> bases(std::vector<std::uint32_t>(job.tile_count * job.cut.words, 7)),
      count(std::vector<std::uint32_t>(1, 0));
  device_tensor<std::byte> packed(std::vector<std::byte>(job.tile_count * job.cut.tile_bytes()));
  job.marks = marks.data();
  job.bases = bases.data();
  job.count = count.data();
  for (const bool packs : {false, true}) {
    job.packed = packs ? packed.data() : nullptr;
    count.put({0});
    check_cuda(launch(job, nullptr), "compact");
    check_cuda(cudaDeviceSynchronize(), "compact");
  }
  const auto m = marks.get(), b = bases.get();
  const auto p = packed.get();
  std::vector<std::uint32_t> block_of(count.get()[0], 0);
  bool right = true;
  std::size_t found = 0;
  for (std::uint32_t t = 0; t < job.tile_count; ++t) {
    auto slot = b[t * job.cut.words];
    for (std::uint32_t i = 0; i < job.cut.tile_blocks; ++i) {
      right = right && (i % 32 != 0 || b[t * job.cut.words + i / 32] == slot);
      const auto at = std::size_t{t} * job.cut.tile_blocks + i;
      if (at >= job.cut.blocks) break;
      const auto part = std::span<const T>(x).subspan(at * block, std::min(block, n - at * block));
      const bool marked = (m[t * job.cut.words + i / 32] >> (i % 32) & 1U) != 0;
      right = right && marked == (omni::scalar_detector{}.mark(part, part.size(), null) != 0);
      if (!marked) continue;
      ++found;
      right = right && slot < block_of.size() &&
              std::memcmp(p.data() + slot * job.cut.block_bytes, part.data(), part.size_bytes()) == 0;
      if (slot < block_of.size()) block_of[slot] = static_cast<std::uint32_t>(at);
      ++slot;
    }
  }
  expect(right && found == block_of.size(), "compact: " + where);
  if (block_of.empty()) return;

  device_tensor<T> out(std::vector<T>(n, null), shift);
  device_tensor<std::uint32_t> numbers(block_of);
  scatter_job back;
  back.cut = job.cut;
  back.packed = packed.data();
  back.blocks = numbers.data();
  back.out = reinterpret_cast<std::byte*>(out.data());
  back.slots = static_cast<std::uint32_t>(block_of.size());
  check_cuda(launch(back, nullptr), "scatter");
  check_cuda(cudaDeviceSynchronize(), "scatter");
  const auto y = out.get();
  expect(std::memcmp(y.data(), x.data(), n * sizeof(T)) == 0, "scatter: " + where);
}

template <class T>
void all_kernels(effort much, const T& null, const T& other) {
  for (const std::size_t block : {1U, 3U, 25U, 32U, 64U, 100U, 256U, 1024U, 4096U, 70001U})
    for (const std::size_t n : {std::size_t{1}, block + 1, std::size_t{9001}, 33 * block, std::size_t{300007}})
      for (const std::size_t shift : {0U, 1U}) {
        if (much != effort::full && (n > 20000 || block == 70001)) continue;
        if (much == effort::least && (block % 25 != 0 || shift == 0)) continue;
        kernels<T>(n, block, shift, null, other, 3);
        if (much == effort::full) kernels<T>(n, block, shift, null, other, 1);
      }
}

/// In place, in chunks so small that there are several under way, which a call of its own makes of large tensors only.
template <class T, class Op>
void in_chunks(threads& comm, const device_tensor<T>& x, const Op& op) {
  const std::span<T> all(x.data(), x.span().size());
  omni::detail::with_device_call<T>(
      omni::detail::cuda_device{}, cudaStream_t{}, true, std::exception_ptr{}, std::span<const T>(all), all,
      [&]<class Call, class Device>(Call& call, const omni::detail::device_automatic<Device>& /*none*/) {
        constexpr std::size_t chunk_bytes = std::size_t{256} << 10U;
        return omni::detail::run_there(comm, call, omni::detail::device_owners<Device>{chunk_bytes});
      },
      op);
}

template <class T, class Op, class... Policies>
void calls(patterns::shape shape, int ranks, std::size_t n, bool in_place, const Op& op, const Policies&... policies) {
  const auto inputs = patterns::tensors<patterns::wild>(shape, n, ranks, n, oracle::null_of<Op, T>());
  const auto wanted = oracle::fold_in_rank_order(inputs, oracle::twin<Op>{});
  threads::run(ranks, [&](threads& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    // By vectors of 16 bytes, and by elements where it does not lie on one.
    const std::size_t shift = (n / 2 + static_cast<std::size_t>(ranks)) % 2;
    device_tensor<T> in(inputs[r], shift), out(inputs[(r + 1) % inputs.size()]);
    // The same on the host: the bits must be the same.
    auto host = inputs[r];
    if (in_place) omni::allreduce(comm, in.span(), op, policies...);
    else omni::allreduce(comm, in.span(), out.span(), op, policies...);
    omni::allreduce(comm, host, op, policies...);
    const auto got = in_place ? in.get() : out.get();
    const auto where = std::string(omni::detail::type_name<T>()) + " " + std::string(Op::name) + ", " + patterns::name(shape) +
                       ", " + std::to_string(ranks) + " ranks, " + std::to_string(n) + " elements";
    expect(oracle::equal(got, wanted), "call: " + where);
    expect(oracle::equal(got, host), "bits of the host's path: " + where);
    if constexpr (sizeof...(Policies) == 0) {
      device_tensor<T> cut(inputs[r], shift);
      in_chunks(comm, cut, op);
      expect(oracle::equal(cut.get(), wanted), "in chunks: " + where);
    }
    if (!in_place) expect(std::memcmp(in.get().data(), inputs[r].data(), n * sizeof(T)) == 0, "the input was changed: " + where);
  });
}
template <class T>
void all_calls(effort much) {
  std::size_t n = 1;
  for (const auto shape : patterns::all)
    for (const int ranks : {1, 2, 3}) {
      n = n % 5 == 0 ? 1000000 / sizeof(T) + n : n * 7 % 30011 + 1;
      if (much != effort::full) n = n % 20011;
      if (much == effort::least && ranks != 2) continue;
      calls<T>(shape, ranks, n, n % 2 == 0, omni::sum{});
      calls<T>(shape, ranks, n, n % 2 != 0, omni::sum{}, omni::colocated{}, omni::fixed_blocks{256, omni::packing::always});
      if (much != effort::full) continue;
      calls<T>(shape, ranks, n, n % 2 != 0, omni::min{}, omni::colocated{}, omni::fixed_blocks{100});
      calls<T>(shape, ranks, n, n % 2 == 0, omni::max{}, omni::replicated{}, omni::fixed_blocks{32});
    }
}

/// Tensors that stay on the device: folds there, in several chunks.
template <class T>
void all_folds(effort much) {
  std::size_t n = 700001;
  for (const auto shape : patterns::all)
    for (const int ranks : {2, 3}) {
      n += 4321;
      calls<T>(shape, ranks, n, n % 2 == 0, omni::sum{}, omni::fixed_blocks{n % 3 == 0 ? 100U : 256U});
      if (much != effort::full) return;
      calls<T>(shape, ranks, n, n % 2 != 0, omni::min{});
      calls<T>(shape, ranks, n, n % 2 == 0, omni::max{}, omni::fixed_blocks{32});
      calls<T>(shape, ranks, n, n % 2 == 0, omni::prod{});
      if constexpr (std::is_integral_v<T>) calls<T>(shape, ranks, n, true, omni::band{});
    }
}

__global__ void set_late(float* x, long long cycles) {
  const auto begin = clock64();
  while (clock64() - begin < cycles) {
  }
  x[7] = 1;
}

void streams() {
  threads::run(2, [](threads& comm) {
    cudaStream_t s = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreate");
    const std::size_t n = 3000000;
    device_tensor<float> x{std::vector<float>(n, 0.0F)};
    std::vector<float> host(n);
    check_cuda(cudaDeviceSynchronize(), "put");
    set_late<<<1, 1, 0, s>>>(x.data(), 50000000);  // some 30 ms
    omni::allreduce(comm, x.span(), omni::on_stream{s});
    omni::allreduce(comm, x.span(), omni::on_stream{s});  // buffers are used again, and the stream orders it
    check_cuda(cudaMemcpyAsync(host.data(), x.data(), n * sizeof(float), cudaMemcpyDeviceToHost, s), "get");
    check_cuda(cudaStreamSynchronize(s), "get");
    expect(host[7] == 4 && host[6] == 0, "streams: in order");
    auto r = omni::iallreduce(comm, x.span(), omni::on_stream{s});
    r.wait();
    check_cuda(cudaStreamSynchronize(s), "wait");
    expect(x.get()[7] == 8, "streams: a request");
    cudaStreamDestroy(s);
  });
}
void kinds_of_memory() {
  threads::run(2, [](threads& comm) {
    thrust::device_vector<int> v(5000, comm.rank() + 1), w(5000, 77);
    omni::allreduce(comm, v, w, omni::max{});
    expect(w[4999] == 2 && v[4999] == comm.rank() + 1, "thrust::device_vector");
    std::vector<int> h(5000, 1);
    omni::allreduce(comm, omni::located_span<int>(h.data(), h.size()));
    omni::allreduce(comm, omni::located_span<int>(w.data().get(), w.size()));
    expect(h[0] == 2 && w[0] == 4, "located_span");
    omni::plan p{comm, w.size(), omni::fixed_blocks{64}};
    p.run(omni::device_span<int>(w.data().get(), w.size()));
    expect(w[0] == 8, "a plan");
    bool refused = false;
    try {
      omni::allreduce(comm, omni::device_span<int>(h.data(), h.size()));
    } catch (const omni::usage&) {
      refused = true;
    }
    expect(refused, "memory of the host in a device_span");
    // A rank whose tensor is on the host, with a topology that all name.
    std::vector<int> x(5000, 1);
    thrust::device_vector<int> y(5000, 1);
    if (comm.rank() == 0) omni::allreduce(comm, x, omni::colocated{});
    else omni::allreduce(comm, y, omni::colocated{});
    expect(comm.rank() == 0 ? x[9] == 2 : y[9] == 2, "host and device ranks");
  });
}
/// The other collectives: parts of different sizes, in place and not, with a stream and without.
void family() {
  const std::vector<std::size_t> sizes{3000, 0, 7001};
  constexpr std::size_t n = 10001;
  threads::run(3, [&](threads& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    const auto first = std::accumulate(sizes.begin(), sizes.begin() + comm.rank(), std::size_t{0});
    std::vector<float> mine(n, 0.0F), sum(n, 0.0F);
    for (std::size_t i = r; i < n; i += 100) mine[i] = static_cast<float>(r + 1);
    for (std::size_t k = 0; k < 3; ++k)
      for (std::size_t i = k; i < n; i += 100) sum[i] = static_cast<float>(k + 1);
    const auto part_of = [&](const std::vector<float>& x) {
      const auto at = x.begin() + static_cast<std::ptrdiff_t>(first);
      return std::vector<float>(at, at + static_cast<std::ptrdiff_t>(sizes[r]));
    };
    cudaStream_t s = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreate");
    const omni::part_sizes parts{sizes};
    const omni::root root{2};
    {
      const device_tensor<float> in(mine), out(std::vector<float>(sizes[r], 7.0F));
      check_cuda(cudaDeviceSynchronize(), "put");
      omni::reduce_scatter(comm, in.span(), out.span(), parts);
      expect(out.get() == part_of(sum) && in.get() == mine, "reduce_scatter");
      omni::reduce_scatter<omni::colocated>(comm, in.span(), parts, omni::on_stream{s});
      expect(part_of(in.get()) == part_of(sum), "reduce_scatter, in place");
    }
    {
      const device_tensor<float> part(part_of(sum)), all(std::vector<float>(n, 7.0F));
      check_cuda(cudaDeviceSynchronize(), "put");
      omni::allgather(comm, part.span(), all.span(), parts, omni::on_stream{s});
      expect(all.get() == sum, "allgather");
    }
    {
      const device_tensor<float> in(mine), out(std::vector<float>(comm.rank() == 2 ? n : 0));
      omni::reduce(comm, in.span(), out.span(), root, omni::sum{});
      expect(comm.rank() != 2 || out.get() == sum, "reduce");
      omni::reduce(comm, in.span(), root);
      expect(in.get() == (comm.rank() == 2 ? sum : mine), "reduce, in place");
    }
    {
      const device_tensor<float> in(mine), out(std::vector<float>(sizes[r], 7.0F)), told(comm.rank() == 2 ? sum : mine);
      check_cuda(cudaDeviceSynchronize(), "put");
      auto scatter = omni::plan_reduce_scatter(comm, n, parts);
      auto broadcast = omni::plan_broadcast(comm, n, root);
      scatter.run(in.span(), out.span());
      expect(out.get() == part_of(sum), "a plan of reduce_scatter");
      broadcast.start(told.span()).wait();
      expect(told.get() == sum, "a plan of broadcast, started");
    }
    thrust::device_vector<float> x(n, static_cast<float>(r));
    auto request = omni::ibroadcast(comm, x, root);
    request.wait();
    expect(x[0] == 2 && x[n - 1] == 2, "broadcast");
    cudaStreamDestroy(s);
  });
}
void names_of_errors() {
  bool named = false;
  try {
    check_cuda(cudaErrorMemoryAllocation, "a test");
  } catch (const omni::cuda_error& e) {
    named = e.name() == "cudaErrorMemoryAllocation";
  }
  expect(named, "cuda_error has the name");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string asked = argc > 1 ? argv[1] : "";
  const auto much = asked == "--quick" ? effort::quick : asked == "--least" ? effort::least : effort::full;
  int devices = 0;
  if (const auto code = cudaGetDeviceCount(&devices); code != cudaSuccess || devices == 0) {
    std::printf("no device: %s\n", cudaGetErrorString(code));
    return 77;
  }
  try {
    all_kernels<std::uint8_t>(much, 0, 1);
    all_kernels<std::int16_t>(much, 0x0100, 0x0101);
    all_kernels<float>(much, 0.0F, -0.0F);
    all_kernels<double>(much, 1.0, 1.0 + 0x1p-52);
    done("kernels");
    // Types beside each other: the host, which computes what is wanted, takes far longer than the device.
    const auto all_types = [much]<class... T>() {
      std::vector<std::thread> all;
      const auto begin = [&](auto f) {
        all.emplace_back([f] {
          try {
            f();
          } catch (const std::exception& e) {
            expect(false, e.what());
          }
        });
      };
      (begin([much] { all_calls<T>(much); }), ...);
      (begin([much] { all_folds<T>(much); }), ...);
      for (auto& t : all) t.join();
      done("calls");
    };
    if (much == effort::least) {
      all_folds<float>(much);
      done("fold and expand");
    }
#ifdef OMNI_TEST_FEW
    all_types.operator()<float, omni::half, std::int64_t>();
#else
    all_types.operator()<float, double, omni::half, omni::bfloat16, std::int32_t, std::int64_t>();
#endif
    streams();
    kinds_of_memory();
    family();
    names_of_errors();
    omni::release_device_buffers();
  } catch (const std::exception& e) {
    expect(false, e.what());
  }
  std::printf("%d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
