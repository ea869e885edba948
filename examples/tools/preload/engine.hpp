// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "communicator.hpp"
#include "configuration.hpp"
#include "next.hpp"
#include "reductions.hpp"
#include "statistics.hpp"

namespace preload {

/// What MPI refuses: an allreduce of one element, and of more; a reduce_scatter.
struct refusals {
  bool one = true, more = true, scattered = true;
};

/// The program's arguments.
struct arguments {
  /// One buffer twice is wrong. If MPI says so, it is to; else it takes it for MPI_IN_PLACE, and so must this: other ranks may do
  /// it right. (Open MPI says it of more than one element.)
  inline static refusals of_one_buffer_twice{};

  arguments(const void* send, void* receive, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c)
      : in(send), out(receive), count(n), type(t), op(o), comm(c) {
    if (send == MPI_IN_PLACE) in = receive;
    else if (send == receive && (n == 1 ? of_one_buffer_twice.one : of_one_buffer_twice.more)) in = nullptr;
  }

  const void* in;  ///< the output where MPI_IN_PLACE was said
  void* out;
  int count;
  MPI_Datatype type;
  MPI_Op op;
  MPI_Comm comm;
};

/// A call for omni.
struct work {
  const reduction* how = nullptr;
  roles what;
  memory where{};
  std::function<void()> after = [] {};  ///< when it has succeeded, and the result is where the call has its output
};

/// Runs what omni handles. All steps of omni, of whatever thread, are made under one mutex: its operations are driven by whoever is
/// in MPI, and contexts of communicators are not locked by themselves.
class engine {
 public:
  static engine& get();

  /// After MPI_Init: agrees with the other ranks on what is handled. Collective over MPI_COMM_WORLD.
  void start();
  /// Before MPI_Finalize: ends what is under way, and prints. Collective over MPI_COMM_WORLD.
  void stop();

  /// Reduces, if the call is one for omni; the result is what MPI_Allreduce returns. False: nothing was done.
  bool allreduce(const arguments& a, int& result);
  bool iallreduce(const arguments& a, MPI_Request* request, int& result);
  /// The same for other collectives, made ready by `make`, of so many bytes in all, which is the same on all ranks. The arguments
  /// have been looked at: what MPI would refuse does not come here. `request`: nullptr for calls that wait.
  bool run(omni::detail::collective_kind kind, MPI_Comm comm, std::size_t bytes, const std::function<void(work&)>& make,
           MPI_Request* request, int& result);
  [[nodiscard]] const reduction* find(MPI_Datatype type, MPI_Op op) const { return reductions_->find(type, op); }

  /// Waits for those of the requests that are of omni's making.
  void finish(std::span<const MPI_Request> handles);

  [[nodiscard]] std::mutex& mutex() { return mutex_; }
  /// Between MPI_Init and MPI_Finalize.
  [[nodiscard]] bool is_active() const { return active_; }
  /// Whether on some rank two threads may be in MPI.
  [[nodiscard]] bool has_many_threads() const { return config_.many_threads; }
  /// With the mutex: whether nothing is under way; one step of all that is.
  [[nodiscard]] bool is_idle() const { return under_way_.empty(); }
  bool drive();
  /// The same, from inside MPI.
  bool drive_if_free();
  /// Drives until `done()`, which is asked with the mutex held.
  template <class F>
  void drive_until(const F& done) {
    const within omni;
    std::unique_lock lock(mutex_);
    drive_until(lock, done);
  }

 private:
  struct request;

  [[nodiscard]] const reduction* choose(const arguments& a, bool blocking);
  [[nodiscard]] bool may_be_fine(const arguments& a) const;
  [[nodiscard]] communicator* place(const arguments& a, bool blocking);
  bool finish(communicator& on, const work& w, double* seconds);
  int start(communicator& on, work w, MPI_Request* handle);
  bool reduce(communicator& on, const work& w, const arguments& a, int& result);
  [[nodiscard]] bool is_sampled(communicator& on, std::size_t bytes) const;
  void begin(request& r);
  void end(request& r);
  static int refuse(MPI_Comm comm, const std::exception& e);

  template <class F>
  void drive_until(std::unique_lock<std::mutex>& lock, const F& done) {
    while (!done()) {
      if (drive()) continue;
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }

  std::atomic<bool> active_ = false;
  bool alone_ = true;  // no two threads of this rank are in MPI
  configuration config_;
  omni::automatic topology_;
  std::unique_ptr<reduction_table> reductions_;
  statistics statistics_;

  std::mutex mutex_;  // of what follows, of communicators, and of omni
  std::deque<std::unique_ptr<request>> under_way_;
  std::atomic<int> requests_ = 0;
};

}  // namespace preload
