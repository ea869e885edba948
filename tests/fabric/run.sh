#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# Jobs on an omni-switch in user space: run.sh SWITCH LAUNCHER... APP. Alone; two at a time, of which one is killed; one that finds no
# slots; one that gets those of the job that was killed, when its lease is over; and one whose ranks are at two switches below that one.
set -u
switch=$1
shift
port=$((20000 + $$ % 12000))  # below those that systems give out
log=$(mktemp)
# Room for two jobs. On all addresses of the host: each job gets its answers from the one that it has named.
timeout -k 5 120 "$switch" --listen "0.0.0.0:$port" --slots 64 --lease 3 > "$log" 2>&1 &
switch_pid=$!
below=()
first= second=
trap 'touch "$log.end"; { kill $switch_pid $first "${below[@]}"; [ -z "$second" ] || kill -KILL -- -$second; } 2> /dev/null; rm -f "$log" "$log".*' EXIT
for _ in $(seq 50); do grep -q listens "$log" && break; sleep 0.1; done
job() { "${launcher[@]}" "$app" "127.0.0.1:$port" "$@"; }
launcher=("${@:1:$#-1}")
app=${*: -1}
fail() { echo "$1"; cat "$log"; exit 1; }

job || fail "a job alone"
"${launcher[@]}" "$app" "127.0.0.2:$port" || fail "a job alone, at another address of the switch"
job --until "$log.end" > "$log.first" & first=$!
setsid "${launcher[@]}" "$app" "127.0.0.1:$port" --until "$log.end" > "$log.second" & second=$!
for _ in $(seq 300); do grep -q 'has a fabric' "$log.first" && grep -q 'has a fabric' "$log.second" && break; sleep 0.1; done
job --refused || fail "a third job was not refused"
kill -KILL -- -$second
wait $second 2> /dev/null
second=
sleep 4
job || fail "the slots of a job that was killed did not come back"
touch "$log.end"
wait $first || fail "a job beside one that was killed"
cat "$log.first"
first=
# Training through the switch ends at the loss of training without it; the program checks.
[ -z "${OMNI_EMBEDDING:-}" ] || "${launcher[@]}" "$OMNI_EMBEDDING" --epochs 1 --dimension 32 --batch 8 --switch "127.0.0.1:$port" || fail "training"
for i in 1 2; do
  timeout -k 5 60 "$switch" --listen "127.0.0.1:$((port + i))" --above "127.0.0.1:$port" >> "$log.$i" 2>&1 &
  below+=($!)
  for _ in $(seq 50); do grep -q listens "$log.$i" && break; sleep 0.1; done
done
"${launcher[@]}" "$app" "127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2))" || fail "a job at two switches"
kill -TERM "${below[@]}"
wait "${below[@]}"
cat "$log".[12]
grep -q '[1-9][0-9]* that sent a sum up' "$log.1" || fail "nothing was sent up"
kill -TERM $switch_pid
wait $switch_pid || fail "omni-switch ended with $?"
cat "$log"
grep -q ' 0 damaged' "$log" || fail "packets were damaged"
