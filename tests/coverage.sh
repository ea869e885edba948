#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# Which lines of include/omni the tests run. See --help.

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

usage() {
  cat <<'EOF'
usage: tests/coverage.sh [--least PERCENT] [--help]

Builds the tests with gcov's counters in build/coverage, runs the unit tests, the MPI tests on 1, 3 and 5 ranks with and without
shared memory, between hosts where root may make them, the fault tests and the Thrust detector's, and prints what share of the lines
and branches of include/omni they have run; each header's in build/coverage/lines.txt. Installs what is missing, as tests/run.sh
does. Takes half an hour on two cores.

  --least PERCENT  of the lines, below which the exit status is 1 (default 95)
EOF
}
least=95
while [ $# -gt 0 ]; do
  case "$1" in
    --least) least=${2:-}; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "tests/coverage.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

# shellcheck source=tests/support/install.sh
. tests/support/install.sh
need cmake:cmake ninja:ninja-build g++:g++ gcovr:gcovr include/doctest/doctest.h:doctest-dev mpirun:openmpi-bin mpicxx:libopenmpi-dev \
  include/boost/mpi.hpp:libboost-mpi-dev include/boost/serialization/access.hpp:libboost-serialization-dev

build=build/coverage
mkdir -p build
jobs=${OMNI_JOBS:-$(nproc)}
cmake --preset coverage -B $build -G Ninja < /dev/null > $build.log 2>&1 &&
  cmake --build $build -j "$jobs" --target omni-unit-tests omni-mpi-tests omni-fault-deadline omni-thrust-cpp omni-fuzz-replay \
    omni-example-minimal omni-environment-ragged omni-environment-locale omni-environment-readme omni-environment-threads < /dev/null >> $build.log 2>&1 || {
  tail -40 $build.log
  exit 1
}
find $build -name '*.gcda' -delete
ctest --test-dir $build --output-on-failure -j 2 -R '^(unit|mpi\.|fault\.|thrust\.cpp|fuzz\.corpus|environment\.|hosts\.levels)' < /dev/null || exit 1

# A line of a template counts as run if it was in any instantiation.
gcovr --root . --filter 'include/omni/' --object-directory $build --gcov-ignore-parse-errors -j "$jobs" \
  --txt $build/lines.txt --print-summary --fail-under-line "$least" $build
rc=$?
echo "each header: $build/lines.txt"
exit $rc
