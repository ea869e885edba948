// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "streams.hpp"

namespace omni {

/// Topology: the default. Picks from what every rank knows (bytes, ranks, type), so that ranks agree without a message and the same
/// call gives the same bits in every run:
///
/// | bytes of the tensor | runs |
/// | --- | --- |
/// | up to small_bytes | MPI_Allreduce, with nothing added, where the transport is MPI and the operation built in |
/// | above, two ranks | replicated |
/// | above | colocated |
///
/// docs/tuning.md has the measurements behind the numbers.
struct automatic {
  std::size_t small_bytes = 4096;

  static constexpr std::string_view name = "automatic";
  friend bool operator==(const automatic&, const automatic&) = default;

  [[nodiscard]] constexpr bool hands_over(std::size_t bytes) const { return bytes <= small_bytes; }
  [[nodiscard]] constexpr detail::ownership pick(std::size_t /*bytes*/, int ranks) const {
    return ranks == 2 ? detail::ownership::replicated : detail::ownership::shared;
  }

  template <class Call, class Transport>
  class engine;
};

namespace detail {

/// Whether the transport reduces small tensors itself.
template <class Transport, class T, class Op>
constexpr bool reduces_itself() {
  if constexpr (requires { Transport::template has_allreduce<T, Op>; }) return Transport::template has_allreduce<T, Op>;
  else return false;
}

/// The transport's own allreduce as an engine; with OMNI_CHECK=1, after the ranks have found that they agree.
template <class Call, class Transport>
class native_engine {
 public:
  native_engine(const Call& call, Transport& transport) : call_(call), transport_(&transport) {
    if (transport.checks_calls()) greeting_.emplace(ownership::nobody, "mpi", stream_options{}, call, transport);
  }
  void start() {
    if (greeting_) greeting_->start();
    else begin();
  }
  bool progress() {
    if (greeting_ && !greeting_->done()) {
      const bool moved = greeting_->progress();
      if (!greeting_->done()) return moved;
    }
    if (!begun_) begin();
    if (!done_) done_ = transport_->test(request_);
    return done_;
  }
  void wait() {
    if (greeting_ && !greeting_->done()) greeting_->wait();
  }
  [[nodiscard]] bool done() const { return done_; }
  void finish(report& r) const {
    r.topology = "mpi";
    r.blocks_total = r.blocks_sent = r.union_blocks = call_.blocks();
  }

 private:
  using request_type = decltype(std::declval<Transport&>().iallreduce(std::declval<const Call&>().in, std::declval<const Call&>().out,
                                                                      std::declval<const Call&>().op));
  void begin() {
    request_ = transport_->iallreduce(call_.in, call_.out, call_.op);
    begun_ = true;
  }

  Call call_;
  Transport* transport_;
  std::optional<stream_engine<Call, Transport>> greeting_;
  request_type request_{};
  bool begun_ = false, done_ = false;
};

}  // namespace detail

template <class Call, class Transport>
class automatic::engine {
  using streams = detail::stream_engine<Call, Transport>;
  static constexpr bool native = detail::reduces_itself<Transport, typename Call::value_type, typename Call::operation_type>();

 public:
  engine(const automatic& t, const Call& call, Transport& transport) {
    if constexpr (native) {
      if (t.hands_over(call.bytes())) {
        engine_.template emplace<2>(call, transport);
        return;
      }
    }
    const auto who = t.pick(call.bytes(), transport.size());
    const auto name = who == detail::ownership::replicated ? "replicated" : "colocated";
    engine_.template emplace<1>(who, name, detail::stream_options{}, call, transport);
  }
  void start() {
    visit(*this, [](auto& e) { e.start(); });
  }
  bool progress() {
    return visit(*this, [](auto& e) { return e.progress(); });
  }
  void wait() {
    visit(*this, [](auto& e) { e.wait(); });
  }
  [[nodiscard]] bool done() const {
    return visit(*this, [](const auto& e) { return e.done(); });
  }
  void finish(report& r) const {
    visit(*this, [&](const auto& e) { e.finish(r); });
  }

 private:
  template <class Self, class F>
  static auto visit(Self& self, F&& f) {
    if constexpr (native) {
      if (auto* const e = std::get_if<2>(&self.engine_)) return f(*e);
    }
    return f(*std::get_if<1>(&self.engine_));
  }
  using choices = typename std::conditional_t<native, std::type_identity<std::variant<std::monostate, streams, detail::native_engine<Call, Transport>>>,
                                              std::type_identity<std::variant<std::monostate, streams>>>::type;
  choices engine_;
};

}  // namespace omni
