// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

/// Exit code of writing it there; nothing is written to no file.
inline int write_json(const std::string& file, const nlohmann::json& what) {
  if (file.empty()) return 0;
  std::ofstream out(file);
  out << what.dump(1) << '\n';
  out.flush();
  if (out) return 0;
  std::fprintf(stderr, "cannot write %s\n", file.c_str());
  return 1;
}
