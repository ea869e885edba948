# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0

# omni_add_mpi_test(name target ranks [argument...]): a ctest that runs the target on so many ranks, and kills it after ten minutes: only a hang is to take so long.
# What Open MPI needs to run unattended, as root, in a container and with more ranks than cores, it gets here.

set(OMNI_TEST_PREFIX "" CACHE STRING "What the names of omni's tests start with")

include(CheckCXXSymbolExists)
set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_CXX)
check_cxx_symbol_exists(OPEN_MPI mpi.h OMNI_MPI_IS_OPEN_MPI)
unset(CMAKE_REQUIRED_LIBRARIES)
find_program(OMNI_TIMEOUT_EXECUTABLE timeout)
mark_as_advanced(OMNI_TIMEOUT_EXECUTABLE)

# The start of a command line that runs on so many ranks, and the environment for it.
function(omni_mpi_launcher ranks command_variable environment_variable)
  set(command)
  set(environment)
  if(OMNI_TIMEOUT_EXECUTABLE)
    list(APPEND command ${OMNI_TIMEOUT_EXECUTABLE} -k 10 600)
  endif()
  list(APPEND command ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks})
  if(OMNI_MPI_IS_OPEN_MPI)
    list(APPEND command --oversubscribe --bind-to none --mca mpi_yield_when_idle 1)
    set(environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none)
  endif()
  set(${command_variable} ${command} PARENT_SCOPE)
  set(${environment_variable} "${environment}" PARENT_SCOPE)
endfunction()

function(omni_add_mpi_test name target ranks)
  omni_mpi_launcher(${ranks} launcher environment)
  set(test ${OMNI_TEST_PREFIX}${name})
  add_test(NAME ${test} COMMAND ${launcher} ${MPIEXEC_PREFLAGS} $<TARGET_FILE:${target}> ${MPIEXEC_POSTFLAGS} ${ARGN})
  set_tests_properties(${test} PROPERTIES TIMEOUT 620 LABELS "mpi;np${ranks}" ENVIRONMENT "${environment}")
endfunction()

# omni_share_headers(target...): these programs link omni::compiled. What they include is compiled once, if the build asks for it.
function(omni_share_headers)
  if(NOT OMNI_PRECOMPILE_TESTS OR OMNI_MPI_TESTS_ONLY)
    return()
  endif()
  set(owner omni-shared-headers)
  set(packages CLI11 nlohmann_json)
  set(others <CLI/CLI.hpp> <nlohmann/json.hpp>)
  if(NOT TARGET ${owner})
    file(CONFIGURE OUTPUT shared_headers.cpp CONTENT "// What is compiled here are the headers.\n")
    add_library(${owner} OBJECT "${CMAKE_CURRENT_BINARY_DIR}/shared_headers.cpp")
    target_link_libraries(${owner} PRIVATE omni::compiled)
    omni_own_target(${owner})
    set(headers <omni/omni.hpp>)
    foreach(package header IN ZIP_LISTS packages others)
      find_package(${package} QUIET)
      if(${package}_FOUND)
        list(PREPEND headers ${header})
      endif()
    endforeach()
    omni_precompile_headers(${owner} ${owner} ${headers})
    omni_compile_inline_once(${owner} ${owner} -O0)
  endif()
  foreach(target IN LISTS ARGN)
    omni_precompile_headers(${target} ${owner})
    omni_compile_inline_once(${target} ${owner} -O0)
    target_link_options(${target} PRIVATE -Wl,--gc-sections)  # CLI11 has functions that call what the C++ library does not export
  endforeach()
endfunction()

# omni_needs_all_cores(name...): of these tests the ranks would wait for those of another. Most tests over MPI start longer than they compute.
function(omni_needs_all_cores)
  list(TRANSFORM ARGN PREPEND "${OMNI_TEST_PREFIX}" OUTPUT_VARIABLE tests)
  set_tests_properties(${tests} PROPERTIES PROCESSORS 3)  # as many tests as run at a time
endfunction()
