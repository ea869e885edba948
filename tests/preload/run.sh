#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# run.sh WHAT LIBRARY COMMAND...: runs the command, an mpirun with a program that knows nothing of omni, and says whether
#
#   plain     it succeeds by itself
#   forced    it succeeds under the library with OMNI_FORCE=1, and most calls were handled, of those that wait and of those that do not
#   some      the same, and any were handled
#   default   it succeeds under the library as it is, and calls were handled
#   large     it succeeds with OMNI_PRELOAD_MIN_BYTES above all its tensors: calls are counted, and none handled
#   chained   it succeeds with another library preloaded behind this one, COUNTER, to which comes what is not handled and what is
#             sampled, and nothing else
#   quiet     the same as default without OMNI_TRACE: nothing is printed but what the program prints
#   timeout   the ranks that wait for one that never comes are told when OMNI_TIMEOUT is over
#   disabled  it succeeds with OMNI_DISABLE=1, and nothing is printed, whatever the other variables are
#   wrong     it succeeds with a variable that means nothing: the library says so, and stays out

set -uo pipefail
what=$1 library=$2
shift 2
said=$(mktemp)
trap 'rm -f "$said"' EXIT

preload=(env "LD_PRELOAD=$library")
case "$what" in
  plain) "$@" 2> "$said" ;;
  forced | some) "${preload[@]}" OMNI_FORCE=1 OMNI_TRACE=1 "$@" 2> "$said" ;;
  default) "${preload[@]}" OMNI_TRACE=1 "$@" 2> "$said" ;;
  large) "${preload[@]}" OMNI_TRACE=1 OMNI_PRELOAD_MIN_BYTES=100000000 "$@" 2> "$said" ;;
  chained) env "LD_PRELOAD=$library:$COUNTER" OMNI_FORCE=1 OMNI_TRACE=1 "$@" 2> "$said" ;;
  quiet) "${preload[@]}" OMNI_FORCE=1 "$@" 2> "$said" ;;
  timeout) "${preload[@]}" OMNI_FORCE=1 OMNI_TIMEOUT=1 "$@" 2> "$said" ;;
  disabled) "${preload[@]}" OMNI_DISABLE=1 OMNI_FORCE=1 OMNI_TRACE=1 OMNI_TIMEOUT=3s "$@" 2> "$said" ;;
  wrong) "${preload[@]}" OMNI_FORCE=1 OMNI_TRACE=1 OMNI_PRELOAD_MIN_BYTES=99999999999999999999 "$@" 2> "$said" ;;
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
# Of calls that wait, and of those that do not, where there are any.
most_were_handled() {
  awk '$1 == "calls" { calls += $2; started += $3 } $1 == "handled" { handled += $2; finished += $3 }
       $1 ~ /^MPI_/ && $3 == "calls," { calls += $2; handled += $4; started += $8; finished += $9 }
       END { exit !(handled + finished > 0 && 5 * handled >= 4 * calls && 5 * finished >= 4 * started) }' "$said"
}
case "$what" in
  forced) [ "$lines" = 1 ] && most_were_handled ;;
  default | some) [ "$lines" = 1 ] && grep -qE '^omni preload: calls=[1-9][0-9]* handled=[1-9][0-9]* ' "$said" ;;
  large) [ "$lines" = 1 ] && grep -qE '^omni preload: calls=[1-9][0-9]* handled=0 ' "$said" ;;
  chained)
    # Of the calls that wait: all, those handled, those that dense was tried on beside, and those that came to the other library.
    awk '$1 == "calls" { calls = $2 } $1 == "handled" { handled = $2 } $1 == "counter:" { counted = $2 }
         match($0, /sampled: [0-9]+/) { sampled = substr($0, RSTART + 9, RLENGTH - 9) }
         END { exit !(handled > 0 && calls > handled && counted == calls - handled + sampled) }' "$said"
    ;;
  wrong) [ "$lines" = 0 ] && [ "$(grep -c 'omni preload: off, for omni: OMNI_PRELOAD_MIN_BYTES is' "$said")" -ge 1 ] ;;
  *) ! grep -q 'omni' "$said" ;;
esac || { echo "run.sh: $what, and $lines lines of counts, or with none handled" >&2; exit 1; }
