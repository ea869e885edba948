// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <memory>
#include <omni/detail/run/collective.hpp>
#include <omni/topology/automatic.hpp>
#include <omni/transport/mpi.hpp>
#include <vector>

namespace preload {

/// What MPI's predefined types are to omni.
enum class element : unsigned char { i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, f80, c32, c64, bits, boolean };
inline constexpr std::size_t elements = 15;

/// MPI's predefined operations.
enum class operation : unsigned char { sum, prod, min, max, band, bor, bxor, land, lor, lxor };
inline constexpr std::size_t operations = 10;

/// An operation of omni, begun and not driven by anybody yet.
using begun = std::unique_ptr<omni::detail::collective>;

/// Which collective a call is, and what goes with that.
struct roles {
  omni::detail::collective_kind kind = omni::detail::collective_kind::allreduce;
  int root = 0;
  std::vector<std::size_t> sizes{};  ///< elements of the ranks' parts, where there are some
};
/// The memory of a call, in one piece; as omni's function of that name has it.
struct memory {
  const void* in;
  std::size_t in_count;  ///< elements
  void* out;
  std::size_t out_count;
  bool is_read = false;  ///< only: the output is the input, and the program may not allow to write there
};

/// How a type is folded by an operation, or copied.
struct reduction {
  begun (*begin)(const omni::transport::mpi&, const memory&, const roles&, const omni::automatic&, bool blocking) = nullptr;
  std::size_t bytes = 0;  ///< of an element
  std::size_t alignment = 1;
};

/// nullptr where there is none: MPI is to say so itself, or knows the type better.
class reduction_table {
 public:
  /// Collective nowhere; MPI has been initialised.
  reduction_table();

  [[nodiscard]] const reduction* find(MPI_Datatype type, MPI_Op op) const {
    for (const auto& t : types_) {
      if (t.name != type) continue;
      for (const auto& o : names_)
        if (o.name == op) return found(t, o.means);
      return nullptr;
    }
    return nullptr;
  }

 private:
  struct type_name {
    MPI_Datatype name;
    element means;
    bool integer_of_c;  ///< MPI has logical operations for these and for logicals only
  };
  struct operation_name {
    MPI_Op name;
    operation means;
  };
  [[nodiscard]] const reduction* found(const type_name& t, operation o) const;

  std::array<type_name, 64> types_{};
  std::array<operation_name, operations> names_{};
  std::array<std::array<reduction, operations>, elements> reductions_{};
};

/// Entries of the table, by element and operation; each in a file of its own, for they take long to compile.
using reduction_entries = std::array<std::array<reduction, operations>, elements>;
void add_floating(reduction_entries& entries);
void add_integers(reduction_entries& entries);
void add_others(reduction_entries& entries);

/// Words of 8 bytes, or single bytes, that are copied and not folded: allgather and broadcast.
[[nodiscard]] const reduction& copy_of(bool words);

}  // namespace preload
