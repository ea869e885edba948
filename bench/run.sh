#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# The main job: omni against MPI_Allreduce on this machine. Installs what is missing (Debian, as root or with sudo), builds, runs on 2
# and 4 ranks, and writes table, JSON and picture to build/bench/. Two to eight minutes on 2 cores.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'EOF'
usage: bash bench/run.sh [--ranks "2 4"] [--out DIR] [options of omni-bench-collectives]
       bash bench/run.sh --build PROGRAM

  --ranks "N ..."  numbers of ranks to run on (default "2 4")
  --out DIR        where table, JSON and picture go (default build/bench)
  --build PROGRAM  builds one of bench/'s programs (omni-bench-collectives, omni-bench-key-value, ...), prints its path, and ends
  --help           this, and once the benchmark is built its own options

Everything else goes to the benchmark, for example:  bash bench/run.sh --sizes 1M,64M --densities 1,10 --repeats 15
  --sizes, --densities, --type, --topology, --pattern, --block, --packet, --window, --repeats, --seed, --phases, --out-of-place, ...
Once it is built, --help says what each of them takes.
EOF
}

ranks="2 4" out=build/bench help=no target=omni-bench-collectives only_build=no
args=()
while [ $# -gt 0 ]; do
  case "$1" in
    --ranks) ranks=${2:?--ranks needs numbers}; shift 2 ;;
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    --build) target=${2:?--build needs a program} only_build=yes; shift 2 ;;
    --help|-h) help=yes; shift ;;
    *) args+=("$1"); shift ;;
  esac
done
if [ "$help" = yes ] && [ ! -x build/bench-build/bench/omni-bench-collectives ]; then usage; exit 0; fi

# shellcheck source=tests/support/install.sh
. tests/support/install.sh
need cmake:cmake make:make g++:g++ mpicxx:libopenmpi-dev mpirun:openmpi-bin \
  include/CLI/CLI.hpp:libcli11-dev include/nlohmann/json.hpp:nlohmann-json3-dev
[ "$only_build" = yes ] || python3 -c 'import matplotlib' 2> /dev/null || need /usr/lib/python3/dist-packages/matplotlib:python3-matplotlib

build=build/bench-build
mkdir -p build
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DOMNI_BUILD_TESTS=OFF -DOMNI_BUILD_EXAMPLES=ON -DOMNI_BUILD_BENCH=ON > "$build.log" 2>&1 ||
  { cat "$build.log" >&2; exit 1; }
cmake --build "$build" --target "$target" -j "$(nproc)" >> "$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
program=$build/bench/$target
[ "$target" != omni-switch ] || program=$build/examples/tools/$target
if [ "$only_build" = yes ]; then echo "$program"; exit 0; fi
if [ "$help" = yes ]; then usage; "$program" --help; exit 0; fi

# shellcheck source=tests/support/mpirun.sh
. tests/support/mpirun.sh
trap 'exit 130' INT TERM  # also where mpirun has caught it
export OMPI_MCA_coll_tuned_use_dynamic_rules=1  # lets the benchmark choose Open MPI's algorithm
mkdir -p "$out"
rm -f "$out"/ranks*.json "$out/table.txt"
uname -srm | sed 's/^/# /' | tee "$out/table.txt"
{ grep -m1 'model name' /proc/cpuinfo || uname -m; } | sed 's/.*: //; s/^/# /' | tee -a "$out/table.txt"
echo "# $(nproc) cores, $(awk '/MemTotal/ {printf "%d", $2 / 1048576}' /proc/meminfo) GiB, $(mpirun --version | head -1)" | tee -a "$out/table.txt"

# MPI at its best, too: a program may be in any of these states. Open MPI takes a temporary buffer in each call; a heap that is kept
# does not get its pages anew. cma: one copy from process to process, by the kernel.
settings="kept"
if single_copy=cma run_mpi 60 2 "$program" --sizes 1M --densities 100 --repeats 1 > "$out/cma.txt" 2>&1 && ! grep -q 'Read -1' "$out/cma.txt"; then
  settings="kept cma cma-kept"
else
  echo "# process_vm_readv does not work here: MPI runs without it" | tee -a "$out/table.txt"
fi
rm -f "$out/cma.txt"
in_setting() { # setting, command...
  local setting=$1
  shift
  case $setting in cma*) local single_copy=cma ;; esac
  case $setting in *kept) local -x MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 ;; esac
  "$@"
}
all=()
case " ${args[*]-} " in *" --alone "*) settings="" ;; esac
for n in $ranks; do
  files=()
  for setting in found $settings; do
    echo "# running on $n ranks, $setting" >&2
    file=$out/ranks$n.$setting.json
    few=(--few)
    if [ "$setting" = found ]; then  # MPI's time does not depend on the density
      few=(--choices)
      case " ${args[*]-} " in *" --collective"[\ =]*) few=() ;; esac  # the others have one form
    fi
    in_setting "$setting" run_mpi 600 "$n" "$program" ${args[@]+"${args[@]}"} ${few[@]+"${few[@]}"} --setting "$setting" --json "$file" > "$out/$setting.txt" ||
      { cat "$out/$setting.txt"; exit 1; }
    files+=("$file")
  done
  grep '^# ' "$out/found.txt" | grep -v '^# omni ' | tee -a "$out/table.txt" || true
  all+=("$out/ranks$n.json")
  python3 bench/settings.py --out "$out/ranks$n.json" "${files[@]}" | tee -a "$out/table.txt"
done
rm -f "$out"/{found,kept,cma,cma-kept}.txt
python3=python3
python3 -c 'import matplotlib' 2> /dev/null || python3=/usr/bin/python3  # Debian's, where another comes first
"$python3" bench/plot.py --out "$out/speedup.png" "${all[@]}"
echo "table: $out/table.txt   data: $out/ranks*.json   picture: $out/speedup.png"
