// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include "progress.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <thread>

#include "engine.hpp"
#include "next.hpp"

namespace preload::progress {
namespace {

// ---- Open MPI's way

using callback = int();
using registration = int(callback*);

registration* find(const char* name) {
#if defined(OPEN_MPI)
  return reinterpret_cast<registration*>(dlsym(RTLD_DEFAULT, name));
#else
  static_cast<void>(name);
  return nullptr;
#endif
}
registration* enter() {
  static auto* const found = find("opal_progress_register");
  return found;
}
bool registered = false;

int called_back() { return depth == 0 && engine::get().drive_if_free() ? 1 : 0; }

// ---- the thread

// These are never destroyed: MPI_Finalize may be called by the destructor of a global.
std::condition_variable& bell() {
  static auto& b = *new std::condition_variable;
  return b;
}
std::thread& worker() {
  static auto& t = *new std::thread;
  return t;
}
bool stopping = false;

void pause(unsigned idle) {
  constexpr unsigned patience = 256;
  if (idle < patience) std::this_thread::yield();
  else std::this_thread::sleep_for(std::chrono::microseconds(idle < 4 * patience ? 20 : 200));
}
void work() {
  const within omni;
  auto& e = engine::get();
  std::unique_lock lock(e.mutex());
  unsigned idle = 0;
  for (;;) {
    bell().wait(lock, [&] { return stopping || !e.is_idle(); });
    if (e.is_idle()) return;
    idle = e.drive() ? 0 : idle + 1;
    lock.unlock();
    pause(idle);
    lock.lock();
  }
}

}  // namespace

bool needs_threads() { return enter() == nullptr; }

bool works() {
  if (!needs_threads()) return true;
  int level = MPI_THREAD_SINGLE;
  return PMPI_Query_thread(&level) == MPI_SUCCESS && level == MPI_THREAD_MULTIPLE;
}

void wake() {
  if (!needs_threads()) {
    if (!registered) enter()(called_back);
    registered = true;
    return;
  }
  if (!worker().joinable()) {
    // Signals are for the program's threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    worker() = std::thread(work);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  bell().notify_one();
}

void stop() {
  if (registered) {
    if (auto* const leave = find("opal_progress_unregister"); leave != nullptr) leave(called_back);
    registered = false;
  }
  if (!worker().joinable()) return;
  {
    const std::lock_guard lock(engine::get().mutex());
    stopping = true;
  }
  bell().notify_one();
  worker().join();
}

}  // namespace preload::progress
