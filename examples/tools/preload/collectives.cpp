// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
//
// MPI_Reduce, MPI_Reduce_scatter, MPI_Reduce_scatter_block, MPI_Allgather, MPI_Allgatherv and MPI_Bcast, and their MPI_I forms.
//
// Whether a call is handled follows from what is the same on all ranks. Of what is only copied that is the number of bytes: ranks
// may describe the same bytes by different types, and what is not in one piece is packed.

#include <mpi.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "buffers.hpp"
#include "engine.hpp"
#include "next.hpp"

#define OMNI_PRELOAD_API extern "C" __attribute__((visibility("default")))

namespace preload {
namespace {

using omni::detail::collective_kind;

/// A rank among others. Of an inter-communicator, or of none, no rank.
struct place {
  int rank = -1, size = 0;
  explicit place(MPI_Comm comm) {
    int inter = 1;
    if (comm == MPI_COMM_NULL || comm == MPI_Comm{} || PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter != 0) return;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
  }
  [[nodiscard]] bool is_usable() const { return rank >= 0; }
};

/// Memory, and a type of what lies there. MPICH packs nothing from MPI_BOTTOM: a type that counts from there counts from somewhere
/// else then.
class with_address {
 public:
  with_address(const void* p, MPI_Datatype t) : memory(const_cast<void*>(p)), type(t) {
    if (p != MPI_BOTTOM) return;
    static char somewhere = 0;
    MPI_Aint address = 0;
    const int one = 1;
    omni::detail::check(PMPI_Get_address(&somewhere, &address), "MPI_Get_address");
    const MPI_Aint back = -address;
    omni::detail::check(PMPI_Type_create_hindexed(1, &one, &back, t, &made_), "MPI_Type_create_hindexed");
    omni::detail::check(PMPI_Type_commit(&made_), "MPI_Type_commit");
    memory = &somewhere;
    type = made_;
  }
  with_address(const with_address&) = delete;
  with_address(with_address&&) = delete;
  with_address& operator=(const with_address&) = delete;
  with_address& operator=(with_address&&) = delete;
  ~with_address() {
    if (made_ != MPI_DATATYPE_NULL) PMPI_Type_free(&made_);
  }

  void* memory;
  MPI_Datatype type;

 private:
  MPI_Datatype made_ = MPI_DATATYPE_NULL;
};

/// A type of the program's.
class held_type {
 public:
  explicit held_type(MPI_Datatype type) : type_(type) {
    int integers = 0, addresses = 0, types = 0, combiner = MPI_COMBINER_NAMED;
    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    MPI_Aint lower = 0;
    PMPI_Type_size(type, &size_);
    PMPI_Type_get_extent(type, &lower, &extent_);
    is_derived_ = combiner != MPI_COMBINER_NAMED;
    in_one_piece_ = !is_derived_ && extent_ == size_ && lower == 0;
  }
  held_type(const held_type&) = delete;
  held_type(held_type&&) = delete;
  held_type& operator=(const held_type&) = delete;
  held_type& operator=(held_type&&) = delete;
  ~held_type() {
    if (is_ours_) PMPI_Type_free(&type_);
  }

