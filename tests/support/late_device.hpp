// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <new>
#include <numeric>
#include <omni/cuda/device.hpp>
#include <omni/cuda/error.hpp>
#include <random>
#include <utility>
#include <vector>

// A device in software, for what is done on one: kernels run thread by thread, tiles in any order, and nothing that was put into a
// stream happens before somebody looks; then anything may happen next that streams and events allow.

namespace testing {

/// Runs the steps of omni/cuda/compact.hpp for one tile as its 256 threads would.
template <unsigned Width>
void compact_tile(const omni::detail::compact_job& job, std::uint32_t tile) {
  using namespace omni::detail;
  std::vector<compact_thread<Width>> all(tiles::threads);
  compact_shared s;
  std::memset(&s, 0xee, sizeof(s));  // shared memory begins as anything
  std::fill_n(s.marks, job.cut.words, 0U);
  const auto vectors = job.cut.vectors();
  const auto look = [&](std::uint32_t first) {
    for (std::uint32_t t = 0; t < tiles::threads; ++t) fetch<Width>(job, tile, first, t, all[t]);
  };
  for (std::uint32_t first = 0; first < vectors; first += tiles::most_vectors) {
    look(first);
    for (std::uint32_t k = 0; k < tiles::vectors_of_thread; ++k)
      for (std::uint32_t warp = 0; warp < tiles::threads; warp += 32) {
        std::uint32_t found = 0;
        for (std::uint32_t lane = 0; lane < 32; ++lane) found |= (all[warp + lane].differs >> k & 1U) << lane;
        for (std::uint32_t lane = 0; lane < 32; ++lane)
          note(job.cut, first + warp + lane + k * tiles::threads, lane, found,
               [&](std::uint32_t word, std::uint32_t bit) { s.marks[word] |= bit; });
      }
  }
  for (std::uint32_t t = tiles::threads; t-- != 0;)
    count_marks(job, tile, t, s, [&](std::uint32_t* counter, std::uint32_t n) { return std::exchange(*counter, *counter + n); });
  for (std::uint32_t t = tiles::threads; t-- != 0;) tell_bases(job, tile, t, s);
  if (job.packed == nullptr || s.before[job.cut.words] == 0) return;
  for (std::uint32_t first = 0; first < vectors; first += tiles::most_vectors) {
    if (job.cut.in_rounds()) look(first);
    for (std::uint32_t t = 0; t < tiles::threads; ++t) put<Width>(job, first, t, s, all[t]);
  }
}

/// The same of omni/cuda/pack_tile.hpp.
template <unsigned Element>
void pack_tile(const omni::detail::pack_job& job, std::uint32_t tile) {
  using namespace omni::detail;
  std::vector<compact_thread<16>> all(tiles::threads);
  pack_shared s;
  std::memset(&s, 0xee, sizeof(s));  // shared memory begins as anything
  std::fill_n(s.marks, job.cut.words, 0U);
  // In one order and in the other: no step may need what another thread does in it.
  auto all_threads = [up = tile % 2 != 0](const auto& step) mutable {
    up = !up;
    for (std::uint32_t t = 0; t < tiles::threads; ++t) step(up ? t : tiles::threads - 1 - t);
  };
  all_threads([&](std::uint32_t t) {
    fetch<16>(job, tile, 0, t, all[t]);
    tell_elements<Element>(job, t, s, all[t]);
  });
  all_threads([&](std::uint32_t t) { count_elements(t, s); });
  all_threads([&](std::uint32_t t) { s.sums.sum_groups(t); });
  all_threads([&](std::uint32_t t) { place_elements(t, s); });
  all_threads([&](std::uint32_t t) {
    measure_blocks<Element>(job, tile, t, s, [&](std::uint32_t word, std::uint32_t bit) { s.marks[word] |= bit; });
  });
  all_threads([&](std::uint32_t t) { s.sums.sum_groups(t); });
  all_threads([&](std::uint32_t t) {
    place_blocks(job, t, s, [&](std::uint32_t* counter, std::uint32_t n) { return std::exchange(*counter, *counter + n); });
  });
  all_threads([&](std::uint32_t t) {
    put_headers<Element>(job, tile, t, s);
    put_elements<Element>(job, tile, t, s, all[t]);
  });
}

/// Calls f(integral_constant) with the width.
template <class F>
void with_width(unsigned width, const F& f) {
  switch (width) {
    case 16:
      return f(std::integral_constant<unsigned, 16>());
    case 8:
      return f(std::integral_constant<unsigned, 8>());
    case 4:
      return f(std::integral_constant<unsigned, 4>());
    case 2:
      return f(std::integral_constant<unsigned, 2>());
    default:
      return f(std::integral_constant<unsigned, 1>());
  }
}

template <class Generator>
void run_compact(const omni::detail::compact_job& job, Generator& g) {
  std::vector<std::uint32_t> order(job.tile_count);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), g);
  with_width(job.cut.width, [&](auto width) {
    for (const auto tile : order) compact_tile<width()>(job, tile);
  });
}
template <class Generator>
void run_pack(const omni::detail::pack_job& job, Generator& g) {
  std::vector<std::uint32_t> order(job.tile_count);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), g);
  with_width(job.element, [&](auto element) {
    for (const auto tile : order) pack_tile<element()>(job, tile);
  });
}
inline void run_scatter(const omni::detail::scatter_job& job) {
  const auto blocks = (job.slots + job.cut.tile_blocks - 1) / job.cut.tile_blocks * job.pieces();
  with_width(job.cut.width, [&](auto width) {
    for (std::uint32_t b = blocks; b-- != 0;)
      for (std::uint32_t t = 0; t < omni::detail::tiles::threads; ++t) omni::detail::scatter<width()>(job, b, t);
  });
}
/// Runs the steps of omni/cuda/slot_places.hpp for each tile of slots; `last(piece, s)` runs those that follow the places.
template <class Shared, unsigned Vectors, class Last>
void run_union(const omni::detail::union_tiles<Vectors>& job, const Last& last) {
  using namespace omni::detail;
  for (std::uint32_t b = job.pieces(); b-- != 0;) {
    const union_piece piece(job, b);
    if (piece.slots == 0) continue;
    Shared s;
    std::memset(static_cast<void*>(&s), 0xee, sizeof(s));  // shared memory begins as anything
    union_shared<Vectors>& places = s;
    const auto all_threads = [](const auto& step) {
      for (std::uint32_t t = tiles::threads; t-- != 0;) step(t);
    };
    all_threads([&](std::uint32_t t) { begin_places(piece, t, places); });
    for (auto stride = job.united.mark_words; stride > most_stride;) {
      stride = shorter(stride);
      const auto from = s.first;
      all_threads([&](std::uint32_t t) {
        seek_places(job, piece, t, from, stride, [&](std::uint32_t word) { s.first = std::max(s.first, word); });
      });
    }
    all_threads([&](std::uint32_t t) { note_places(job, piece, t, places); });
    last(piece, s);
  }
}
template <class T, class Op>
void run_fold(const omni::detail::fold_job& job) {
  using namespace omni::detail;
  with_width(job.cut.width, [&](auto width) {
    if constexpr (width() >= sizeof(T))
      run_union<fold_shared>(job, [&](const auto& piece, auto& s) {
        using thread = fold_thread<width(), T>;
        for (std::uint32_t round = 0; round < fold_job::vectors; round += thread::vectors) {
          std::vector<thread> threads(tiles::threads, thread{});
          for (std::uint32_t first = 0; first < job.ranks; first += job.ranks_at_once) {
            if (round == 0 || job.ranks_at_once < job.ranks) {
              std::memset(static_cast<void*>(s.found), 0xee, sizeof(s.found));
              for (std::uint32_t t = tiles::threads; t-- != 0;) find_contributions(job, piece, t, first, s);
            }
            for (std::uint32_t t = 0; t < tiles::threads; ++t) fold<Op>(job, piece, t, round, first, s, threads[t]);
          }
          for (std::uint32_t t = 0; t < tiles::threads; ++t) put<Op>(job, piece, t, round, threads[t]);
        }
      });
  });
}
inline void run_expand(const omni::detail::expand_job& job) {
  using namespace omni::detail;
  with_width(job.cut.width, [&](auto width) {
    run_union<union_shared<expand_job::vectors>>(job, [&](const auto& piece, const auto& s) {
      for (std::uint32_t t = 0; t < tiles::threads; ++t) {
        expand_thread<width()> mine;
        fetch<width()>(job, piece, t, mine);
        expand<width()>(job, piece, t, s, mine);
      }
    });
  });
}
inline void run_fill(const omni::detail::fill_job& job) {
  with_width(job.width, [&](auto width) {
    for (std::uint64_t t = 0; t < 512; ++t) omni::detail::fill<width()>(job.out, job.bytes, job.null, t, 512);
  });
}

