# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# A script that knows nothing of omni: mpi4py, with buffers of the standard library.

import array
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
n = 30000
wrong = []


def expect(right, what):
    if not right:
        wrong.append(what)
        print(f"rank {rank}: wrong: {what}", file=sys.stderr)


mine = array.array("d", bytes(8 * n))
mine[rank * 100] = rank + 1.0
total = array.array("d", bytes(8 * n))
world.Allreduce(mine, total, op=MPI.SUM)
expect(total[rank * 100] == rank + 1 and sum(total) == size * (size + 1) / 2, "sum")
world.Allreduce(MPI.IN_PLACE, mine, op=MPI.MAX)
expect(mine == total, "maximum, in place")

counts = array.array("i", [rank] * n)
request = world.Iallreduce(MPI.IN_PLACE, counts, op=MPI.MIN)
flags = array.array("B", [1 << rank % 8] * n)
world.Allreduce(MPI.IN_PLACE, flags, op=MPI.BOR)
request.Wait()
expect(set(counts) == {0}, "minimum, without waiting")
expect(flags[0] == flags[-1] == min(255, (1 << size) - 1), "bits")

root = size - 1
table = array.array("i", [7 if rank == root else 0] * n)
world.Bcast(table, root=root)
expect(set(table) == {7}, "broadcast")
parts = array.array("i", [0] * (n * size))
world.Allgather(array.array("i", [rank] * n), parts)
expect(all(parts[r * n] == parts[r * n + n - 1] == r for r in range(size)), "parts gathered")
share = array.array("i", [0] * n)
world.Reduce_scatter(parts, share)
expect(set(share) == {rank * size}, "parts reduced")
world.Reduce(MPI.IN_PLACE if rank == root else table, table, op=MPI.SUM, root=root)
expect(table[n - 1] == (7 * size if rank == root else 7), "reduced to a root")

expect(world.allreduce(rank) == size * (size - 1) // 2, "objects")
half = world.Split(rank % 2)
ones = array.array("f", [1.0] * n)
half.Allreduce(MPI.IN_PLACE, ones)
expect(ones[n - 1] == half.size, "half of the ranks")
half.Free()

if rank == 0:
    print("all right" if not wrong else f"{len(wrong)} errors")
sys.exit(1 if wrong else 0)
