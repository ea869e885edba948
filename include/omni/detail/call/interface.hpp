// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace omni::detail {

/// What is used through virtual functions: it stays where it was made.
class interface {
 public:
  interface(const interface&) = delete;
  interface(interface&&) = delete;
  interface& operator=(const interface&) = delete;
  interface& operator=(interface&&) = delete;
  virtual ~interface() = default;

 protected:
  interface() = default;
};

}  // namespace omni::detail
