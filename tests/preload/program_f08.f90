! SPDX-FileCopyrightText: 2026 The omni authors
! SPDX-License-Identifier: BSL-1.0
!
! A program that knows nothing of omni, with the mpi_f08 module.

program reduces
  use mpi_f08
  implicit none
  integer, parameter :: n = 30000
  integer :: rank, ranks
  type(MPI_Request) :: request
  double precision, asynchronous :: x(n)
  double precision :: y(n)
  logical :: right

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  x = 0
  x(1:100) = rank
  call MPI_Allreduce(x, y, n, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD)
  right = y(1) == ranks - 1 .and. y(n) == 0
  call MPI_Allreduce(MPI_IN_PLACE, y, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  right = right .and. y(100) == ranks * (ranks - 1) .and. y(101) == 0
  call MPI_Iallreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  right = right .and. x(100) == ranks * (ranks - 1) / 2
  y = merge(3, 0, rank == 0)
  call MPI_Bcast(y, n, MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD)
  right = right .and. all(y == 3)
  call MPI_Ireduce(y, x, n, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  if (rank == 0) right = right .and. all(x == 3 * ranks)
  call MPI_Finalize()
  if (.not. right) stop 1
  if (rank == 0) print '(a)', 'all right'
end program
