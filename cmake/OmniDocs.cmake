# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0

# cmake --build build --target docs: pages of the public headers, in build/.../docs/html, where Doxygen is. A warning is an error.
find_package(Doxygen QUIET)
if(NOT DOXYGEN_FOUND)
  return()
endif()
set(DOXYGEN_EXCLUDE "${PROJECT_SOURCE_DIR}/include/omni/detail" "${PROJECT_SOURCE_DIR}/include/omni/engines.hpp"
                    "${PROJECT_SOURCE_DIR}/include/omni/compiled.hpp")
set(DOXYGEN_EXCLUDE_SYMBOLS omni::detail omni::detail::* *_DETAIL_*)
set(DOXYGEN_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/docs")
set(DOXYGEN_STRIP_FROM_PATH "${PROJECT_SOURCE_DIR}/include")
set(DOXYGEN_EXTRACT_ALL YES)
set(DOXYGEN_HAVE_DOT NO)
set(DOXYGEN_QUIET YES)
set(DOXYGEN_WARN_AS_ERROR YES)
doxygen_add_docs(docs "${PROJECT_SOURCE_DIR}/include/omni")
if(OMNI_BUILD_TESTS)
  add_test(NAME ${OMNI_TEST_PREFIX}docs COMMAND ${CMAKE_COMMAND} --build "${PROJECT_BINARY_DIR}" --target docs)
  set_tests_properties(${OMNI_TEST_PREFIX}docs PROPERTIES TIMEOUT 300 LABELS docs)
endif()