/// Streams, events and memory of a device. One thread uses it.
class late_machine {
 public:
  explicit late_machine(std::uint64_t seed = 1) : reaches(seed % 2 == 0), g_(seed) {}

  bool reaches = false;  ///< the memory of others, for kernels to read
  int entered = 0;
  int allocations = 0;        ///< so far, of either kind
  std::size_t allocated = 0;  ///< bytes
  std::size_t copied = 0;     ///< bytes
  int folds = 0;              ///< kernels
  int packs = 0;              ///< likewise
  long operations = 0;        ///< put into streams so far
  long fails_at = -1;         ///< number of the operation that fails
  bool fails_late = false;    ///< not when it is put into the stream, but when somebody asks

  std::size_t make_stream() {
    streams_.emplace_back();
    return streams_.size() - 1;
  }
  std::size_t make_event() {
    events_.push_back({});
    return events_.size() - 1;
  }
  void push(std::size_t stream, std::function<void()> work) {
    if (operations++ == fails_at) {
      if (!fails_late) throw omni::cuda_error("cudaSomething", "cudaErrorUnknown", 999, "it was to fail");
      work = [this] { failed_ = true; };
    }
    streams_[stream].push_back({std::move(work), none, 0});
  }
  void record(std::size_t event, std::size_t stream) {
    const auto version = ++events_[event].recorded;
    push(stream, [this, event, version] { events_[event].reached = std::max(events_[event].reached, version); });
  }
  void wait(std::size_t stream, std::size_t event) { streams_[stream].push_back({nullptr, event, events_[event].recorded}); }
  bool reached(std::size_t event) {
    for (auto n = g_() % 4; n != 0; --n) step();
    expect_well();
    return events_[event].reached >= events_[event].recorded;
  }
  void synchronize(std::size_t event) {
    while (events_[event].reached < events_[event].recorded)
      if (!step()) {
        expect_well();
        throw omni::error("a stream waits for ever");
      }
    expect_well();
  }
  void drain(std::size_t stream) noexcept {
    while (stream < streams_.size() && !streams_[stream].empty() && step()) {
    }
  }
  std::mt19937_64& random() { return g_; }
  void expect_entered() const {
    if (entered == 0) throw omni::error("the device is not this thread's");
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};
  struct task {
    std::function<void()> work;
    std::size_t event;
    std::uint64_t version;
  };
  struct event_state {
    std::uint64_t recorded = 0, reached = 0;
  };

