// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace omni {

/// Base of everything the library throws.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The call itself is wrong: null data, overlapping buffers, an invalid communicator. Thrown before anything is sent.
class usage : public error {
 public:
  using error::error;
};

namespace detail {
/// A call that servers will not reduce: found before anything was folded, and tidied up.
class refused_call : public usage {
 public:
  using usage::usage;
};
}  // namespace detail

/// The ranks called with different arguments. Thrown on every rank; the communicator stays usable and no output is written
/// beyond what an out-of-place call may already have set to the identity.
class mismatch : public error {
 public:
  mismatch(int this_rank, std::string here, int other_rank, std::string there, std::string field)
      : error("omni: ranks disagree about the " + field + ": rank " + std::to_string(this_rank) + " called with " + here +
              ", rank " + std::to_string(other_rank) + " with " + there),
        rank_(other_rank),
        field_(std::move(field)),
        here_(std::move(here)),
        there_(std::move(there)) {}

  /// The lowest rank whose arguments differ from this rank's.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// Which argument: "count", "type", "operation", "blocks", "topology", ...
  [[nodiscard]] const std::string& field() const noexcept { return field_; }
  [[nodiscard]] const std::string& here() const noexcept { return here_; }
  [[nodiscard]] const std::string& there() const noexcept { return there_; }

 private:
  int rank_;
  std::string field_, here_, there_;
};

/// A wait took longer than its deadline (deadline.hpp). The communicator is unusable for omni afterwards.
class timeout : public error {
 public:
  timeout(int this_rank, double seconds, std::string stage, std::string packet, std::vector<int> peers)
      : error("omni: rank " + std::to_string(this_rank) + " waited " + text(seconds) + " s " + named(peers) + ": " + stage +
              (packet.empty() ? "" : ", " + packet)),
        seconds_(seconds),
        stage_(std::move(stage)),
        packet_(std::move(packet)),
        peers_(std::move(peers)) {}

  /// The ranks that did not answer, ascending. Empty if all did, and wait for each other, or if that could not be found out.
  [[nodiscard]] const std::vector<int>& peers() const noexcept { return peers_; }
  /// What the call was about: "opening the communicator", "agreement", "exchange", ...
  [[nodiscard]] const std::string& stage() const noexcept { return stage_; }
  /// What was to come next from whom, where the stage has packets.
  [[nodiscard]] const std::string& packet() const noexcept { return packet_; }
  [[nodiscard]] double seconds() const noexcept { return seconds_; }

 private:
  static std::string text(double seconds) {
    const auto hundredths = std::llround(seconds * 100);
    const auto part = std::to_string(hundredths % 100);
    return std::to_string(hundredths / 100) + (part.size() == 1 ? ".0" : ".") + part;
  }
  static std::string named(const std::vector<int>& peers) {
    if (peers.empty()) return "for the other ranks";
    std::string all = peers.size() == 1 ? "for rank " : "for ranks ";
    constexpr std::size_t most = 16;
    for (std::size_t i = 0; i < std::min(peers.size(), most); ++i) all += (i == 0 ? "" : ", ") + std::to_string(peers[i]);
    return peers.size() > most ? all + " and " + std::to_string(peers.size() - most) + " more" : all;
  }

  double seconds_;
  std::string stage_, packet_;
  std::vector<int> peers_;
};

/// A packet that lies: a length, index or order that no correct peer sends. The communicator is unusable for omni afterwards.
class protocol : public error {
 public:
  protocol(int peer, std::string_view what)
      : error("omni: packet from rank " + std::to_string(peer) + " refused: " + std::string(what)), peer_(peer), fault_(what) {}

  [[nodiscard]] int peer() const noexcept { return peer_; }
  /// What is wrong with it.
  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }

 private:
  int peer_;
  std::string fault_;
};

/// An MPI routine failed.
class mpi_error : public error {
 public:
  mpi_error(std::string routine, int code, int error_class, const std::string& text)
      : error("omni: " + routine + " failed: " + text), routine_(std::move(routine)), code_(code), class_(error_class) {}

  [[nodiscard]] const std::string& routine() const noexcept { return routine_; }
  [[nodiscard]] int code() const noexcept { return code_; }
  [[nodiscard]] int error_class() const noexcept { return class_; }

 private:
  std::string routine_;
  int code_, class_;
};

}  // namespace omni
