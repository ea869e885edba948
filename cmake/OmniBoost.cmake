# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0

# omni_find_boost(result): whether Boost::mpi is there, and is for the MPI that the project uses: that of a distribution is for one.
include(CheckCXXSourceCompiles)
function(omni_find_boost result)
  if(NOT TARGET Boost::mpi)
    find_package(Boost QUIET COMPONENTS mpi serialization)
  endif()
  if(TARGET Boost::mpi)
    set(CMAKE_REQUIRED_LIBRARIES Boost::mpi MPI::MPI_CXX)
    set(CMAKE_REQUIRED_QUIET ON)
    check_cxx_source_compiles(
      "#include <boost/mpi/communicator.hpp>\nint main() { return static_cast<MPI_Comm>(boost::mpi::communicator()) == MPI_COMM_NULL; }"
      OMNI_BOOST_IS_FOR_THIS_MPI)
    if(OMNI_BOOST_IS_FOR_THIS_MPI)
      set(${result} TRUE PARENT_SCOPE)
      return()
    endif()
    message(STATUS "omni: Boost.MPI is for another MPI")
  endif()
  set(${result} FALSE PARENT_SCOPE)
endfunction()
