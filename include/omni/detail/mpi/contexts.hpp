// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "../../error.hpp"
#include "check.hpp"
#include "context.hpp"
#include "native.hpp"

namespace omni::detail {

/// All communicators that omni has been called on, and their contexts: found by an attribute of the communicator, freed with it,
/// and what is left at MPI_Finalize then.
class mpi_contexts {
 public:
  /// The context of a communicator, made at the first call. Collective then.
  static mpi_context& of(MPI_Comm user) {
    // Most calls are on the communicator of the call before: MPI need not be asked for it.
    struct last_call {
      MPI_Comm comm;
      mpi_context* context;
      std::uint64_t freed;
    };
    thread_local last_call last{};
    const auto freed = contexts_freed().load(std::memory_order_acquire);
    if (last.context == nullptr || last.comm != user || last.freed != freed) last = {user, &find(user), freed};
    return *last.context;
  }
  /// The same, if there is one.
  static mpi_context* known(MPI_Comm user) {
    mpi_context* found = nullptr;
    int flag = 0;
    if (const int key = keyval(); key != MPI_KEYVAL_INVALID && user != MPI_COMM_NULL)
      check(MPI_Comm_get_attr(user, key, static_cast<void*>(&found), &flag), "MPI_Comm_get_attr");
    return flag != 0 ? found : nullptr;
  }
  /// The operation of MPI that a reduction goes by; one that is made is freed by MPI_Finalize.
  static MPI_Op operation_of(const mpi_reduction& r) {
    if (const MPI_Op own = r.operation(); own != MPI_OP_NULL) return own;
    thread_local std::pair<const mpi_reduction*, MPI_Op> last{nullptr, MPI_OP_NULL};
    if (last.first == &r) return last.second;
    const std::lock_guard lock(mutex());
    auto& made = operations();
    auto found = std::find_if(made.begin(), made.end(), [&](const auto& o) { return o.first == &r; });
    if (found == made.end()) {
      MPI_Op op = MPI_OP_NULL;
      check(MPI_Op_create(r.fold, r.commutes ? 1 : 0, &op), "MPI_Op_create");
      found = made.insert(made.end(), {&r, op});
    }
    return (last = *found).second;
  }

 private:
  static mpi_context& find(MPI_Comm user) {
    if (auto* const found = known(user); found != nullptr) return *found;
    int flag = 0;
    if (user == MPI_COMM_NULL) throw usage("omni: the communicator is MPI_COMM_NULL");
    check(MPI_Initialized(&flag), "MPI_Initialized");
    if (flag == 0) throw usage("omni: MPI_Init has not been called");
    check(MPI_Finalized(&flag), "MPI_Finalized");
    if (flag != 0) throw usage("omni: MPI_Finalize has been called");
    const std::lock_guard lock(mutex());
    if (keyval() == MPI_KEYVAL_INVALID) start();
    contexts().reserve(contexts().size() + 1);  // from here on nothing fails but MPI
    auto made = std::make_shared<mpi_context>(user);
    check(MPI_Comm_set_attr(user, keyval(), made.get()), "MPI_Comm_set_attr");
    contexts().push_back({user, made.get()});
    made->cached(made);
    return *made;
  }

  // What tells that a communicator may have become another.
  static std::atomic<std::uint64_t>& contexts_freed() {
    static std::atomic<std::uint64_t> n = 0;
    return n;
  }
  // The key under which contexts hang on communicators. MPI_Finalize deletes the attributes of MPI_COMM_SELF first of all: that is
  // where what is left is cleaned up.
  static std::atomic<int>& keyval() {
    static std::atomic<int> key = MPI_KEYVAL_INVALID;
    return key;
  }
  // Communicators that carry a context, so that those never freed by the user can be cleaned up.
  // These are never destroyed: MPI_Finalize may be called by the destructor of a global.
  struct entry {
    MPI_Comm comm;
    mpi_context* context;
  };
  static std::vector<entry>& contexts() {
    static auto& list = *new std::vector<entry>;
    return list;
  }
  static std::vector<std::pair<const mpi_reduction*, MPI_Op>>& operations() {
    static auto& list = *new std::vector<std::pair<const mpi_reduction*, MPI_Op>>;
    return list;
  }
  static std::mutex& mutex() {
    static auto& m = *new std::mutex;
    return m;
  }
  static void start() {
    int end = MPI_KEYVAL_INVALID, key = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &mpi_contexts::on_finalize, &end, nullptr), "MPI_Comm_create_keyval");
    check(MPI_Comm_set_attr(MPI_COMM_SELF, end, nullptr), "MPI_Comm_set_attr");
    check(MPI_Comm_free_keyval(&end), "MPI_Comm_free_keyval");
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &mpi_contexts::on_free, &key, nullptr), "MPI_Comm_create_keyval");
    keyval() = key;
  }
  [[gnu::cold]] static int on_free(MPI_Comm /*comm*/, int /*key*/, void* context, void* /*extra*/) {
    {
      const std::lock_guard lock(mutex());
      std::erase_if(contexts(), [&](const entry& e) { return e.context == context; });
    }
    ++contexts_freed();
    return static_cast<mpi_context*>(context)->release() ? MPI_SUCCESS : MPI_ERR_OTHER;
  }
  [[gnu::cold]] static int on_finalize(MPI_Comm /*self*/, int /*key*/, void* /*value*/, void* /*extra*/) {
    ++contexts_freed();
    // A communicator that the user has freed goes, in MPICH, when its duplicate is made: that comes first.
    for (const auto& e : std::vector(contexts())) {
      const auto known = [&](const entry& other) { return other.context == e.context; };
      if (std::none_of(contexts().begin(), contexts().end(), known)) continue;
      const auto kept = e.context->shared_from_this();
      if (!kept->end()) return MPI_ERR_OTHER;
    }
    // Latest first: a context frees the communicators that it has cut its own into, and those have contexts of their own.
    auto left = contexts();
    std::reverse(left.begin(), left.end());
    for (const auto& e : left) MPI_Comm_delete_attr(e.comm, keyval());
    for (auto& o : operations()) MPI_Op_free(&o.second);
    operations().clear();
    int key = keyval().exchange(MPI_KEYVAL_INVALID);
    MPI_Comm_free_keyval(&key);
    return MPI_SUCCESS;
  }
};

}  // namespace omni::detail
