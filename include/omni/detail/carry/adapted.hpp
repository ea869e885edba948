// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../concepts.hpp"
#include "../call/call.hpp"
#include "any_transport.hpp"

// What a transport offers beside its concept is found here, by presence, and nowhere else.

namespace omni::detail {

/// Whether the transport has a dense allreduce of its own. Its `reduction` says of which type and operation; the `native` of a call
/// points to one, if it has it for the call.
template <class Transport>
inline constexpr bool has_own_allreduce = requires {
  typename Transport::reduction;
};

/// Whether it has the other collectives, too.
template <class Transport>
inline constexpr bool has_own_collectives_of = has_own_allreduce<Transport>&& requires(Transport& t, const dense_call& c) {
  t.run_dense(c, std::declval<const typename Transport::reduction&>());
};

template <class Mailbox>
class adapted_mailbox final : public any_mailbox {
 public:
  explicit adapted_mailbox(Mailbox&& m) : inner_(std::move(m)) {}

  [[nodiscard]] std::uint32_t call() const override { return inner_.call(); }
  void send(int peer, unsigned stream, std::span<const std::byte> bytes, std::uint64_t token) override {
    inner_.send(peer, stream, bytes, token);
  }
  void receive(int peer, unsigned stream, std::span<std::byte> buffer, std::uint64_t token) override {
    inner_.receive(peer, stream, buffer, token);
  }
  [[nodiscard]] std::span<const completion> poll() override { return inner_.poll(); }
  [[nodiscard]] std::span<const completion> wait() override { return inner_.wait(); }
  void cancel(unsigned stream) override { inner_.cancel(stream); }
  void abandon() override { inner_.abandon(); }
  void reserve(std::size_t messages) override {
    if constexpr (requires { inner_.reserve(messages); }) inner_.reserve(messages);
  }
  void nudge() override {
    if constexpr (requires { inner_.nudge(); }) inner_.nudge();
  }
  [[nodiscard]] bool shares_packets() const override { return shares; }
  [[nodiscard]] bool enter() override {
    if constexpr (shares) return inner_.enter();
    else return true;
  }
  [[nodiscard]] std::span<std::byte> room(std::size_t bytes) override {
    if constexpr (shares) return inner_.room(bytes);
    else return {};
  }
  void release(int peer, unsigned stream) override {
    if constexpr (shares) inner_.release(peer, stream);
  }

 private:
  static constexpr bool shares = requires(Mailbox & m) {
    m.enter();
    m.room(std::size_t{1});
    m.release(0, 0U);
  };

  Mailbox inner_;
};

/// A transport by its members. `Transport` is a reference to the caller's, or a view of it.
template <class Transport>
class adapted : public any_transport {
  using plain = std::remove_reference_t<Transport>;
  using mailbox_type = decltype(std::declval<plain&>().open());
  static constexpr bool carries_messages = message_transport<plain>;
  static_assert(carries_messages || std::derived_from<mailbox_type, any_datagrams>,
                "omni: datagrams are carried by a detail::datagram_demux of a socket");

 public:
  explicit adapted(Transport t) : inner_(std::forward<Transport>(t)) {}

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  [[nodiscard]] std::size_t preferred_packet_bytes() const override { return inner_.preferred_packet_bytes(); }
  any_mailbox& open(mailbox_room& room) override {
    if constexpr (carries_messages) return room.emplace([this] { return adapted_mailbox<mailbox_type>(inner_.open()); });
    else throw usage("omni: this transport carries datagrams");
  }
  any_datagrams& open_datagrams(mailbox_room& room) override {
    if constexpr (!carries_messages) return room.emplace([this] { return inner_.open(); });
    else throw usage("omni: this transport carries messages");
  }
  [[nodiscard]] const void* identity() const override {
    if constexpr (requires { inner_.context(); }) return &inner_.context();
    else return &inner_;
  }
  [[nodiscard]] std::shared_ptr<const void> keep_alive() const override {
    if constexpr (requires { inner_.keep_alive(); }) return inner_.keep_alive();
    else return nullptr;
  }
  [[nodiscard]] int servers() const override {
    if constexpr (requires { inner_.servers(); }) return inner_.servers();
    else return any_transport::servers();
  }

  [[nodiscard]] std::uint32_t queue() override {
    if constexpr (requires { inner_.queue(); }) return inner_.queue();
    else return any_transport::queue();
  }
  [[nodiscard]] bool may_start(std::uint32_t ticket) override {
    if constexpr (requires { inner_.may_start(ticket); }) return inner_.may_start(ticket);
    else return any_transport::may_start(ticket);
  }
  void has_started() override {
    if constexpr (requires { inner_.has_started(); }) inner_.has_started();
  }
  void give_up_turn(std::uint32_t ticket) override {
    if constexpr (requires { inner_.give_up_turn(ticket); }) inner_.give_up_turn(ticket);
  }
  [[nodiscard]] bool nothing_queued() override {
    if constexpr (requires { inner_.nothing_queued(); }) return inner_.nothing_queued();
    else return any_transport::nothing_queued();
  }
  [[nodiscard]] bool is_open() override {
    if constexpr (requires { inner_.is_open(); }) return inner_.is_open();
    else return any_transport::is_open();
  }

