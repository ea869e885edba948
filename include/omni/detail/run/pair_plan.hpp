// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <string_view>
#include <type_traits>

#include "../../error.hpp"
#include "../../report.hpp"
#include "../../request.hpp"
#include "../carry/any_transport.hpp"
#include "../pairs/sparse_call.hpp"
#if __has_include(<mpi.h>)
#include <mpi.h>
#endif

namespace omni::detail {

/// How a key-value call is to run.
struct pair_plan {
  std::string_view mode;         ///< the topology's name
  std::size_t packet_bytes = 0;  ///< as the caller chose them; 0: not
  int window = 0;
  std::chrono::nanoseconds limit{};  ///< of a wait; 0: none given
};

/// Whether a call that ends with such an error had begun: not if its arguments were wrong, unless servers said so.
inline bool is_begun_by(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const refused_call&) {
    return true;
  } catch (const usage&) {
    return false;
  } catch (...) {
    return true;
  }
}

/// A call that outlives the caller's, with all that it refers to but the keys and rows.
struct stored_call {
  stored_call() = default;
  stored_call(const stored_call&) = delete;
  stored_call(stored_call&&) = delete;
  stored_call& operator=(const stored_call&) = delete;
  stored_call& operator=(stored_call&&) = delete;
  virtual ~stored_call() = default;
  /// Gives the caller what has come of it.
  virtual void deliver(const report& r) = 0;
  /// Of one that has failed: the caller's memory again, with what was in it if the call was never begun, else empty.
  virtual void give_back(bool is_begun) noexcept = 0;

  sparse_call call;
};

/// Runs a key-value call over a transport or on a communicator, or starts one. Templates, to be compiled where the engines are
/// (detail/run/reduce_pairs.hpp).
template <class Call>
requires std::is_same_v<Call, sparse_call> report reduce_pairs(any_transport& transport, Call& pairs, const pair_plan& plan);
template <class Call>
requires std::is_same_v<Call, stored_call> request start_pairs(std::shared_ptr<any_transport> transport,
                                                               std::unique_ptr<Call>&& pairs, const pair_plan& plan);
#if __has_include(<mpi.h>)
template <class Call>
requires std::is_same_v<Call, sparse_call> report reduce_pairs_on(MPI_Comm comm, Call& pairs, const pair_plan& plan);
template <class Call>
requires std::is_same_v<Call, stored_call> request start_pairs_on(MPI_Comm comm, std::unique_ptr<Call>&& pairs,
                                                                  const pair_plan& plan);
#endif

}  // namespace omni::detail
