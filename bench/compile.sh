#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# What a call costs to compile: seconds of a translation unit, as a ratio to mpi.h and the standard headers alone, and bytes of code.
set -euo pipefail
export LC_ALL=C  # numbers with a decimal point
cd "$(dirname "$0")/.."

usage() {
  cat <<'EOF'
usage: bash bench/compile.sh [--compiler NAME] [--flags "..."] [--repeats N] [--include DIR]

  --compiler NAME   (default g++)
  --flags "..."     (default -O2)
  --repeats N       of each, in turn; the median counts (default 3)
  --include DIR     another version of the headers, measured in turn with this one
EOF
}
compiler=g++ flags=-O2 repeats=3 other=
while [ $# -gt 0 ]; do
  case "$1" in
    --compiler) compiler=${2:?}; shift 2 ;;
    --flags) flags=${2:?}; shift 2 ;;
    --repeats) repeats=${2:?}; shift 2 ;;
    --include) other=${2:?}; shift 2 ;;
    --help | -h) usage; exit 0 ;;
    *) echo "bench/compile.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
  esac
done
# shellcheck source=tests/support/install.sh
. tests/support/install.sh
need "$compiler:$compiler" mpicxx:libopenmpi-dev size:binutils

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
headers='#include <mpi.h>
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>
'
omni='#include <omni/allreduce.hpp>
'
call() { printf 'void f%s(MPI_Comm c, std::span<%s> x) { %s; }\n' "$1" "$2" "$3"; }
{ printf '%s' "$headers"; echo 'void f1(MPI_Comm, std::span<float>) {}'; } > "$work/headers.cpp"
{ printf '%s' "$headers$omni"; echo 'void f1(MPI_Comm, std::span<float>) {}'; } > "$work/included.cpp"
{ printf '%s' "$headers$omni"; call 1 float 'omni::allreduce(c, x)'; } > "$work/one.cpp"
{
  printf '%s' "$headers$omni"
  call 1 float 'omni::allreduce(c, x)'
  call 2 double 'omni::allreduce(c, x)'
  call 3 int 'omni::allreduce(c, x, omni::max{})'
  call 4 long 'omni::iallreduce(c, x).wait()'
} > "$work/four.cpp"

pairs() { printf 'auto p%s(MPI_Comm c, std::span<%s> k, std::span<%s> v) { return omni::allreduce(c, omni::sparse_view{k, v}%s); }\n' "$@"; }
{ printf '%s' "$headers" '#include <omni/sparse.hpp>
'; pairs 1 unsigned float ''; } > "$work/pairs.cpp"
{ cat "$work/pairs.cpp"; pairs 2 'unsigned long' double ''; pairs 3 unsigned int ', omni::max{}'; pairs 4 'unsigned long' float ''; } > "$work/four-pairs.cpp"

read -ra mpi <<< "$(mpicxx --showme:compile 2> /dev/null || mpicxx -compile-info | cut -d' ' -f2-)"
read -ra options <<< "$flags"
TIMEFORMAT='%U %S'
for unit in one four pairs four-pairs; do { echo '#define OMNI_COMPILED'; cat "$work/$unit.cpp"; } > "$work/$unit-compiled.cpp"; done
seconds() { # source, include folder: of the processor
  { time "$compiler" -std=c++20 "${options[@]}" "${mpi[@]}" -I"$2" -c "$work/$1.cpp" -o "$work/$1.o" 2> "$work/log"; } 2> "$work/time" ||
    { cat "$work/log" >&2; echo "bench/compile.sh: $1 does not compile with $2" >&2; return 1; }
  awk '{print $1 + $2}' "$work/time"
}
median() { sort -n "$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

versions=(include ${other:+"$other"})
for _ in $(seq "$repeats"); do
  for v in "${!versions[@]}"; do
    units="headers included one four pairs four-pairs"
    [ -e "${versions[$v]}/omni/compiled.hpp" ] && units="$units one-compiled four-compiled pairs-compiled four-pairs-compiled"
    for unit in $units; do seconds $unit "${versions[$v]}" >> "$work/$v.$unit"; size "$work/$unit.o" | awk 'END {print $1}' > "$work/$v.$unit.size"; done
  done
done
"$compiler" --version | sed 's/^/# /;q'
for v in "${!versions[@]}"; do
  base=$(median "$work/$v.headers")
  echo "# ${versions[$v]}, $flags"
  printf '%-44s %9s %9s %10s\n' "a translation unit" seconds "x headers" "code bytes"
  while read -r unit what; do
    [ -e "$work/$v.$unit" ] || continue
    printf '%-44s %9.2f %9.1f %10d\n' "$what" "$(median "$work/$v.$unit")" "$(awk "BEGIN {print $(median "$work/$v.$unit") / $base}")" "$(cat "$work/$v.$unit.size")"
  done <<EOF
headers mpi.h and the standard headers alone
included omni/allreduce.hpp included, nothing called
one one call
four four calls: float, double, int, long
one-compiled one call, linking omni::compiled
four-compiled four calls, linking omni::compiled
pairs one key-value call
pairs-compiled one key-value call, linking omni::compiled
EOF
  while read -r first all what; do
    [ -e "$work/$v.$first" ] || continue
    awk -v a="$(median "$work/$v.$first")" -v b="$(median "$work/$v.$all")" -v base="$base" -v s="$(cat "$work/$v.$first.size")" \
      -v t="$(cat "$work/$v.$all.size")" -v what="$what" \
      'BEGIN {printf "%-44s %9.2f %9.1f %10d\n", what, (b - a) / 3, (b - a) / 3 / base, (t - s) / 3}'
  done <<EOF
one four each further type or operation
one-compiled four-compiled each further type or operation, so
pairs four-pairs each further key, type or operation
pairs-compiled four-pairs-compiled each further key, type or operation, so
EOF
done
