// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "../../error.hpp"
#include "../../report.hpp"
#include "../../request.hpp"
#include "../../topology/dedicated.hpp"
#include "../../topology/replicated.hpp"
#include "../call/pause.hpp"
#include "../call/trace.hpp"
#include "../carry/any_transport.hpp"
#include "../carry/settle.hpp"
#include "../pairs/sparse_call.hpp"
#include "../pairs/sparse_streams.hpp"
#include "collective_by.hpp"
#include "pair_exchange.hpp"
#include "pair_plan.hpp"
#include "run.hpp"
#if __has_include(<mpi.h>)
#include "mpi_calls.hpp"
#endif

// Key-value calls from start to end: the operations of a pair_exchange, one after the other.

namespace omni::detail {

/// One of the operations.
template <class Topology>
report run_part(any_transport& transport, const call& c, const Topology& topology) {
  collective_by<Topology> op(transport, c, topology);
  op.finish();
  return op.result();
}

template <class Call>
requires std::is_same_v<Call, sparse_call> report reduce_pairs(any_transport& transport, Call& pairs, const pair_plan& plan) {
  pair_exchange exchange(transport, pairs, plan, record_rounds::many);
  if (transport.size() == 1) return exchange.alone();
  report rounds;
  try {
    do {
      const auto& round = exchange.round();
      add_cost(rounds, transport.servers() != 0 ? run_part(transport, round, dedicated{0, plan.packet_bytes, plan.window})
                                                : run_part(transport, round, replicated{}));
    } while (!exchange.has_agreed());
  } catch (const error&) {
    if (exchange.failure()) std::rethrow_exception(exchange.failure());
    throw;
  }
  if (exchange.failure()) std::rethrow_exception(exchange.failure());
  if (exchange.is_done()) return exchange.result(rounds);
  const auto streams = [&] {
    try {
      return exchange.streams();
    } catch (const error& e) {
      break_off(transport, e.what());
      throw;
    }
  }();
  return exchange.result(rounds, run_part(transport, pairs, streams));
}

/// A key-value call under way. It is one operation on the transport, as other requests are: the ranks' messages find each other by
/// the order in which operations are made, however far each has come. So there is one round of records at most.
class pairs_operation final : public operation_base {
 public:
  pairs_operation(std::shared_ptr<any_transport> transport, std::unique_ptr<stored_call> pairs,
                  std::unique_ptr<pair_exchange> exchange)
      : transport_(std::move(transport)), pairs_(std::move(pairs)), exchange_(std::move(exchange)) {
    if (transport_->size() == 1) {
      end_with(exchange_->alone());
      return;
    }
    auto round = exchange_->round();
    round.blocking = false;
    round.goes_on = true;
    exchanging_.emplace(*transport_, round, round_and_streams{exchange_.get()}, transport_);
    exchanging_->detach();
  }
  [[gnu::cold]] void call_off() noexcept override { exchanging_->call_off(); }

 private:
  [[nodiscard]] const void* group() const noexcept override { return transport_->identity(); }
  bool advance() override {
    const bool moved = exchanging_->progress();
    if (!exchanging_->done()) return moved;
    if (exchange_->failure()) std::rethrow_exception(exchange_->failure());  // of which the others have heard
    const auto& r = exchanging_->result();
    end_with(exchange_->is_done() ? exchange_->result(r) : exchange_->result({}, r));
    return true;
  }
  void end_with(const report& r) {
    report_ = r;
    pairs_->deliver(r);
    exchanging_.reset();
    exchange_.reset();  // with a copy of the pairs
    complete();
  }
  void block() override {
    if (exchanging_->is_limited()) yield();
    else exchanging_->wait_for_step();
  }
  operation_base& who_waits() override { return exchanging_ ? static_cast<operation_base&>(*exchanging_) : *this; }
  void run_out() override {}
  void fail(std::exception_ptr& error) noexcept override {
    exchanging_->end_by(error);
    exchanging_.reset();
    exchange_.reset();
    pairs_->give_back(is_begun_by(error));
  }

  std::shared_ptr<any_transport> transport_;
  std::unique_ptr<stored_call> pairs_;
  std::unique_ptr<pair_exchange> exchange_;
  std::optional<collective_by<round_and_streams>> exchanging_;
};

template <class Call>
requires std::is_same_v<Call, stored_call> request start_pairs(std::shared_ptr<any_transport> transport,
                                                               std::unique_ptr<Call>&& pairs, const pair_plan& plan) {
  auto exchange = std::make_unique<pair_exchange>(*transport, pairs->call, plan, record_rounds::one);
  auto op = std::make_unique<pairs_operation>(std::move(transport), std::move(pairs), std::move(exchange));
  op->progress();
  return request(std::move(op));
}

#if __has_include(<mpi.h>)
template <class Call>
requires std::is_same_v<Call, sparse_call> report reduce_pairs_on(MPI_Comm comm, Call& pairs, const pair_plan& plan) {
  adapted<transport::mpi> there{transport::mpi(comm)};
  return reduce_pairs(there, pairs, plan);
}
template <class Call>
requires std::is_same_v<Call, stored_call> request start_pairs_on(MPI_Comm comm, std::unique_ptr<Call>&& pairs,
                                                                  const pair_plan& plan) {
  return start_pairs(std::make_shared<adapted<transport::mpi>>(transport::mpi(comm)), std::move(pairs), plan);
}
#endif

}  // namespace omni::detail
