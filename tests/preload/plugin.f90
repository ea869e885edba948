! SPDX-FileCopyrightText: 2026 The omni authors
! SPDX-License-Identifier: BSL-1.0
!
! What a program loads for itself alone that knows nothing of Fortran: a small call and a large one, by MPI's Fortran binding.
subroutine reduce_in_fortran(right) bind(c)
  use iso_c_binding
  implicit none
  include 'mpif.h'
  integer(c_int), intent(out) :: right
  integer, parameter :: n = 5000
  logical :: all_of_them
  double precision :: x(n)
  integer :: rank, ranks, error
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, error)
  call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, error)
  all_of_them = rank == 0
  error = -1
  call MPI_ALLREDUCE(MPI_IN_PLACE, all_of_them, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, error)
  right = merge(1, 0, error == MPI_SUCCESS .and. (all_of_them .eqv. ranks == 1))
  x = 0
  x(7) = rank
  error = -1
  call MPI_ALLREDUCE(MPI_IN_PLACE, x, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  if (error /= MPI_SUCCESS .or. x(7) /= ranks * (ranks - 1) / 2 .or. x(8) /= 0) right = 0
end subroutine