  /// Whether MPI would take it: not one that was never committed.
  [[nodiscard]] bool is_usable() const {
    int at = 0;
    char nothing = 0;
    return !is_derived_ || PMPI_Pack(&nothing, 0, type_, &nothing, 0, &at, communicator::silent()) == MPI_SUCCESS;
  }
  /// The program may free it while the call is under way. Not by MPI_Type_dup, which calls functions of the program's for its
  /// attributes.
  void keep() {
    MPI_Datatype same = MPI_DATATYPE_NULL;
    if (!is_derived_ || is_ours_) return;
    omni::detail::check(PMPI_Type_contiguous(1, type_, &same), "MPI_Type_contiguous");
    type_ = same;
    is_ours_ = true;
    omni::detail::check(PMPI_Type_commit(&type_), "MPI_Type_commit");
  }
  [[nodiscard]] std::size_t bytes(int count) const { return static_cast<std::size_t>(count) * static_cast<std::size_t>(size_); }
  [[nodiscard]] std::ptrdiff_t extent() const { return extent_; }
  /// Elements lie one behind the other, without gaps.
  [[nodiscard]] bool is_in_one_piece() const { return in_one_piece_; }
  void pack(const void* from, int count, void* to) const {
    if (in_one_piece_) {
      if (from != to) std::memmove(to, from, bytes(count));
      return;
    }
    int at = 0;
    const with_address there(from, type_);
    omni::detail::check(PMPI_Pack(there.memory, count, there.type, to, static_cast<int>(bytes(count)), &at, communicator::silent()),
                        "MPI_Pack");
  }
  void unpack(const void* from, void* to, int count) const {
    int at = 0;
    const with_address there(to, type_);
    omni::detail::check(
        PMPI_Unpack(from, static_cast<int>(bytes(count)), &at, there.memory, count, there.type, communicator::silent()),
        "MPI_Unpack");
  }

