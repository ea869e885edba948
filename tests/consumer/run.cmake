# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0

# cmake -DMODE=install|subdirectory|fetched|package|compiled|cuda|broken_cuda|refused|pkg_config ... -P run.cmake

set(prefix "${WORK}/prefix")
set(build "${WORK}/${MODE}")
string(REPLACE "|" ";" launcher "${LAUNCHER}")

function(must)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endfunction()

set(configure
    "${CMAKE_COMMAND}" -G "${GENERATOR}" -S "${HERE}/${MODE}" -B "${build}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DMPI_CXX_COMPILER=${MPI_COMPILER}" "-DCMAKE_PREFIX_PATH=${prefix}" "-DOMNI_SOURCE=${OMNI_SOURCE}" "-DWITH_BOOST=${WITH_BOOST}")

if(MODE STREQUAL "cuda")
  list(APPEND configure "-DCMAKE_CUDA_COMPILER=${CUDA_COMPILER}" "-DCMAKE_CUDA_HOST_COMPILER=${CUDA_HOST_COMPILER}" -DCMAKE_CUDA_ARCHITECTURES=80)
endif()

if(MODE STREQUAL "install")
  # Moved after installing: nothing in it may know where it was.
  file(REMOVE_RECURSE "${WORK}")
  must("${CMAKE_COMMAND}" --install "${OMNI_BUILD}" --prefix "${WORK}/elsewhere" --strip)  # what is for debuggers does know
  file(RENAME "${WORK}/elsewhere" "${prefix}")
  file(GLOB_RECURSE files LIST_DIRECTORIES FALSE "${prefix}/*")
  string(REGEX REPLACE "([][+.*()^?$|\\])" "\\\\\\1" source "${OMNI_SOURCE}")  # a path is no regular expression
  foreach(file IN LISTS files)
    file(STRINGS "${file}" lines REGEX "${source}")
    if(lines)
      message(FATAL_ERROR "${file} names the source directory: ${lines}")
    endif()
  endforeach()
  string(REPLACE "|" ";" programs "${PROGRAMS}")
  list(REMOVE_ITEM programs "")
  foreach(program IN LISTS programs)
    if(NOT EXISTS "${prefix}/${program}")
      message(FATAL_ERROR "${program} has not been installed")
    endif()
    if(program MATCHES "omni-info$")
      must(${launcher} "${prefix}/${program}")
    endif()
  endforeach()
elseif(MODE STREQUAL "refused")
  foreach(wanted IN ITEMS 99 0.0)  # one to come; and one before this, whose interface was another
    file(REMOVE_RECURSE "${build}")
    execute_process(COMMAND ${configure} -DWANTED=${wanted} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(result EQUAL 0)
      message(FATAL_ERROR "find_package(omni ${wanted}) took this version")
    endif()
    if(NOT output MATCHES "omniConfig.cmake, version: [0-9]")
      message(FATAL_ERROR "refused, but not for the version:\n${output}")
    endif()
  endforeach()
elseif(MODE STREQUAL "broken_cuda")
  # A compiler that does not work costs omni::cuda and nothing else.
  file(REMOVE_RECURSE "${build}")
  execute_process(COMMAND "${CMAKE_COMMAND}" -G "${GENERATOR}" -S "${OMNI_SOURCE}" -B "${build}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
                          "-DMPI_CXX_COMPILER=${MPI_COMPILER}" -DOMNI_NVCC=/bin/false -DOMNI_BUILD_TESTS=OFF -DOMNI_BUILD_BENCH=OFF
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0 OR NOT output MATCHES "no omni::cuda, /bin/false does not compile C")
    message(FATAL_ERROR "ended with ${result}:\n${output}")
  endif()
elseif(MODE STREQUAL "pkg_config")
  file(MAKE_DIRECTORY "${build}")
  set(ENV{PKG_CONFIG_PATH} "${prefix}/share/pkgconfig")
  execute_process(COMMAND "${PKG_CONFIG}" --cflags --libs omni OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "pkg-config does not know omni")
  endif()
  separate_arguments(flags UNIX_COMMAND "${flags}")
  must("${MPI_COMPILER}" -std=c++20 "${HERE}/main.cpp" ${flags} -o "${build}/consumer")
  must(${launcher} "${build}/consumer")
else()
  file(REMOVE_RECURSE "${build}")
  must(${configure})
  must("${CMAKE_COMMAND}" --build "${build}")
  if(MODE STREQUAL "cuda")
    execute_process(COMMAND "${build}/consumer" RESULT_VARIABLE result)
    if(NOT result MATCHES "^(0|77)$")  # right, or there is no device
      message(FATAL_ERROR "the example ended with ${result}")
    endif()
  else()
    must(${launcher} "${build}/consumer")
  endif()
endif()
