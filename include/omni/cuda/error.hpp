// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>
#include <utility>

#include "../error.hpp"

namespace omni {

/// A routine of CUDA failed, or work on the device did and a later routine says so. The communicator is unusable for omni
/// afterwards: the ranks that were in the call hear of it and give up, too.
class cuda_error : public error {
 public:
  cuda_error(std::string routine, std::string name, int code, const std::string& text)
      : error("omni: " + routine + " failed: " + name + " (" + text + ")"),
        routine_(std::move(routine)),
        name_(std::move(name)),
        code_(code) {}

  [[nodiscard]] const std::string& routine() const noexcept { return routine_; }
  /// As CUDA spells it: "cudaErrorMemoryAllocation".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  std::string routine_, name_;
  int code_;
};

}  // namespace omni
