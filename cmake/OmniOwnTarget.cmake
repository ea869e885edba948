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

# omni_compile_inline_once(target owner optimise): with clang++ the functions of the owner's precompiled headers, too, are compiled
# once, as much optimised as that says. The files of the target then have nothing of the engines to compile.
function(omni_compile_inline_once target owner optimise)
  if(NOT OMNI_PRECOMPILE_TESTS OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR NOT CMAKE_GENERATOR STREQUAL "Ninja")
    return()
  endif()
  get_target_property(folder ${owner} BINARY_DIR)
  set(object "${folder}/${owner}.inline.o")
  target_compile_options(${target} PRIVATE "SHELL:-Xclang -fmodules-codegen")
  target_link_libraries(${target} PRIVATE "${object}")
  if(target STREQUAL owner)
    set(precompiled "${folder}/CMakeFiles/${owner}.dir/cmake_pch.hxx.pch")
    string(TOUPPER "${CMAKE_BUILD_TYPE}" configuration)
    separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${configuration}}")
    list(FILTER flags EXCLUDE REGEX "^-D")
    # Of a target of its own: as a source of the owner it would have to be there before the precompiled headers are.
    add_custom_command(OUTPUT "${object}" DEPENDS "${precompiled}" VERBATIM
                       COMMAND "${CMAKE_CXX_COMPILER}" ${flags} ${optimise} -Wno-pass-failed -c "${precompiled}" -o "${object}")
    add_custom_target(${owner}-inline DEPENDS "${object}")
  endif()
endfunction()
