// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include "engine.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <omni/detail/call/trace.hpp>
#include <utility>

#include "buffers.hpp"
#include "progress.hpp"

namespace preload {
namespace {

using clock = std::chrono::steady_clock;
double since(clock::time_point start) { return std::chrono::duration<double>(clock::now() - start).count(); }

/// What the program's MPI_Request stands for.
struct outcome {
  int code = MPI_SUCCESS;
};
using held_outcome = std::shared_ptr<outcome>;  // MPI may let go of it before the call has ended
int query(void* extra, MPI_Status* status) {
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_ANY_SOURCE;
  status->MPI_TAG = MPI_ANY_TAG;
  return (*static_cast<held_outcome*>(extra))->code;
}
int let_go(void* extra) {
  delete static_cast<held_outcome*>(extra);
  return MPI_SUCCESS;
}
int cancel(void* /*extra*/, int /*complete*/) { return MPI_SUCCESS; }

// Beyond, they are begun as others end: all are looked at each time.
constexpr int most_running = 64;
constexpr std::size_t most_sampled_bytes = std::size_t{256} << 20U;
constexpr std::uint64_t sampled_each = 64;

}  // namespace

/// A call that the program has not waited for.
struct engine::request {
  std::shared_ptr<communicator> on;
  omni::transport::mpi transport;
  std::shared_ptr<const void> context;  // the program may free the communicator
  work what;
  aligned_buffers buffers;
  begun running{};
  MPI_Request handle = MPI_REQUEST_NULL;
  held_outcome result = std::make_shared<outcome>();
  bool failed = false;
};

/// While it lives errors on a communicator are returned.
class returned_errors {
 public:
  explicit returned_errors(MPI_Comm comm) : comm_(comm) {
    PMPI_Comm_get_errhandler(comm_, &before_);
    PMPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  returned_errors(const returned_errors&) = delete;
  returned_errors(returned_errors&&) = delete;
  returned_errors& operator=(const returned_errors&) = delete;
  returned_errors& operator=(returned_errors&&) = delete;
  ~returned_errors() {
    PMPI_Comm_set_errhandler(comm_, before_);
    PMPI_Errhandler_free(&before_);
  }

 private:
  MPI_Comm comm_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
};

/// Whether MPI finds fault with one buffer given twice.
refusals try_one_buffer_twice() {
  const returned_errors here(MPI_COMM_SELF), everywhere(MPI_COMM_WORLD);  // Open MPI blames the world
  std::array<int, 2> some{};
  const auto refuses = [&](int n) {
    return PMPI_Allreduce(some.data(), some.data(), n, MPI_INT, MPI_SUM, MPI_COMM_SELF) != MPI_SUCCESS;
  };
  const int one = 1;
  return {refuses(1), refuses(2),
          PMPI_Reduce_scatter(some.data(), some.data(), &one, MPI_INT, MPI_SUM, MPI_COMM_SELF) != MPI_SUCCESS};
}

engine& engine::get() {
  static auto& e = *new engine;  // never destroyed: MPI_Finalize may be called by the destructor of a global
  return e;
}

void engine::start() {
  static std::atomic<bool> started = false;
  if (started.exchange(true)) return;
  const within omni;
  config_ = configuration::read(progress::works());
  int level = MPI_THREAD_SINGLE;
  PMPI_Query_thread(&level);
  alone_ = level != MPI_THREAD_MULTIPLE;
  config_.many_threads = !alone_;  // ranks may have asked for different levels
  if (!config_.agree() || config_.disabled || !communicator::open()) return;
  omni::detail::traces() = false;
  arguments::of_one_buffer_twice = try_one_buffer_twice();
  if (config_.forced) topology_ = {.small_bytes = 1, .ring_bytes = 1};  // never MPI's own
  reductions_ = std::make_unique<reduction_table>();
  active_ = true;
  // So that its calls that do not wait are handled from the first on.
  try {
    communicator::of(MPI_COMM_WORLD, true, config_.forced);
  } catch (const std::exception& e) {
    refuse(MPI_COMM_WORLD, e);
  }
}

void engine::stop() {
  if (!active_.exchange(false)) return;
  drive_until([&] { return is_idle(); });
  progress::stop();
  if (config_.traced) statistics_.print(config_.least_bytes);
  communicator::close();
}

// ---- what is handled: the same on all ranks, for it follows from what is

const reduction* engine::choose(const arguments& a, bool blocking) {
  const auto leave = [&](fate why) {
    statistics_.count(why, blocking);
    return nullptr;
  };
  const auto* const how = a.count > 0 ? reductions_->find(a.type, a.op) : nullptr;
  if (how == nullptr) return leave(fate::kind);
  const auto bytes = static_cast<std::size_t>(a.count) * how->bytes;
  if (!config_.forced && static_cast<std::int64_t>(bytes) < config_.least_bytes) return leave(fate::small);
  if (!are_usable(a.in, a.out, bytes)) return leave(fate::kind);
  if (!blocking && !config_.can_progress) return leave(fate::waiting);
  return how;
}

bool engine::may_be_fine(const arguments& a) const {
  const auto* const how = a.count > 0 ? reductions_->find(a.type, a.op) : nullptr;
  return how != nullptr && are_usable(a.in, a.out, static_cast<std::size_t>(a.count) * how->bytes);
}

communicator* engine::place(const arguments& a, bool blocking) {
  communicator* on = nullptr;
  if (a.comm != MPI_COMM_NULL && a.comm != MPI_Comm{}) on = communicator::of(a.comm, blocking, config_.forced);
  if (on != nullptr && on->takes) return on;
  statistics_.count(fate::communicator, blocking);
  return nullptr;
}

// ---- calls that wait

bool engine::allreduce(const arguments& a, int& result) {
  if (!active_.load(std::memory_order_relaxed)) return false;
  const auto* const how = choose(a, true);
  try {
    if (how == nullptr) {
      // A call that MPI may refuse is perhaps made by one rank alone.
      if (communicator::any_undecided() && may_be_fine(a)) communicator::make_up(a.comm);
      return false;
    }
    auto* const on = place(a, true);
    if (on == nullptr) return false;
    const auto n = static_cast<std::size_t>(a.count);
    const bool handled = reduce(*on, {how, {}, {a.in, n, a.out, n}}, a, result);
    statistics_.count(handled ? fate::handled : fate::choice, true);
    return handled;
  } catch (const std::exception& e) {
    result = refuse(a.comm, e);
    return true;
  }
}

bool engine::reduce(communicator& on, const work& w, const arguments& a, int& result) {
  const auto bytes = w.where.in_count * w.how->bytes;
  const bool sampled = is_sampled(on, bytes);
  double dense_seconds = 0, seconds = 0;
  if (sampled) {
    static auto* const dense = next("MPI_Allreduce", &PMPI_Allreduce);
    const auto scratch = std::make_unique_for_overwrite<std::byte[]>(bytes);
    PMPI_Barrier(a.comm);
    const auto start = clock::now();
    dense(a.in, scratch.get(), a.count, a.type, a.op, a.comm);
    dense_seconds = since(start);
    PMPI_Barrier(a.comm);
  }
  if (!finish(on, w, &seconds)) return false;
  if (sampled) statistics_.add_sample(seconds, dense_seconds);
  result = MPI_SUCCESS;
  return true;
}

// False: it is MPI's.
bool engine::finish(communicator& on, const work& w, double* seconds) {
  const within omni;
  std::unique_lock lock(mutex_);
  drive_until(lock, [&] { return on.queued == 0; });
  const auto start = clock::now();
  const aligned_buffers buffers(w.where, w.how->bytes, w.how->alignment);
  auto running = w.how->begin(*on.transport, buffers.used(), w.what, topology_, true);
  running->detach();
  while (!running->done()) {
    const bool moved = running->progress();
    if (drive() || moved || running->done()) continue;
    if (alone_ && is_idle() && !running->is_limited()) {
      running->wait_for_step();
      continue;
    }
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  const auto& report = running->result();  // or throws
  if (running->handed_over()) return false;
  buffers.deliver();
  w.after();
  statistics_.add(report, w.what.kind == omni::detail::collective_kind::allreduce);  // of which the time is told
  *seconds = since(start);
  return true;
}

// Counted alike on all ranks of the communicator.
bool engine::is_sampled(communicator& on, std::size_t bytes) const {
  if (!config_.traced || bytes > most_sampled_bytes) return false;
  if (on.transport->agreed_limit().count() != 0) return false;  // the next library's call waits for ever
  const auto call = on.sampled++;
  return call < 2 || call % sampled_each == 0;
}

int engine::refuse(MPI_Comm comm, const std::exception& e) {
  static std::atomic<bool> said = false;
  if (!said.exchange(true)) std::cerr << "omni preload: " << e.what() << std::endl;
  PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
  return MPI_ERR_OTHER;
}

// ---- calls that do not

bool engine::iallreduce(const arguments& a, MPI_Request* handle, int& result) {
  if (!active_.load(std::memory_order_relaxed)) return false;
  const auto* const how = choose(a, false);
  if (how == nullptr) return false;
  if (handle == nullptr) return false;
  try {
    auto* const on = place(a, false);
    if (on == nullptr) return false;
    const auto n = static_cast<std::size_t>(a.count);
    result = start(*on, {how, {}, {a.in, n, a.out, n}}, handle);
    if (result == MPI_SUCCESS) statistics_.count(fate::handled, false);
  } catch (const std::exception& e) {
    result = refuse(a.comm, e);
  }
  return true;
}

int engine::start(communicator& on, work w, MPI_Request* handle) {
  const within omni;
  const auto* const how = w.how;
  const auto where = w.where;
  auto made = std::make_unique<request>(request{on.shared_from_this(), *on.transport, on.transport->keep_alive(), std::move(w),
                                                aligned_buffers(where, how->bytes, how->alignment)});
  auto shared = std::make_unique<held_outcome>(made->result);
  const std::lock_guard lock(mutex_);
  progress::wake();  // what may fail comes before the request
  under_way_.push_back(std::move(made));
  const int result = PMPI_Grequest_start(query, let_go, cancel, shared.get(), handle);
  if (result != MPI_SUCCESS) {
    under_way_.pop_back();
    return result;
  }
  static_cast<void>(shared.release());  // NOLINT(bugprone-unused-return-value): let_go deletes it
  under_way_.back()->handle = *handle;
  ++on.queued;
  ++requests_;
  drive();
  return result;
}

// ---- the other collectives

bool engine::run(omni::detail::collective_kind kind, MPI_Comm comm, std::size_t bytes, const std::function<void(work&)>& make,
                 MPI_Request* handle, int& result) {
  if (!active_.load(std::memory_order_relaxed)) return false;
  const bool blocking = handle == nullptr;
  bool handled = false;
  try {
    const bool wanted = bytes != 0 && (config_.forced || static_cast<std::int64_t>(bytes) >= config_.least_bytes) &&
                        (blocking || config_.can_progress);
    communicator* on = nullptr;
    if (wanted && comm != MPI_COMM_NULL && comm != MPI_Comm{}) on = communicator::of(comm, blocking, config_.forced);
    if (on != nullptr && on->takes) {
      work w;
      make(w);
      handled = true;
      w.what.kind = kind;
      double seconds = 0;
      result = MPI_SUCCESS;
      if (!blocking) result = start(*on, std::move(w), handle);
      else handled = finish(*on, w, &seconds);
    }
  } catch (const std::exception& e) {
    handled = true;
    result = refuse(comm, e);
  }
  if (bytes != 0) statistics_.count(kind, blocking, handled);
  return handled;
}

void engine::begin(request& r) {
  --r.on->queued;
  ++r.on->running;
  try {
    r.running = r.what.how->begin(r.transport, r.buffers.used(), r.what.what, topology_, false);
    r.running->detach();
  } catch (const std::exception& e) {
    std::cerr << "omni preload: " << e.what() << std::endl;
    r.failed = true;
  }
}

void engine::end(request& r) {
  --r.on->running;
  try {
    if (r.failed) throw omni::error("not begun");
    statistics_.add(r.running->result(), false);
    r.buffers.deliver();
    r.what.after();
  } catch (const std::exception& e) {
    if (!r.failed) std::cerr << "omni preload: " << e.what() << std::endl;
    r.result->code = MPI_ERR_OTHER;
  }
  r.running.reset();
}

void engine::finish(std::span<const MPI_Request> handles) {
  if (requests_.load(std::memory_order_relaxed) == 0) return;
  drive_until([&] {
    return std::none_of(under_way_.begin(), under_way_.end(),
                        [&](const auto& r) { return std::find(handles.begin(), handles.end(), r->handle) != handles.end(); });
  });
}

bool engine::drive() {
  bool moved = false;
  for (std::size_t i = 0; i < under_way_.size();) {
    auto& r = *under_way_[i];
    if (r.running == nullptr && !r.failed) {
      if (r.on->running == most_running) {
        ++i;
        continue;
      }
      begin(r);
    }
    if (!r.failed && r.running->progress()) moved = true;
    if (!r.failed && !r.running->done()) {
      ++i;
      continue;
    }
    const auto ended = std::move(under_way_[i]);
    under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
    --requests_;
    end(*ended);
    PMPI_Grequest_complete(ended->handle);
    moved = true;
  }
  return moved;
}

bool engine::drive_if_free() {
  if (requests_.load(std::memory_order_relaxed) == 0) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  const within omni;
  return drive();
}

}  // namespace preload
