# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# run_mpi SECONDS RANKS PROGRAM [ARGUMENT ...]: an mpirun that works as root, in containers and with more ranks than cores, and ends.
# Ranks of one host copy from each other by way of $single_copy (none, unless it is set: cma is forbidden in some containers).
run_mpi() {
  local seconds=$1 ranks=$2
  shift 2
  if mpirun --version 2>&1 | grep -q 'Open MPI'; then
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=${single_copy:-none} \
      timeout --foreground -k 10 "$seconds" mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np "$ranks" "$@" < /dev/null
  else
    timeout --foreground -k 10 "$seconds" mpirun -np "$ranks" "$@" < /dev/null
  fi
}
