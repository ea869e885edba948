#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# Fuzzes what peers may send. See --help.

set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

seconds=600 compiler=clang++ optimise=-O1 build=$here/../../build/fuzz keep=0
usage() {
  cat <<EOF
usage: tests/fuzz/run.sh [--seconds S] [--compiler clang++] [--optimise -O1] [--build DIR] [--keep]

Builds the targets with libFuzzer, the address and the undefined-behaviour sanitizer, and runs each for S seconds ($seconds), beginning with
tests/fuzz/corpus. What crashes is left in DIR/findings and makes the exit status 1.

  --keep  the smallest set of inputs with the same coverage becomes the corpus in the tree
EOF
}
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) seconds=${2:?}; shift ;;
    --compiler) compiler=${2:?}; shift ;;
    --optimise) optimise=${2:?}; shift ;;
    --build) build=${2:?}; shift ;;
    --keep) keep=1 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "tests/fuzz/run.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

mkdir -p "$build/findings"
rc=0
targets=(packets server slots worker)
echo "== compile"
rm -f "$build/fuzz"
if ! "$compiler" -std=c++20 "$optimise" -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -I"$here/../../include" "$here/fuzz.cpp" \
  -o "$build/fuzz" -pthread; then
  echo "== did NOT compile"
  exit 1
fi
for target in "${targets[@]}"; do
  export OMNI_FUZZ=$target
  mkdir -p "$build/$target"
  cp -r "$here/corpus/$target/." "$build/$target/"
  # Buffers are given up on purpose after an error: a process fuzzes for a while only, and the next goes on from its corpus.
  end=$((SECONDS + seconds)) runs=0
  while [ $SECONDS -lt $end ]; do
    if ! timeout $((end - SECONDS + 60)) "$build/fuzz" -max_total_time=$((end - SECONDS)) -runs=20000 -max_len=20000 -detect_leaks=0 -print_final_stats=1 \
      -timeout=20 -rss_limit_mb=4096 -artifact_prefix="$build/findings/$target-" "$build/$target" >"$build/$target.log" 2>&1; then
      tail -40 "$build/$target.log"
      echo "== $target: FOUND something, see $build/findings"
      rc=1
      break
    fi
    n=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log")
    runs=$((runs + ${n:-0}))
  done
  echo "== $target: $runs inputs, $(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$build/$target.log" | tail -1) edges covered, $(ls "$build/$target" | wc -l) inputs kept"
  if [ $keep = 1 ] && [ $rc = 0 ]; then
    rm -rf "$build/merged" && mkdir "$build/merged"
    "$build/fuzz" -merge=1 -detect_leaks=0 "$build/merged" "$build/$target" >/dev/null 2>&1 && rm -f "$here/corpus/$target/"[0-9a-f]* && cp "$build/merged/"* "$here/corpus/$target/"
  fi
done
exit $rc
