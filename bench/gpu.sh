#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# Tests and measures the device path on a GPU machine, with what is there and without network. See --help.

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

usage() {
  cat << 'EOF'
usage: bench/gpu.sh [--dry-run] [--only LIST] [--arch sm_NN] [--mib N] [--call-mib N] [--help]

Needs nvcc and g++ with C++20, and nothing else: no CMake, no MPI, no packages. Ranks are threads on one GPU. Compiles the GPU tests, the
benchmark and the examples; runs the tests; runs them again under compute-sanitizer (memcheck, racecheck), if it is there; then measures
what memory gives, detection, detection with compaction, scatter, fold, expand, and whole allreduces on the device against those folded
on the host and against copying the dense tensor through the host; and NCCL's, where NCCL is. Prints a table, with what each figure
should come to; leaves it and its JSON in build/gpu.

  --dry-run    compile everything for sm_80 and sm_90 and run what needs no device
  --only LIST  only these, of build,test,measure,memcheck,racecheck, which is also the order: a machine may be lent for minutes
  --arch A     compile for this architecture (default: that of the machine's GPU)
  --mib N      size of the tensor that kernels are measured on (default 1024; it takes six times that of device memory)
  --call-mib N size of the tensor of whole calls (default 256)

The exit status is 0 if all that was run has passed.
EOF
}

dry=0 only= arch='' mib=1024 call_mib=256
while [ $# -gt 0 ]; do
  case "$1" in
    --dry-run) dry=1 ;;
    --only) only=${2:-}; shift ;;
    --arch) arch=${2:-}; shift ;;
    --mib) mib=${2:-}; shift ;;
    --call-mib) call_mib=${2:-}; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "bench/gpu.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

tool() { # name: on the path, or where CUDA is usually installed
  local d
  command -v "$1" 2> /dev/null && return
  for d in "${CUDA_HOME:-}/bin" /usr/local/cuda/bin /usr/local/cuda/compute-sanitizer /opt/nvidia/cuda/bin; do
    [ -x "$d/$1" ] && { echo "$d/$1"; return; }
  done
  return 1
}
nvcc=$(tool nvcc) || { echo "bench/gpu.sh: no nvcc, on the path or in /usr/local/cuda/bin" >&2; exit 1; }
out=$PWD/build/gpu
mkdir -p "$out"
failed=0

# ---- what to compile for

if [ $dry = 1 ]; then
  code=(-gencode "arch=compute_80,code=sm_80" -gencode "arch=compute_90,code=sm_90")
elif [ -n "$arch" ]; then
  code=(-arch="$arch")
else
  code=(-arch=native)
fi
[ -n "$arch" ] && code=(-arch="$arch")
wanted() { [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]; }
for part in ${only//,/ }; do
  case "$part" in
    build | test | measure | memcheck | racecheck) ;;
    *) echo "bench/gpu.sh: --only has no '$part'" >&2; usage >&2; exit 2 ;;
  esac
done
flags=(-std=c++20 -O2 "${code[@]}" -Iinclude "-Xcompiler=-pthread")
# Other compilers have other warnings, which are no reason to measure nothing.
[ $dry = 1 ] && flags+=(-Werror=all-warnings "-Xcompiler=-Wall,-Wextra,-Wconversion,-Wshadow,-Werror")
libraries=()
# With an mpi.h in the compiler's path the headers use it: then its library is needed, too, or the header is kept out of sight.
if echo '#include <mpi.h>' | g++ -E -x c++ - > /dev/null 2>&1; then
  if printf '#include <mpi.h>\nint main() { return MPI_Init(nullptr, nullptr); }\n' | g++ -x c++ - -o "$out/probe" -lmpi > /dev/null 2>&1; then
    libraries+=(-lmpi)
  else
    echo "== there is an mpi.h, and no libmpi to link with: CPATH and the like are left out"
    unset CPATH CPLUS_INCLUDE_PATH C_INCLUDE_PATH
  fi
fi
# NCCL as a package of the system, or of Python.
nccl=()
if printf '#include <nccl.h>\n' | "$nvcc" -E -x cu - > /dev/null 2>&1 && { printf 'int main() {}\n' | "$nvcc" -x cu - -o "$out/probe" -lnccl > /dev/null 2>&1; }; then
  nccl=(-DOMNI_BENCH_NCCL=1 -lnccl)
