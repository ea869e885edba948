// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../allreduce.hpp"
#include "../detail/run/there.hpp"
#include "../engines.hpp"
#include "device_call.hpp"
#include "device_span.hpp"
#include "runtime.hpp"

// omni::allreduce and omni::iallreduce on tensors in device memory. Compiled by nvcc.

namespace omni {
namespace detail {

/// What an element of CUDA's own types is to the library.
template <class T>
using element_of_device =
    std::conditional_t<std::is_same_v<T, __half>, half, std::conditional_t<std::is_same_v<T, __nv_bfloat16>, bfloat16, T>>;

/// The device that a pointer is of; -1 if it is memory of the host.
inline int device_of(const void* p) {
  cudaPointerAttributes a{};
  check_cuda(cudaPointerGetAttributes(&a, p), "cudaPointerGetAttributes");
  return a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged ? a.device : -1;
}
/// That of the tensors of a call, or of this thread if they are empty.
template <class T>
int device_of(device_span<const T> in, device_span<T> out) {
  int device = -1;
  const auto look = [&](const void* p, std::size_t n) {
    if (n == 0) return;
    const int there = device_of(p);
    if (there < 0) throw usage("omni: a device_span of memory that is not the device's; see located_span");
    if (device >= 0 && device != there) throw usage("omni: input and output are on different devices");
    device = there;
  };
  look(in.data(), in.size());
  look(out.data(), out.size());
  if (device < 0) check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

template <class A>
inline constexpr bool is_stream = std::is_same_v<std::remove_cvref_t<A>, on_stream>;

// The stream is taken out of the arguments; the others are sorted as on the host.
template <class A>
auto unless_stream(const A& a) {
  if constexpr (is_stream<A>) return std::tuple<>();
  else return std::tuple<const A&>(a);
}
template <class... A>
cudaStream_t stream_among(const A&... all) {
  cudaStream_t s = nullptr;  // the default stream, as the program is compiled
  [[maybe_unused]] const auto look = [&]([[maybe_unused]] const auto& a) {
    if constexpr (is_stream<decltype(a)>) s = a.stream;
  };
  (look(all), ...);
  return s;
}

/// A stream that is not the default one belongs to a device.
inline void expect_stream_of(const cuda_device& device, cudaStream_t stream) {
#if CUDART_VERSION >= 12080
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return;
  int number = 0;
  check_cuda(cudaStreamGetDevice(stream, &number), "cudaStreamGetDevice");
  if (number != device.number)
    throw usage("omni: the tensor is on device " + std::to_string(device.number) + ", the stream on device " +
                std::to_string(number));
#else
  static_cast<void>(device);
  static_cast<void>(stream);
#endif
}

/// Where the tensors of a call are, and in which order it comes there.
struct device_place {
  cuda_device device;
  cudaStream_t stream = nullptr;
  std::exception_ptr failed;  // of work before the call, say: the others have called and will wait

  template <class T, class... More>
  static device_place of(device_span<const T> in, device_span<T> out, const More&... more) {
    static_assert((std::size_t{0} + ... + (is_stream<More> ? 1U : 0U)) <= 1, "omni: two streams were given");
    device_place made;
    if (in.size() + out.size() != 0) made.stream = stream_among(more...);  // else any stream will do
    try {
      made.device.number = device_of(in, out);
      expect_stream_of(made.device, made.stream);
    } catch (const cuda_error&) {
      made.failed = std::current_exception();
    }
    return made;
  }
};

/// Runs f(transport, call, topology) on the ranks that have tensors: on a cluster the workers fold among themselves.
template <class Comm, class F>
auto on_device_ranks(Comm& comm, const F& f) {
  decltype(auto) transport = transport_of(comm);
  if constexpr (requires { transport.servers(); }) return f(transport.among_workers());
  else return f(std::forward<decltype(transport)>(transport));
}

template <class... Policies, class Comm, class T, class F, class... More>
auto on_device_memory(const device_place& at, Comm& comm, device_span<const T> in, device_span<T> out, const F& f,
                      const More&... more) {
  using E = element_of_device<T>;
  const std::span<const E> from(reinterpret_cast<const E*>(in.data()), in.size());
  const std::span<E> to(reinterpret_cast<E*>(out.data()), out.size());
  return on_device_ranks(comm, [&](auto&& transport) {
    return std::apply(
        [&](const auto&... choices) {
          return with_device_call<E>(
              at.device, at.stream, (!is_stream<More> && ...), at.failed, from, to,
              [&](auto& call, const auto& topology) { return f(std::forward<decltype(transport)>(transport), call, topology); },
              Policies{}..., choices...);
        },
        std::tuple_cat(unless_stream(more)...));
  });
}

/// Tells `in place` from `out of place`, and goes on with f(input, output, the other arguments...).
template <class F, class Data>
auto parse_device(const F& f, Data& data) {
  const auto s = as_device_span(data);
  using T = typename decltype(s)::element_type;
  static_assert(!std::is_const_v<T>, "omni: reducing in place writes to the data, which is const; give an output as well");
  return f(device_span<const T>(s), s);
}
template <class F, class Data, class Next, class... More>
auto parse_device(const F& f, Data& data, Next& next, More&... more) {
  const auto s = as_device_span(data);
  if constexpr (on_device<Next>) {
    const auto out = as_device_span(next);
    using T = typename decltype(out)::element_type;
    static_assert(!std::is_const_v<T>, "omni: the output is const");
    static_assert(std::is_same_v<std::remove_const_t<typename decltype(s)::element_type>, T>,
                  "omni: input and output have different element types");
    return f(device_span<const T>(s), out, more...);
  } else {
    using T = typename decltype(s)::element_type;
    static_assert(!std::is_const_v<T>, "omni: reducing in place writes to the data, which is const; give an output as well");
    return f(device_span<const T>(s), s, next, more...);
  }
}
/// An allreduce, by f(transport, call, topology).
template <class... Policies, class Comm, class F, class Data, class... More>
auto reduce_on_device(Comm& comm, const F& f, Data& data, More&... more) {
  return parse_device(
      [&](auto in, auto out, const auto&... rest) {
        return on_device_memory<Policies...>(device_place::of(in, out, rest...), comm, in, out, f, rest...);
      },
      data, more...);
}

}  // namespace detail

/// Reduces a tensor in device memory: an omni::device_span, or a thrust::device_vector. Other arguments, collectiveness, results
/// and errors are those of the call on the host; `cuda_error` where CUDA fails, of which the other ranks hear. Goes by automatic,
/// colocated or replicated, with blocks of equal size; all ranks have their tensors on devices, or all name the same one of the
/// latter two.
///
/// Null blocks are found and left out on the device. By automatic, where MPI takes device memory on all ranks or ranks are threads,
/// the others go from device to device and are folded there: (N-1)/N (d + u) S bytes each way per rank, up to 4 (N-1) messages for
/// each chunk of 2 to 32 MiB (of 64 MiB where ranks are threads, and no blocks are sent). Else they cross to the host, where ranks
/// exchange and fold them as there, and the union crosses back; on that way blocks may travel packed (fixed_blocks::pack). The bits
/// are those of the call on the host.
///
/// With omni::on_stream{s} the input is read after what is in s, and the output may be read by what is put into s after the call.
/// Without, the input is read after what is in the default stream, and the output has been written when the call returns.
template <class... Policies, class Comm, class Data, class... More>
requires detail::on_device<std::remove_reference_t<Data>> report allreduce(Comm&& comm, Data&& data, More&&... more) {
  return detail::reduce_on_device<Policies...>(comm, detail::run_it{}, data, more...);
}

/// The same without waiting: the tensors belong to the operation until the request is done. With omni::on_stream{s} the output may
/// be read by what is put into s after wait() or a test() that was true.
template <class... Policies, class Comm, class Data, class... More>
requires detail::on_device<std::remove_reference_t<Data>>
[[nodiscard]] request iallreduce(Comm&& comm, Data&& data, More&&... more) {
  static_assert(detail::outlives_request<Comm&&>,
                "omni: the request would outlive the transport, which is a temporary; give it a name");
  return detail::reduce_on_device<Policies...>(comm, detail::start_it{}, data, more...);
}

/// In place, wherever the tensor lies: CUDA is asked. All ranks must find the same.
template <class... Policies, class Comm, class Data, class... More>
requires detail::is_located<std::remove_cvref_t<Data>> report allreduce(Comm&& comm, Data&& data, More&&... more) {
  using T = std::remove_pointer_t<decltype(data.pointer)>;
  const device_span<T> there(data.pointer, data.length);
  detail::device_place at;
  bool is_device = false;
  try {
    is_device = data.length != 0 && detail::device_of(data.pointer) >= 0;
    // The host's memory may still be written by what is in the stream.
    if (data.length != 0 && !is_device)
      detail::check_cuda(cudaStreamSynchronize(detail::stream_among(more...)), "cudaStreamSynchronize");
  } catch (const cuda_error&) {
    at.failed = std::current_exception();  // thrown in the call, so that the other ranks hear of it
  }
  if (is_device) return allreduce<Policies...>(comm, there, more...);
  if (at.failed)
    return detail::on_device_memory<Policies...>(at, comm, device_span<const T>(there), there, detail::run_it{}, more...);
  return std::apply(
      [&](const auto&... choices) { return allreduce<Policies...>(comm, std::span(data.pointer, data.length), choices...); },
      std::tuple_cat(detail::unless_stream(more)...));
}

/// Gives back the device's and the pinned memory that this thread keeps for its next calls.
inline void release_device_buffers() { detail::borrowed_buffers<detail::cuda_device>::drop(); }

}  // namespace omni
