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
std::atomic<int> undecided = 0;

using holder = std::shared_ptr<communicator>;

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

int communicator::on_free(MPI_Comm /*comm*/, int /*key*/, void* value, void* /*extra*/) {
  auto* const held = static_cast<holder*>(value);
  if ((*held)->takes) --alive;
  if (!(*held)->decided_) --undecided;
  delete held;  // operations under way hold it, too
  return MPI_SUCCESS;
}

communicator* communicator::find(MPI_Comm comm) {
  void* value = nullptr;
  int found = 0;
  if (PMPI_Comm_get_attr(comm, key, static_cast<void*>(&value), &found) != MPI_SUCCESS || found == 0) return nullptr;
  return static_cast<holder*>(value)->get();
}

communicator* communicator::of(MPI_Comm comm, bool blocking, bool alone) {
  auto* known = find(comm);
  if (known == nullptr) {
    int inter = 0;
    if (PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS) return nullptr;
    auto made = std::make_shared<communicator>();
    if (inter == 0) PMPI_Comm_size(comm, &made->size);
    if (PMPI_Comm_set_attr(comm, key, new holder(made)) != MPI_SUCCESS) return nullptr;
    known = made.get();
    ++undecided;
    if (inter != 0 || (known->size == 1 && !alone)) {
      known->decided_ = true;
      --undecided;
    }
  }
  if (!known->decided_ && (blocking || known->size == 1)) known->decide(comm);
  return known;
}

bool communicator::any_undecided() { return undecided != 0; }

void communicator::make_up(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL || comm == MPI_Comm{}) return;
  if (auto* const known = find(comm); known != nullptr && !known->decided_) known->decide(comm);
}

// The ranks may have other communicators besides, and no room for this one; all take it, or none.
void communicator::decide(MPI_Comm comm) {
  decided_ = true;
  --undecided;
  if (!is_within_world(comm, size)) return;  // on no rank: nobody asks
  int has_room = alive < most_communicators ? 1 : 0;
  if (size > 1) PMPI_Allreduce(MPI_IN_PLACE, &has_room, 1, MPI_INT, MPI_MIN, comm);
  if (has_room == 0) return;
  // omni duplicates what it is given; a duplicate of the program's would have its attributes, and free them a second time. Not
  // within omni: while this thread waits in MPI it may be the only one that drives it, and other threads' calls have to move on.
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  omni::detail::check(PMPI_Comm_split(comm, 0, rank, &own_), "MPI_Comm_split");
  PMPI_Comm_set_errhandler(own_, MPI_ERRORS_RETURN);
  {
    const within omni;
    transport.emplace(own_);
  }
  takes = true;
  ++alive;
  engine::get().drive_until([&] { return transport->context().ready(); });
  // Where other threads wait for other communicators meanwhile, what blocks in MPI is done now, while nobody is locked out.
  if (engine::get().has_many_threads() && transport->has_levels(0, true)) static_cast<void>(transport->levels(0));
}

communicator::~communicator() {
  const within omni;
  if (own_ != MPI_COMM_NULL && engine::get().is_active()) PMPI_Comm_free(&own_);  // else MPI_Finalize does
}

bool communicator::open() {
  if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_free, &key, nullptr) != MPI_SUCCESS) return false;
  if (PMPI_Comm_split(MPI_COMM_SELF, 0, 0, &silent_) != MPI_SUCCESS) return false;
  PMPI_Comm_set_errhandler(silent_, MPI_ERRORS_RETURN);
  return true;
}
void communicator::close() {
  PMPI_Comm_free(&silent_);
  PMPI_Comm_free_keyval(&key);
}

}  // namespace preload
