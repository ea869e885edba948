#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# Builds and tests everything, from a fresh clone. See --help.

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

usage() {
  cat <<'EOF'
usage: tests/run.sh [--full] [--parts LIST] [--mpi openmpi|mpich] [--help]

Installs what is missing (Debian and Ubuntu, as root or with sudo; elsewhere it says what is missing and stops), builds into build/,
and ends with one ctest over all of it. Without --full all tests run once, unoptimised, with fewer rank counts and random draws.
They are compiled with clang++, which takes half the time. g++ compiles CUDA's (the tests and one example) and MPICH's (what omni asks
of MPI, on two ranks, and ranks that fail). The unit tests that read what peers send, or are about memory, run under the address
sanitizer. Of the headers those that users name are compiled alone. clang-format looks at all sources.

  --full       in these parts:
    default    everything, -O2, all rank counts, examples, consumers, what must not compile, each header alone; CUDA where nvcc is;
               each header alone with every compiler that README.md names
    asan tsan  the unit tests under the sanitizers (ranks are threads)
    mpich      the MPI tests on 2, 3 and 4 ranks, where MPICH is installed
    clang      unit tests, and in clang-mpi the MPI tests on 2 ranks, with clang++
    gcc-11     the MPI tests on 3 ranks with g++ 11, where it is
    lint       clang-format over all sources, clang-tidy over a few that include all headers
  --parts LIST only these of the above, such as asan,tsan
  --mpi WHICH  openmpi (default), or mpich for the default part too; Boost.MPI is left out then
  OMNI_JOBS=n  that many compilers at a time (default: one for each core)

The exit status is 0 if everything built and every test passed.
EOF
}

quick=1 compiler=() parts=
mpi=openmpi
while [ $# -gt 0 ]; do
  case "$1" in
    --full) quick=0 ;;
    --parts) parts=${2:-}; shift ;;
    --parts=*) parts=${1#--parts=} ;;
    --mpi) mpi=${2:-}; shift ;;
    --mpi=*) mpi=${1#--mpi=} ;;
    -h | --help) usage; exit 0 ;;
    *) echo "tests/run.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
case "$mpi" in openmpi | mpich) ;; *) echo "tests/run.sh: --mpi openmpi or mpich, not '$mpi'" >&2; exit 2 ;; esac

for part in ${parts//,/ }; do
  case "$part" in
    default | asan | tsan | mpich | clang | clang-mpi | gcc-11 | lint) ;;
    *) echo "tests/run.sh: --parts has no '$part'" >&2; usage >&2; exit 2 ;;
  esac
done
wanted() { [ -z "$parts" ] || [[ ",$parts," == *",$1,"* ]]; }
have() { command -v "$1" >/dev/null 2>&1; }

# ---- what is needed

# shellcheck source=tests/support/install.sh
. tests/support/install.sh
needed=(cmake:cmake ninja:ninja-build g++:g++ pkg-config:pkg-config include/doctest/doctest.h:doctest-dev include/CLI/CLI.hpp:libcli11-dev
  include/nlohmann/json.hpp:nlohmann-json3-dev)
if [ "$mpi" = openmpi ]; then
  needed+=(mpirun:openmpi-bin mpicxx:libopenmpi-dev include/boost/mpi.hpp:libboost-mpi-dev
    include/boost/serialization/access.hpp:libboost-serialization-dev)
  # For the tests of libomni_preload.so, which are left out without.
  have apt-get && needed+=(gfortran:gfortran /usr/lib/python3/dist-packages/mpi4py/__init__.py:python3-mpi4py)
fi
if [ "$mpi" = mpich ] || have dpkg; then
  needed+=(mpiexec.mpich:mpich mpicxx.mpich:libmpich-dev)
fi
if [ $quick = 0 ] || have apt-get; then needed+=(clang++:clang clang-format:clang-format); fi
[ $quick = 1 ] || needed+=(clang-tidy:clang-tidy)
# For the detector over Thrust, whose tests are left out without.
[ $quick = 1 ] && have apt-get && needed+=("/usr/lib/llvm-*/lib/clang/*/include/omp.h:libomp-dev")
have apt-get && needed+=(include/thrust/version.h:libthrust-dev include/tbb/tbb.h:libtbb-dev)
have apt-get && needed+=(/sbin/tc:iproute2 include/bpf/libbpf.h:libbpf-dev)  # for the tests between hosts, which are left out without
need "${needed[@]}"
# Every compiler that README.md names.
want doxygen:doxygen g++-11:g++-11 g++-12:g++-12 clang++-14:clang-14 clang++-16:clang-16 aarch64-linux-gnu-g++:g++-aarch64-linux-gnu

# ---- building; each part that does not build is a failed test of the ctest at the end

jobs=${OMNI_JOBS:-$(nproc 2>/dev/null || echo 2)}
generator=()
keep_going=()
have ninja && generator=(-G Ninja) && keep_going=(-- -k 0)
all=$PWD/build/all
rm -rf "$all"
mkdir -p "$all"
list=$all/CTestTestfile.cmake