 private:
  MPI_Datatype type_;
  int size_ = 0;
  MPI_Aint extent_ = 0;
  bool in_one_piece_ = false, is_derived_ = false, is_ours_ = false;
};

bool is_memory(const void* p) { return p != nullptr && p != MPI_BOTTOM && p != MPI_IN_PLACE; }
/// Of a type that MPI would refuse, nothing.
bool has_size(MPI_Datatype type) {
  int size = 0;
  return type != MPI_DATATYPE_NULL && type != MPI_Datatype{} && PMPI_Type_size(type, &size) == MPI_SUCCESS && size > 0;
}
constexpr std::size_t most_packed = std::size_t{1} << 30U;  // MPI_Pack counts in int

/// Elements of all parts.
std::size_t sum_of(const std::vector<int>& counts) {
  std::size_t n = 0;
  for (const int c : counts) n += c > 0 ? static_cast<std::size_t>(c) : 0;
  return n;
}
bool are_counts(const std::vector<int>& counts) {
  for (const int c : counts)
    if (c < 0) return false;
  return true;
}

bool reduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, MPI_Request* request,
            int& result) {
  auto& e = engine::get();
  if (depth > 0 || !e.is_active() || count <= 0) return false;
  const place here(comm);
  const auto* const how = e.find(type, op);
  if (!here.is_usable() || how == nullptr || root < 0 || root >= here.size) return false;
  const auto n = static_cast<std::size_t>(count);
  const bool is_root = here.rank == root;
  const void* const in = is_root && send == MPI_IN_PLACE ? receive : send;
  if (!is_memory(in) || (is_root && !are_usable(in, receive, n * how->bytes))) return false;
  const auto make = [&](work& w) {
    w.how = how;
    w.what.root = root;
    w.where = {in, n, is_root ? receive : nullptr, is_root ? n : 0};
  };
  return e.run(collective_kind::reduce, comm, n * how->bytes, make, request, result);
}

bool reduce_scatter(const void* send, void* receive, const std::function<std::vector<int>(int ranks)>& counts_of, MPI_Datatype type,
                    MPI_Op op, MPI_Comm comm, MPI_Request* request, int& result) {
  auto& e = engine::get();
  if (depth > 0 || !e.is_active()) return false;
  const place here(comm);
  const auto* const how = e.find(type, op);
  if (!here.is_usable() || how == nullptr) return false;
  const auto counts = counts_of(here.size);
  if (!are_counts(counts)) return false;
  const auto n = sum_of(counts), part = static_cast<std::size_t>(counts[static_cast<std::size_t>(here.rank)]);
  const bool in_place = send == MPI_IN_PLACE || (send == receive && !arguments::of_one_buffer_twice.scattered);
  const void* const in = in_place ? receive : send;
  if (n != 0 && !in_place && send == receive) return false;  // refused on all ranks, also where a part is empty
  if (n != 0 && (!is_memory(in) || (part != 0 && !is_memory(receive)))) return false;
  if (!in_place && part != 0 && !before_or_behind(in, n * how->bytes, receive, part * how->bytes)) return false;
  const auto make = [&](work& w) {
    w.how = how;
    for (const int c : counts) w.what.sizes.push_back(static_cast<std::size_t>(c));
    w.where = {in, n, receive, part};
    if (!in_place) return;
    // MPI wants the part where the whole begins.
    auto room = std::make_shared<std::vector<std::max_align_t>>(part * how->bytes / sizeof(std::max_align_t) + 1);
    w.where.out = room->data();
    w.after = [room, receive, bytes = part * how->bytes] { std::memcpy(receive, room->data(), bytes); };
  };
  return e.run(collective_kind::reduce_scatter, comm, n * how->bytes, make, request, result);
}

struct received {
  void* buffer;
  std::function<std::vector<int>(int ranks)> counts;
  const int* displacements;  // in extents; nullptr: one part behind the other
  MPI_Datatype type;
};
bool allgather(const void* send, int send_count, MPI_Datatype send_type, const received& to, MPI_Comm comm, MPI_Request* request,
               int& result) {
  auto& e = engine::get();
  if (depth > 0 || !e.is_active()) return false;
  const place here(comm);
  if (!here.is_usable() || !has_size(to.type)) return false;
  const auto counts = to.counts(here.size);
  if (!are_counts(counts)) return false;
  const auto type = std::make_shared<held_type>(to.type);
  const auto bytes = sum_of(counts) * type->bytes(1);
  const auto me = static_cast<std::size_t>(here.rank);
  const bool in_place = send == MPI_IN_PLACE, gives = !in_place && counts[me] != 0;
  // Addresses may be in the type itself, and count from MPI_BOTTOM.
  const auto lies = [](const void* p, const held_type& t) { return p != MPI_IN_PLACE && (is_memory(p) || !t.is_in_one_piece()); };
  if (bytes > most_packed || !lies(to.buffer, *type) || !type->is_usable() || (gives && !has_size(send_type))) return false;
  const held_type sent(gives ? send_type : MPI_BYTE);
  if (gives && (!lies(send, sent) || !sent.is_usable() || sent.bytes(send_count) != type->bytes(counts[me]))) return false;
  const auto make = [&](work& w) {
    if (request != nullptr) type->keep();
    bool words = true, one_piece = type->is_in_one_piece();
    std::size_t at = 0, own = 0;
    for (std::size_t k = 0; k < counts.size(); ++k) {
      const auto n = type->bytes(counts[k]);
      words = words && n % 8 == 0;
      if (k == me) own = at;
      if (to.displacements != nullptr && counts[k] != 0)
        one_piece = one_piece && to.displacements[k] >= 0 && type->bytes(to.displacements[k]) == at;
      at += n;
    }
    w.how = &copy_of(words);
    for (const int c : counts) w.what.sizes.push_back(type->bytes(c) / w.how->bytes);
    auto* whole = static_cast<std::byte*>(to.buffer);
    const auto first = [&](std::size_t k) {  // of a part in the program's memory
      std::ptrdiff_t before = 0;
      if (to.displacements != nullptr) before = to.displacements[k];
      else
        for (std::size_t i = 0; i < k; ++i) before += counts[i];
      return static_cast<std::byte*>(to.buffer) + before * type->extent();
    };
    if (!one_piece) {
      auto room = std::make_shared<std::vector<std::max_align_t>>(bytes / sizeof(std::max_align_t) + 1);
      whole = reinterpret_cast<std::byte*>(room->data());
      std::vector<std::byte*> places;
      for (std::size_t k = 0; k < counts.size(); ++k) places.push_back(first(k));
      w.after = [room, type, counts, places, me, in_place] {
        auto* from = reinterpret_cast<const std::byte*>(room->data());
        for (std::size_t k = 0; k < counts.size(); from += type->bytes(counts[k++]))
          if (k != me || !in_place) type->unpack(from, places[k], counts[k]);
      };
    }
    if (counts[me] != 0) {
      if (!in_place) {
        sent.pack(send, send_count, whole + own);
      } else if (!one_piece) {
        type->pack(first(me), counts[me], whole + own);
      }
    }
    w.where = {whole, bytes / w.how->bytes, whole, bytes / w.how->bytes};
  };
  return e.run(collective_kind::allgather, comm, bytes, make, request, result);
}

bool broadcast(void* buffer, int count, MPI_Datatype given, int root, MPI_Comm comm, MPI_Request* request, int& result) {
  auto& e = engine::get();
  if (depth > 0 || !e.is_active() || count <= 0) return false;
  const place here(comm);
  if (!here.is_usable() || root < 0 || root >= here.size || !has_size(given)) return false;
  const auto type = std::make_shared<held_type>(given);
  const auto bytes = type->bytes(count);
  if (bytes > most_packed || buffer == MPI_IN_PLACE || (type->is_in_one_piece() && !is_memory(buffer)) || !type->is_usable())
    return false;
  const auto make = [&](work& w) {
    if (request != nullptr) type->keep();
    w.how = &copy_of(bytes % 8 == 0);
    w.what.root = root;
    auto* whole = buffer;
    if (!type->is_in_one_piece()) {
      auto room = std::make_shared<std::vector<std::max_align_t>>(bytes / sizeof(std::max_align_t) + 1);
      whole = room->data();
      if (here.rank == root) type->pack(buffer, count, whole);
      else w.after = [room, type, buffer, count] { type->unpack(room->data(), buffer, count); };
      if (here.rank == root) w.after = [room] {};
    }
    w.where = {whole, bytes / w.how->bytes, whole, bytes / w.how->bytes, here.rank == root};
  };
  return e.run(collective_kind::broadcast, comm, bytes, make, request, result);
}

std::function<std::vector<int>(int)> equal(int count) {
  return [count](int ranks) { return std::vector<int>(static_cast<std::size_t>(ranks), count); };
}
std::function<std::vector<int>(int)> listed(const int* counts) {
  return [counts](int ranks) {
    return counts == nullptr ? std::vector<int>(static_cast<std::size_t>(ranks), -1) : std::vector<int>(counts, counts + ranks);
  };
}

}  // namespace
}  // namespace preload