  [[nodiscard]] bool blocked(const task& t) const { return t.event != none && events_[t.event].reached < t.version; }
  // The next task of some stream that may go on.
  bool step() {
    const auto n = streams_.size(), from = static_cast<std::size_t>(g_() % n);
    for (std::size_t i = 0; i < n; ++i) {
      auto& s = streams_[(from + i) % n];
      if (s.empty() || blocked(s.front())) continue;
      const auto t = std::move(s.front());
      s.pop_front();
      if (t.work && !failed_) t.work();
      return true;
    }
    return false;
  }
  void expect_well() const {
    if (failed_) throw omni::cuda_error("cudaEventQuery", "cudaErrorLaunchFailure", 719, "it was to fail");
  }

  std::mt19937_64 g_;
  std::deque<std::deque<task>> streams_{1};  // the first is the caller's
  std::deque<event_state> events_;
  bool failed_ = false;
};

/// Its handle: what omni::detail::accelerator asks for.
struct late_device {
  enum class stream : std::size_t {};
  enum class event : std::size_t {};
  late_machine* machine = nullptr;

  friend bool operator==(const late_device&, const late_device&) = default;
  template <class Handle>
  static std::size_t number(Handle h) {
    return static_cast<std::size_t>(h);
  }

  void* allocate(std::size_t n) {
    machine->expect_entered();
    ++machine->allocations;
    machine->allocated += n;
    void* const p = ::operator new (n, std::align_val_t{256});
    std::memset(p, 0xcd, n);
    return p;
  }
  void* allocate_pinned(std::size_t n) { return allocate(n); }
  static void release(void* p) noexcept { ::operator delete (p, std::align_val_t{256}); }
  static void release_pinned(void* p) noexcept { release(p); }
  stream make_stream() {
    machine->expect_entered();
    return stream{machine->make_stream()};
  }
  event make_event() { return event{machine->make_event()}; }
  static void destroy(stream /*s*/) noexcept {}
  static void destroy(event /*e*/) noexcept {}
  [[nodiscard]] bool reach_others() const {
    machine->expect_entered();
    return machine->reaches;
  }
  void copy(stream s, void* to, const void* from, std::size_t n) {
    machine->copied += n;
    machine->push(number(s), [=] { std::memcpy(to, from, n); });
  }
  void clear(stream s, void* p, std::size_t n) {
    machine->push(number(s), [=] { std::memset(p, 0, n); });
  }
  void record(event e, stream s) { machine->record(number(e), number(s)); }
  void wait(stream s, event e) { machine->wait(number(s), number(e)); }
  bool reached(event e) { return machine->reached(number(e)); }
  void synchronize(event e) { machine->synchronize(number(e)); }
  void drain(stream s) noexcept { machine->drain(number(s)); }
  void compact(stream s, const omni::detail::compact_job& job) {
    machine->expect_entered();
    machine->push(number(s), [=, m = machine] { run_compact(job, m->random()); });
  }
  void pack(stream s, const omni::detail::pack_job& job) {
    machine->expect_entered();
    ++machine->packs;
    machine->push(number(s), [=, m = machine] { run_pack(job, m->random()); });
  }
  void scatter(stream s, const omni::detail::scatter_job& job) {
    machine->expect_entered();
    machine->push(number(s), [=] { run_scatter(job); });
  }
  template <class T, class Op>
  void fold(stream s, const omni::detail::fold_job& job) {
    machine->expect_entered();
    ++machine->folds;
    machine->push(number(s), [=] { run_fold<T, Op>(job); });
  }
  void expand(stream s, const omni::detail::expand_job& job) {
    machine->expect_entered();
    machine->push(number(s), [=] { run_expand(job); });
  }
  void fill(stream s, const omni::detail::fill_job& job) {
    machine->expect_entered();
    machine->push(number(s), [=] { run_fill(job); });
  }
  /// This thread's current device, so to say: kernels and memory want it.
  class entered {
   public:
    explicit entered(late_machine* m) : machine_(m) { ++machine_->entered; }
    entered(const entered&) = delete;
    entered& operator=(const entered&) = delete;
    ~entered() { --machine_->entered; }

   private:
    late_machine* machine_;
  };
  [[nodiscard]] entered enter() const { return entered(machine); }
};
static_assert(omni::detail::accelerator<late_device>);

}  // namespace testing