add_test() { # name, seconds, command...
  local name=$1 seconds=$2
  shift 2
  local test
  test=$(printf 'add_test([=[%s]=]' "$name"; printf ' [=[%s]=]' "$@"; printf ')\nset_tests_properties([=[%s]=] PROPERTIES TIMEOUT %s)' "$name" "$seconds")
  printf '%s\n' "$test" >>"$list"  # at once: two builds may end at the same time
}
# What a preset does not name would stay as another one, which was here before, has set it.
forget_other_preset() { # folder, preset and what else is configured with
  [ "$(cat "$1/preset.txt" 2>/dev/null)" = "$2" ] || rm -f "$1/CMakeCache.txt"
  mkdir -p "$1"
  echo "$2" >"$1/preset.txt"
}
build() { # part, preset, targets (or nothing for all), and after -- what else to configure with
  local part=$1 preset=$2 targets=$3 start=$SECONDS log=$PWD/build/$1.log rc=0
  shift 3
  wanted "${part%-mpich}" || return 0
  echo "== $part: configure and build"
  # A directory that another generator configured is of no use.
  if have ninja && [ -e "build/$part/CMakeCache.txt" ] && ! grep -q '^CMAKE_GENERATOR:INTERNAL=Ninja$' "build/$part/CMakeCache.txt"; then
    rm -rf "build/$part"
  fi
  forget_other_preset "build/$part" "$preset${*:+ $*}"
  cmake --preset "$preset" -B "build/$part" "${generator[@]}" "$@" </dev/null >"$log" 2>&1 &&
    cmake --build "build/$part" -j "$jobs" ${targets:+--target $targets} ${keep_going[@]+"${keep_going[@]}"} </dev/null >>"$log" 2>&1 || rc=1
  if [ $rc != 0 ]; then
    grep -E -A3 'error|Error|FAILED' "$log" | head -60
    echo "== $part: did NOT build; all of it in $log"
  else
    echo "== $part: built in $((SECONDS - start)) s"
  fi
  add_test "build.$part" 10 bash -c "exit $rc"
  printf 'subdirs([=[%s]=])\n' "$PWD/build/$part" >>"$list"
}

if [ $quick = 1 ]; then
  preset=quick
  have clang++ && compiler=(-DCMAKE_CXX_COMPILER=clang++)
else
  preset=default
fi
if [ "$mpi" = mpich ]; then
  build default-mpich $preset "" ${compiler[@]+"${compiler[@]}"} -DMPI_CXX_COMPILER=mpicxx.mpich -DMPIEXEC_EXECUTABLE=mpiexec.mpich
  database=build/default-mpich
else
  build default $preset "" ${compiler[@]+"${compiler[@]}"}
  database=build/default
fi
second_mpi() { [ "$mpi" != mpich ] && have mpicxx.mpich && have mpiexec.mpich; }
mapfile -t sources < <(find include tests bench examples -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' | sort)
if [ $quick = 1 ]; then
  # Beside each other: each has a step that others wait for. g++ has warnings that only its optimiser finds.
  second_mpi && { build mpich mpich "" -DCMAKE_CXX_FLAGS_DEBUG="-O0 -g0" -DCMAKE_CXX_FLAGS=-DOMNI_TEST_FEW "-DOMNI_COMPILED_OPTIONS=-O3;-DNDEBUG" \
    -DOMNI_TEST_RANKS=2 -DOMNI_TEST_MESSAGE_RANKS=2 -DOMNI_TEST_FAULT_RANKS=3 "-DOMNI_MPI_TESTS_EXCLUDE=(matrix_|encoded|sweep|sparse|device|plans|large|.*levels)" & } && beside=$!
  build asan quick-asan "" ${compiler[@]+"${compiler[@]}"}
  [ -z "${beside:-}" ] || wait "$beside" || add_test build.mpich.ended 10 false
  wanted lint && have clang-format && add_test lint.format 120 clang-format --dry-run -Werror "${sources[@]}"
else
  build asan asan ""
  build tsan tsan ""
  second_mpi && build mpich mpich ""
  build clang clang "" -DOMNI_UNIT_TESTS_ONLY=ON -DOMNI_UNIT_TESTS_EXCLUDE=matrix_
  have g++-11 && build gcc-11 gcc-11 ""
  build clang-mpi clang "" -DOMNI_MPI_TESTS_ONLY=ON -DOMNI_TEST_RANKS=2 -DOMNI_TEST_MESSAGE_RANKS=2

  if wanted lint; then
    wanted default || forget_other_preset "$database" default
    wanted default || cmake --preset default -B "$database" "${generator[@]}" </dev/null >/dev/null 2>&1
    add_test lint.format 120 clang-format --dry-run -Werror "${sources[@]}"
    add_test lint.tidy 600 clang-tidy --quiet -p "$database" tests/headers/one.cpp
  fi
fi

# ---- testing

# Tests of lint start here, all others in the directories that their lists name.
sed -i "s|^set_tests_properties(\[=\[lint\.\([a-z]*\)\]=\] PROPERTIES|& WORKING_DIRECTORY [=[$PWD]=]|" "$list"
[ -s "$list" ] || { echo "tests/run.sh: nothing to test of --parts $parts: it needs --full, or a compiler or MPI that is not here" >&2; exit 1; }
echo "== ctest"
exec ctest --test-dir "$all" --output-on-failure -j 3 </dev/null