elif at=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])' 2> /dev/null) && [ -e "$at/include/nccl.h" ]; then
  nccl=(-DOMNI_BENCH_NCCL=1 "-I$at/include" "-Xlinker=$at/lib/libnccl.so.2" "-Xlinker=-rpath,$at/lib")
fi
rm -f "$out/probe"

compile() { # name, source, more flags...
  local name=$1 source=$2 start=$SECONDS
  shift 2
  if "$nvcc" "${flags[@]}" "$source" -o "$out/$name" "$@" ${libraries[@]+"${libraries[@]}"} > "$out/$name.log" 2>&1; then
    echo "== compiled $name in $((SECONDS - start)) s"
  else
    echo "== $name does NOT compile"
    head -40 "$out/$name.log"
    return 1
  fi
}
pids=()
start() { # as compile; all at once where there are cores for it
  rm -f "$out/$1"
  compile "$@" &
  pids+=($!)
  [ "$(nproc 2> /dev/null || echo 1)" -ge 4 ] || wait $! || failed=1
}
if wanted build; then
  start bench bench/gpu/device.cu ${nccl[@]+"${nccl[@]}"}
  start tests tests/cuda/device.cu -Xcompiler=-O1
  start example-tensor examples/cuda/tensor.cu
  start example-embedding examples/cuda/embedding.cu
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  [ $failed = 0 ] || exit 1
fi

# ---- running

limit=600
run() { # what, command...
  local what=$1 rc=0
  shift
  echo "== $what"
  timeout -k 10 "$limit" "$@" || rc=$?
  case $rc in
    0) ;;
    77) echo "== $what: SKIPPED, there is no device" ;;
    124 | 137) echo "== $what: did NOT end within $limit s"; failed=1 ;;
    *) echo "== $what: FAILED with $rc"; failed=1 ;;
  esac
}

if [ $dry = 1 ]; then
  for name in tests bench example-tensor example-embedding; do run "$name" "$out/$name"; done
  # The same kernels and the same path, thread by thread on the host, where doctest is installed.
  if [ -e /usr/include/doctest/doctest.h ]; then
    if g++ -std=c++20 -O0 -Iinclude -Itests -Itests/support -pthread tests/unit/main.cpp tests/unit/device_kernels.cpp tests/unit/device_path.cpp \
      tests/unit/device_exchange.cpp tests/unit/device_staged.cpp \
      -o "$out/host-tests" > "$out/host-tests.log" 2>&1; then
      run "the device path on the host" "$out/host-tests"
    else
      head -40 "$out/host-tests.log"
      failed=1
    fi
  fi
  [ $failed = 0 ] && echo "== all compiles; nothing has been measured"
  exit $failed
fi

if wanted test; then
  run "GPU tests" "$out/tests"
  run "example: tensor" "$out/example-tensor"
  run "example: embedding" "$out/example-embedding"
fi
if wanted measure; then
  command -v nvidia-smi > /dev/null 2>&1 && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
  run "measuring" "$out/bench" --mib "$mib" --call-mib "$call_mib" --json "$out/gpu.json" | tee "$out/gpu.txt"
  grep -q 'FAILED\|did NOT end' "$out/gpu.txt" && failed=1  # `run` was a process of its own there
fi

# Not every machine that has a device lets itself be looked into.
works() { # sanitizer
  printf '__global__ void f() {}\nint main() { f<<<1, 1>>>(); return cudaDeviceSynchronize() != cudaSuccess; }\n' > "$out/empty.cu"
  "$nvcc" "${code[@]}" "$out/empty.cu" -o "$out/empty" > /dev/null 2>&1 && timeout 120 "$1" --error-exitcode 1 "$out/empty" > "$out/sanitizer.log" 2>&1
}
for check in memcheck racecheck; do
  wanted $check || continue
  if ! sanitizer=$(tool compute-sanitizer); then echo "== no compute-sanitizer: $check is left out"
  elif ! works "$sanitizer"; then echo "== compute-sanitizer does not work on this machine: $check is left out"
  else
    # Asking an event whether it has happened is no error; the tests look at what every call returns.
    options=(--tool $check --error-exitcode 1)
    how=--least limit=120
    [ $check = racecheck ] || { options+=(--report-api-errors no); how=--quick limit=600; }
    run "GPU tests under compute-sanitizer $check" "$sanitizer" "${options[@]}" "$out/tests" $how
  fi
done
exit $failed