  void mark_broken(const std::string& why) override {
    if constexpr (requires { inner_.mark_broken(why); }) inner_.mark_broken(why);
  }
  [[nodiscard]] bool is_usable() const override {
    if constexpr (requires { inner_.is_usable(); }) return inner_.is_usable();
    else return any_transport::is_usable();
  }
  void expect_usable() const override {
    if constexpr (requires { inner_.expect_usable(); }) inner_.expect_usable();
  }
  [[nodiscard]] bool is_roll_called() override {
    if constexpr (requires { inner_.is_roll_called(); }) return inner_.is_roll_called();
    else return any_transport::is_roll_called();
  }
  void answer_roll() override {
    if constexpr (requires { inner_.answer_roll(); }) inner_.answer_roll();
  }
  [[nodiscard]] std::optional<std::vector<int>> call_roll(std::chrono::nanoseconds time) override {
    if constexpr (requires { inner_.call_roll(time); }) return inner_.call_roll(time);
    else return any_transport::call_roll(time);
  }
  [[nodiscard]] bool has_roll() const override {
    return requires(plain & t, std::chrono::nanoseconds time) { t.call_roll(time); };
  }
  [[nodiscard]] bool say_farewell(int first) override {
    if constexpr (requires { inner_.say_farewell(first); }) return inner_.say_farewell(first);
    else return any_transport::say_farewell(first);
  }
  [[nodiscard]] bool has_left(int rank) const override {
    if constexpr (requires { inner_.has_left(rank); }) return inner_.has_left(rank);
    else return any_transport::has_left(rank);
  }

  [[nodiscard]] bool agrees_first() const override {
    if constexpr (requires { plain::agrees_first; }) return plain::agrees_first;
    else return any_transport::agrees_first();
  }
  [[nodiscard]] std::chrono::nanoseconds agreed_limit() const override {
    if constexpr (requires { inner_.agreed_limit(); }) return inner_.agreed_limit();
    else return any_transport::agreed_limit();
  }
  [[nodiscard]] preset agreed_topology() const override {
    if constexpr (requires { inner_.agreed_topology(); }) return inner_.agreed_topology();
    else return any_transport::agreed_topology();
  }
  [[nodiscard]] bool checks_calls() const override {
    if constexpr (requires { inner_.checks_calls(); }) return inner_.checks_calls();
    else return any_transport::checks_calls();
  }
  [[nodiscard]] window* shared_window() const override {
    if constexpr (requires { inner_.shared_window(); }) return inner_.shared_window();
    else return any_transport::shared_window();
  }
  [[nodiscard]] bool one_host() const override {
    if constexpr (requires { inner_.one_host(); }) return inner_.one_host();
    else return any_transport::one_host();
  }
  [[nodiscard]] int ranks_of_a_host() const override {
    if constexpr (requires { inner_.ranks_of_a_host(); }) return inner_.ranks_of_a_host();
    else return any_transport::ranks_of_a_host();
  }
  [[nodiscard]] calibration measured() const override {
    if constexpr (requires { inner_.measured(); }) return inner_.measured();
    else return any_transport::measured();
  }
  [[nodiscard]] bool copies_through_kernel() const override {
    if constexpr (requires { inner_.copies_through_kernel(); }) return inner_.copies_through_kernel();
    else return any_transport::copies_through_kernel();
  }
  [[nodiscard]] bool takes_device_memory() const override {
    if constexpr (requires { inner_.takes_device_memory(); }) return inner_.takes_device_memory();
    else return any_transport::takes_device_memory();
  }
  [[nodiscard]] bool one_process() const override {
    if constexpr (requires { plain::one_process; }) return plain::one_process;
    else return any_transport::one_process();
  }

  [[nodiscard]] bool has_levels(int group, bool may_block) const override {
    if constexpr (requires { inner_.has_levels(group, may_block); }) return inner_.has_levels(group, may_block);
    else return any_transport::has_levels(group, may_block);
  }
  [[nodiscard]] transport_levels levels(int group) override {
    transport_levels made;
    if constexpr (requires { inner_.levels(group); }) {
      const auto l = inner_.levels(group);
      made.hosts = l.hosts;
      made.inner_ranks = l.inner_ranks;
      made.outer_ranks = l.outer_ranks;
      made.part = l.part;
      made.parts = l.parts;
      made.inner = std::make_shared<adapted<decltype(l.inner())>>(l.inner());
      if (l.part < l.parts) made.outer = std::make_shared<adapted<decltype(l.outer())>>(l.outer());
    }
    return made;
  }

  [[nodiscard]] bool has_own_collectives() const override { return has_others; }
  void run_dense(const dense_call& c) override {
    if constexpr (has_others) {
      if (c.kind != collective_kind::allreduce) return inner_.run_dense(c, reduction_of(c));
    }
    if constexpr (has_own_allreduce<plain>) inner_.allreduce(c.in, c.out, c.element, reduction_of(c));
  }
  void begin_dense(const dense_call& c) override {
    if constexpr (has_others) {
      if (c.kind != collective_kind::allreduce) {
        request_ = inner_.begin_dense(c, reduction_of(c));
        return;
      }
    }
    if constexpr (has_own_allreduce<plain>) request_ = inner_.iallreduce(c.in, c.out, c.element, reduction_of(c));
  }
  [[nodiscard]] bool test_dense() override {
    if constexpr (has_own_allreduce<plain>) return inner_.test(request_);
    else return true;
  }
  void wait_dense() override {
    if constexpr (has_own_allreduce<plain>) inner_.wait(request_);
  }

 protected:
  Transport inner_;

 private:
  template <class T>
  struct request_of {
    struct type {};  // none
  };
  template <class T>
  requires has_own_allreduce<T>
  struct request_of<T> {
    using type = decltype(std::declval<T&>().iallreduce({}, {}, std::size_t{1}, std::declval<const typename T::reduction&>()));
  };
  static constexpr bool has_others = has_own_collectives_of<plain>;
  static const auto& reduction_of(const dense_call& c) { return *static_cast<const typename plain::reduction*>(c.how); }

  typename request_of<plain>::type request_{};
};

}  // namespace omni::detail
