// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <memory>

#include "../call/call.hpp"

namespace omni::detail {

/// A call whose elements are codes, or what codes leave of elements. Nobody else reduces those.
class coded_call : public call {
 public:
  struct value_type {};
  struct operation_type {};
  static constexpr bool is_group = false;

  template <class Codec>
  explicit coded_call(const std::shared_ptr<Codec>& codec) : call(codec->loops(), codec->policies(), codec->in(), codec->out()) {
    travels_by(codec);
  }
};

}  // namespace omni::detail