// ---- calls that wait

OMNI_PRELOAD_API int MPI_Reduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  int result = MPI_SUCCESS;
  if (preload::reduce(send, receive, count, type, op, root, comm, nullptr, result)) return result;
  static auto* const further = preload::next("MPI_Reduce", &PMPI_Reduce);
  return further(send, receive, count, type, op, root, comm);
}
OMNI_PRELOAD_API int MPI_Reduce_scatter(const void* send, void* receive, const int counts[], MPI_Datatype type, MPI_Op op,
                                        MPI_Comm comm) {
  int result = MPI_SUCCESS;
  if (preload::reduce_scatter(send, receive, preload::listed(counts), type, op, comm, nullptr, result)) return result;
  static auto* const further = preload::next("MPI_Reduce_scatter", &PMPI_Reduce_scatter);
  return further(send, receive, counts, type, op, comm);
}
OMNI_PRELOAD_API int MPI_Reduce_scatter_block(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                                              MPI_Comm comm) {
  int result = MPI_SUCCESS;
  if (preload::reduce_scatter(send, receive, preload::equal(count), type, op, comm, nullptr, result)) return result;
  static auto* const further = preload::next("MPI_Reduce_scatter_block", &PMPI_Reduce_scatter_block);
  return further(send, receive, count, type, op, comm);
}
OMNI_PRELOAD_API int MPI_Allgather(const void* send, int send_count, MPI_Datatype send_type, void* receive, int count,
                                   MPI_Datatype type, MPI_Comm comm) {
  int result = MPI_SUCCESS;
  if (preload::allgather(send, send_count, send_type, {receive, preload::equal(count), nullptr, type}, comm, nullptr, result))
    return result;
  static auto* const further = preload::next("MPI_Allgather", &PMPI_Allgather);
  return further(send, send_count, send_type, receive, count, type, comm);
}
OMNI_PRELOAD_API int MPI_Allgatherv(const void* send, int send_count, MPI_Datatype send_type, void* receive, const int counts[],
                                    const int displacements[], MPI_Datatype type, MPI_Comm comm) {
  int result = MPI_SUCCESS;
  if (displacements != nullptr &&
      preload::allgather(send, send_count, send_type, {receive, preload::listed(counts), displacements, type}, comm, nullptr,
                         result))
    return result;
  static auto* const further = preload::next("MPI_Allgatherv", &PMPI_Allgatherv);
  return further(send, send_count, send_type, receive, counts, displacements, type, comm);
}
OMNI_PRELOAD_API int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  int result = MPI_SUCCESS;
  if (preload::broadcast(buffer, count, type, root, comm, nullptr, result)) return result;
  static auto* const further = preload::next("MPI_Bcast", &PMPI_Bcast);
  return further(buffer, count, type, root, comm);
}

