# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0

# omni_own_target(target): warnings for targets of this repository; nothing of it reaches the targets of users.
function(omni_own_target target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow $<$<BOOL:${OMNI_WERROR}>:-Werror>)
  endif()
endfunction()

# omni_precompile_headers(target owner headers...): what many targets include is compiled once, for the owner, if the build asks for
# it. The others have its flags and definitions.
function(omni_precompile_headers target owner)
  if(NOT OMNI_PRECOMPILE_TESTS)
    return()
  endif()
  if(target STREQUAL owner)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()
