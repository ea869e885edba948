! SPDX-FileCopyrightText: 2026 The omni authors
! SPDX-License-Identifier: BSL-1.0
!
! A program that knows nothing of omni, with the mpi module: MPI_ALLREDUCE, MPI_BCAST and their kin, MPI_IN_PLACE, what is left to MPI.

program reduces
  use mpi
  implicit none
  integer, parameter :: n = 30000
  integer :: error, rank, ranks, i, request, wrong, all_wrong, status(MPI_STATUS_SIZE), part, members
  double precision, allocatable :: x(:), y(:)
  real, allocatable :: z(:)
  integer, allocatable :: k(:), kk(:), all_parts(:)
  complex, allocatable :: c(:)
  logical :: yes(1), any_yes(1), done

  call MPI_INIT(error)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, error)
  call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, error)
  allocate (x(n), y(n), z(n), k(n), kk(n), c(n))
  wrong = 0

  x = 0
  x(1 + rank * 1000:500 + rank * 1000) = rank + 1
  call MPI_ALLREDUCE(x, y, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  do i = 1, n
    if (y(i) /= wanted(i)) wrong = wrong + 1
  end do
  call MPI_ALLREDUCE(MPI_IN_PLACE, x, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  if (any(x /= y) .or. error /= MPI_SUCCESS) wrong = wrong + 1

  z = real(rank)
  call MPI_IALLREDUCE(MPI_IN_PLACE, z, n, MPI_REAL, MPI_MAX, MPI_COMM_WORLD, request, error)
  k = (/(mod(i, 10) + rank, i = 1, n)/)
  call MPI_ALLREDUCE(k, kk, n, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, error)
  call MPI_WAIT(request, status, error)
  if (any(z /= real(ranks - 1)) .or. any(kk /= k - rank)) wrong = wrong + 1
  call MPI_IALLREDUCE(k, kk, n, MPI_INTEGER, MPI_BAND, MPI_COMM_WORLD, request, error)
  done = .false.
  do while (.not. done)
    call MPI_TEST(request, done, status, error)
  end do

  k = merge(7, 0, rank == ranks - 1)
  call MPI_BCAST(k, n, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, error)
  if (any(k /= 7) .or. error /= MPI_SUCCESS) wrong = wrong + 1
  call MPI_REDUCE(k, kk, n, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, error)
  if (rank == 0 .and. any(kk /= 7 * ranks)) wrong = wrong + 1
  if (rank == 0) call MPI_REDUCE(MPI_IN_PLACE, k, n, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, error)
  if (rank /= 0) call MPI_REDUCE(k, k, n, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, error)
  if (any(k /= merge(7 * ranks, 7, rank == 0))) wrong = wrong + 1
  allocate (all_parts(n * ranks))
  k = rank
  call MPI_IALLGATHER(k, n, MPI_INTEGER, all_parts, n, MPI_INTEGER, MPI_COMM_WORLD, request, error)
  call MPI_WAIT(request, status, error)
  do i = 0, ranks - 1
    if (any(all_parts(1 + i * n:n + i * n) /= i)) wrong = wrong + 1
  end do
  call MPI_REDUCE_SCATTER_BLOCK(all_parts, kk, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  if (any(kk /= rank * ranks)) wrong = wrong + 1

  c = cmplx(rank, 1)
  call MPI_ALLREDUCE(MPI_IN_PLACE, c, n, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, error)
  if (any(c /= cmplx(ranks * (ranks - 1) / 2, ranks))) wrong = wrong + 1

  yes = rank == 0
  call MPI_ALLREDUCE(yes, any_yes, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, error)
  if (.not. any_yes(1)) wrong = wrong + 1

  call MPI_COMM_SPLIT(MPI_COMM_WORLD, mod(rank, 2), rank, part, error)
  call MPI_COMM_SIZE(part, members, error)
  z = 1
  call MPI_ALLREDUCE(MPI_IN_PLACE, z, n, MPI_REAL, MPI_SUM, part, error)
  if (any(z /= real(members))) wrong = wrong + 1
  call MPI_COMM_FREE(part, error)

  call MPI_REDUCE(wrong, all_wrong, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, error)
  if (rank == 0 .and. all_wrong == 0) print '(a)', 'all right'
  if (rank == 0 .and. all_wrong /= 0) print '(i0,a)', all_wrong, ' errors'
  call MPI_FINALIZE(error)
  if (wrong /= 0) stop 1

contains

  double precision function wanted(at)
    integer, intent(in) :: at
    integer :: r
    wanted = 0
    do r = 0, ranks - 1
      if (at > r * 1000 .and. at <= r * 1000 + 500) wanted = wanted + r + 1
    end do
  end function

end program