// ---- calls that do not

OMNI_PRELOAD_API int MPI_Ireduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                                 MPI_Request* request) {
  int result = MPI_SUCCESS;
  if (request != nullptr && preload::reduce(send, receive, count, type, op, root, comm, request, result)) return result;
  static auto* const further = preload::next("MPI_Ireduce", &PMPI_Ireduce);
  return further(send, receive, count, type, op, root, comm, request);
}
OMNI_PRELOAD_API int MPI_Ireduce_scatter(const void* send, void* receive, const int counts[], MPI_Datatype type, MPI_Op op,
                                         MPI_Comm comm, MPI_Request* request) {
  int result = MPI_SUCCESS;
  if (request != nullptr && preload::reduce_scatter(send, receive, preload::listed(counts), type, op, comm, request, result))
    return result;
  static auto* const further = preload::next("MPI_Ireduce_scatter", &PMPI_Ireduce_scatter);
  return further(send, receive, counts, type, op, comm, request);
}
OMNI_PRELOAD_API int MPI_Ireduce_scatter_block(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                                               MPI_Comm comm, MPI_Request* request) {
  int result = MPI_SUCCESS;
  if (request != nullptr && preload::reduce_scatter(send, receive, preload::equal(count), type, op, comm, request, result))
    return result;
  static auto* const further = preload::next("MPI_Ireduce_scatter_block", &PMPI_Ireduce_scatter_block);
  return further(send, receive, count, type, op, comm, request);
}
OMNI_PRELOAD_API int MPI_Iallgather(const void* send, int send_count, MPI_Datatype send_type, void* receive, int count,
                                    MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
  int result = MPI_SUCCESS;
  if (request != nullptr &&
      preload::allgather(send, send_count, send_type, {receive, preload::equal(count), nullptr, type}, comm, request, result))
    return result;
  static auto* const further = preload::next("MPI_Iallgather", &PMPI_Iallgather);
  return further(send, send_count, send_type, receive, count, type, comm, request);
}
OMNI_PRELOAD_API int MPI_Iallgatherv(const void* send, int send_count, MPI_Datatype send_type, void* receive, const int counts[],
                                     const int displacements[], MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
  int result = MPI_SUCCESS;
  if (request != nullptr && displacements != nullptr &&
      preload::allgather(send, send_count, send_type, {receive, preload::listed(counts), displacements, type}, comm, request,
                         result))
    return result;
  static auto* const further = preload::next("MPI_Iallgatherv", &PMPI_Iallgatherv);
  return further(send, send_count, send_type, receive, counts, displacements, type, comm, request);
}
OMNI_PRELOAD_API int MPI_Ibcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  int result = MPI_SUCCESS;
  if (request != nullptr && preload::broadcast(buffer, count, type, root, comm, request, result)) return result;
  static auto* const further = preload::next("MPI_Ibcast", &PMPI_Ibcast);
  return further(buffer, count, type, root, comm, request);
}
