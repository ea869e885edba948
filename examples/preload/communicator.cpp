// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include "communicator.hpp"

#include <atomic>
#include <vector>

#include "engine.hpp"
#include "next.hpp"

namespace preload {
namespace {

// Each has a duplicate of omni's, and MPICH has no more than 2048 in all.
constexpr int most_communicators = 256;

int key = MPI_KEYVAL_INVALID;
std::atomic<int> alive = 0;
std::atomic<bool> ended = false;  // MPI is being finalized, and omni's own is gone

using holder = std::shared_ptr<communicator>;

int on_free(MPI_Comm /*comm*/, int /*key*/, void* value, void* /*extra*/) {
  auto* const held = static_cast<holder*>(value);
  // Its duplicate must be made before it goes. MPICH may come here from where it is being made.
  if (!ended && depth == 0 && (*held)->transport && !(*held)->ready) engine::get().drive_until([&] { return (*held)->test(); });
  if ((*held)->takes) --alive;
  delete held;  // operations under way hold it, too
  return MPI_SUCCESS;
}

// Ranks that have another MPI_COMM_WORLD may have agreed on other things, or know nothing of omni.
bool is_within_world(MPI_Comm comm, int size) {
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  PMPI_Comm_group(comm, &group);
  std::vector<int> ranks(static_cast<std::size_t>(size)), there(ranks.size(), MPI_UNDEFINED);
  for (int i = 0; i < size; ++i) ranks[static_cast<std::size_t>(i)] = i;
  PMPI_Group_translate_ranks(group, size, ranks.data(), world, there.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  for (const int r : there)
    if (r == MPI_UNDEFINED) return false;
  return true;
}

}  // namespace

communicator* communicator::of(MPI_Comm comm, bool blocking, bool alone) {
  void* value = nullptr;
  int found = 0;
  if (PMPI_Comm_get_attr(comm, key, static_cast<void*>(&value), &found) != MPI_SUCCESS) return nullptr;
  if (found != 0) return static_cast<holder*>(value)->get();

  int inter = 0;
  if (PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS) return nullptr;
  auto made = std::make_shared<communicator>();
  if (inter == 0) {
    PMPI_Comm_size(comm, &made->size);
    int has_room = alive < most_communicators && is_within_world(comm, made->size) ? 1 : 0;
    if (blocking && made->size > 1) PMPI_Allreduce(MPI_IN_PLACE, &has_room, 1, MPI_INT, MPI_MIN, comm);
    made->takes = (blocking ? has_room != 0 : is_within_world(comm, made->size)) && (made->size > 1 || alone);
  }
  auto* const held = new holder(made);
  if (made->takes) {
    ++alive;
    // Before our own attribute, so that ours is deleted first.
    const within omni;
    made->transport.emplace(comm);
  }
  PMPI_Comm_set_attr(comm, key, held);
  return made.get();
}

bool communicator::open() {
  // MPI_Finalize deletes the attributes of MPI_COMM_SELF first, latest first: omni's before this one, and then those of others.
  int end = MPI_KEYVAL_INVALID;
  const auto on_end = [](MPI_Comm, int, void*, void*) {
    ended = true;
    return MPI_SUCCESS;
  };
  return PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, +on_end, &end, nullptr) == MPI_SUCCESS &&
         PMPI_Comm_set_attr(MPI_COMM_SELF, end, nullptr) == MPI_SUCCESS && PMPI_Comm_free_keyval(&end) == MPI_SUCCESS &&
         PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_free, &key, nullptr) == MPI_SUCCESS;
}
void communicator::close() {
  ended = true;
  PMPI_Comm_free_keyval(&key);
}

}  // namespace preload
