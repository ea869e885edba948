#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# run.sh WHAT LIBRARY COMMAND...: runs the command, an mpirun with a program that knows nothing of omni, and says whether
#
#   plain     it succeeds by itself
#   forced    it succeeds under the library with OMNI_FORCE=1, and calls were handled
#   default   it succeeds under the library as it is, and counts are printed
#   quiet     the same without OMNI_TRACE: nothing is printed but what the program prints
#   timeout   the ranks that wait for one that never comes are told when OMNI_TIMEOUT is over
#   disabled  it succeeds with OMNI_DISABLE=1, and nothing is printed

set -uo pipefail
what=$1 library=$2
shift 2
said=$(mktemp)
trap 'rm -f "$said"' EXIT

preload=(env "LD_PRELOAD=$library")
case "$what" in
  plain) "$@" 2> "$said" ;;
  forced) "${preload[@]}" OMNI_FORCE=1 OMNI_TRACE=1 "$@" 2> "$said" ;;
  default) "${preload[@]}" OMNI_TRACE=1 "$@" 2> "$said" ;;
  quiet) "${preload[@]}" OMNI_FORCE=1 "$@" 2> "$said" ;;
  timeout) "${preload[@]}" OMNI_FORCE=1 OMNI_TIMEOUT=1 "$@" 2> "$said" ;;
  disabled) "${preload[@]}" OMNI_DISABLE=1 OMNI_FORCE=1 OMNI_TRACE=1 "$@" 2> "$said" ;;
  *) echo "run.sh: unknown: $what" >&2; exit 2 ;;
esac
status=$?
cat "$said" >&2
if [ "$what" = timeout ]; then
  grep -q 'omni preload: .*waited' "$said" && grep -q 'rank [02] was told' "$said" && exit
  echo "run.sh: nobody was told" >&2
  exit 1
fi
if [ $status != 0 ]; then
  echo "run.sh: exit status $status" >&2
  exit 1
fi

lines=$(grep -cE '^omni preload: calls=[0-9]+ handled=[0-9]+ bytes_saved=-?[0-9]+$' "$said")
case "$what" in
  forced) [ "$lines" = 1 ] && grep -qE '^omni preload: calls=[1-9][0-9]* handled=[1-9][0-9]* ' "$said" ;;
  default) [ "$lines" = 1 ] ;;
  *) ! grep -q 'omni' "$said" ;;
esac || { echo "run.sh: $what, and $lines lines of counts, or with none handled" >&2; exit 1; }
