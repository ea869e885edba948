! SPDX-FileCopyrightText: 2026 The omni authors
! SPDX-License-Identifier: BSL-1.0
!
! A program that knows nothing of omni, with mpif.h. One
! type only: compilers compare calls of what has no interface.

      program reduces
      implicit none
      include 'mpif.h'
      integer n
      parameter (n = 30000)
      integer error, rank, ranks, i, request, wrong, level
      integer status(MPI_STATUS_SIZE)
      double precision x(n), y(n), z(n)

      call MPI_INIT_THREAD(MPI_THREAD_SINGLE, level, error)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, error)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, error)
      wrong = 0
      do i = 1, n
        x(i) = 0
        if (i .le. 100) x(i) = rank
        z(i) = rank
      end do
      call MPI_ALLREDUCE(x, y, n, MPI_DOUBLE_PRECISION, MPI_MAX,
     &                   MPI_COMM_WORLD, error)
      if (y(1) .ne. ranks - 1 .or. y(n) .ne. 0) wrong = wrong + 1
      call MPI_ALLREDUCE(MPI_IN_PLACE, x, n, MPI_DOUBLE_PRECISION,
     &                   MPI_SUM, MPI_COMM_WORLD, error)
      if (x(100) .ne. ranks * (ranks - 1) / 2) wrong = wrong + 1
      if (x(101) .ne. 0) wrong = wrong + 1
      call MPI_IALLREDUCE(MPI_IN_PLACE, z, n, MPI_REAL8, MPI_SUM,
     &                    MPI_COMM_WORLD, request, error)
      call MPI_WAIT(request, status, error)
      if (z(n) .ne. ranks * (ranks - 1) / 2) wrong = wrong + 1
      if (wrong .ne. 0) print *, 'rank', rank, ':', wrong, ' errors'
      call MPI_FINALIZE(error)
      if (wrong .ne. 0) stop 1
      if (rank .eq. 0) print *, 'all right'
      end
