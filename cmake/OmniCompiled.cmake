# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0

# omni::compiled: omni::omni, with what does not depend on the types of a call compiled once, into a static library of the
# project that links it. Built only where something does.
if(NOT TARGET omni::compiled)
  add_library(omni_compiled STATIC EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/compiled.cpp")
  add_library(omni::compiled ALIAS omni_compiled)
  target_link_libraries(omni_compiled PUBLIC omni::omni)
  target_compile_definitions(omni_compiled PUBLIC OMNI_COMPILED)
  set_target_properties(omni_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()
