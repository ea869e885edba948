#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# The benchmark between hosts: network namespaces on this machine, each a host of its own with a rate-limited link. Needs root.
set -uo pipefail
export LC_ALL=C  # numbers with a decimal point
PATH=$PATH:/usr/sbin:/sbin  # of tc, which ordinary users do not have in theirs
cd "$(dirname "$0")/../.." || exit 1

usage() {
  cat <<'EOF'
usage: bash bench/cluster/run.sh [--hosts N] [--ranks R] [--rate RATE] [--queue SIZE] [--congestion NAME] [--must-drop] [--mtu BYTES] [--loss PERCENT] [--switch user|kernel] [--racks N] [--program WHAT] [options of omni-bench-collectives]

  --hosts N       hosts (default 4)
  --ranks R       ranks on each, servers included (default 1)
  --rate RATE     of each link both ways, as tc says it: 1gbit, 200mbit, 10gbit (default 1gbit)
  --queue SIZE    of a link, as tc says it: what is more is dropped (default 16mb: nothing)
  --congestion NAME  TCP's congestion control: cubic (default: Linux's), reno, bbr, ..., or machine: what is set here. With bbr each
                  connection all but pauses for 200 ms every 10 s, and calls wait for it
  --must-drop     the exit status is 1 if full queues dropped nothing
  --mtu BYTES     of the links (default 1500)
  --loss PERCENT  of UDP packets, at random, on each link each way
  --switch WHERE  an omni-switch at 10.77.0.254:4800 between the hosts, which adds in user space or in the kernel
  --racks N       the hosts are in so many racks of the same size; each has an omni-switch, at 10.77.0.241 and so on, below that one. What lies
                  between racks has no limit
  --program WHAT  to run: a file, or one of the programs of bench/ by its name, which is built then (default omni-bench-collectives)

Everything else goes to the program; the default is --repeats 7 for those of bench/, and --sizes 64M for omni-bench-collectives. That one
calibrates the communicator first, holds the bytes that cross the interfaces against those that calls report, and fails if they are not
the same. The namespaces are taken down at the end, after an error as well.
EOF
}

hosts=4 ranks=1 rate=1gbit queue=16mb congestion=default must_drop=0 mtu=1500 loss=0 switch= racks=0 program=omni-bench-collectives
args=()
while [ $# -gt 0 ]; do
  case "$1" in
    --hosts) hosts=${2:?}; shift 2 ;;
    --ranks) ranks=${2:?}; shift 2 ;;
    --rate) rate=${2:?}; shift 2 ;;
    --queue) queue=${2:?}; shift 2 ;;
    --congestion) congestion=${2:?}; shift 2 ;;
    --must-drop) must_drop=1; shift ;;
    --mtu) mtu=${2:?}; shift 2 ;;
    --loss) loss=${2:?}; shift 2 ;;
    --switch) switch=${2:?}; shift 2 ;;
    --racks) racks=${2:?}; shift 2 ;;
    --program) program=${2:?}; shift 2 ;;
    --help|-h) usage; exit 0 ;;
    *) args+=("$1"); shift ;;
  esac
done
# What a tool refuses later would be taken for a machine that cannot.
wants() { # OPTION VALUE PATTERN WHAT
  [[ "$2" =~ ^($3)$ ]] || { echo "bench/cluster/run.sh: --$1 wants $4, not '$2'" >&2; exit 2; }
}
for option in hosts ranks mtu; do wants $option "${!option}" '[1-9][0-9]*' 'a number above 0'; done
wants racks "$racks" '[0-9]+' 'a number'
wants loss "$loss" '[0-9]*[.]?[0-9]+' 'percent'
wants rate "$rate" '[0-9]*[.]?[0-9]+([kKmMgGtT]i?)?(bit|bps)' 'a rate of tc, such as 1gbit'
wants queue "$queue" '[0-9]+([kKmMgG]b?|b|bit|kbit|mbit|gbit)?' 'a size of tc, such as 4mb'
[ ${#args[@]} -gt 0 ] || case "${program##*/}" in omni-bench-collectives) args=(--sizes 64M --repeats 7) ;; omni-bench-*) args=(--repeats 7) ;; esac
available=/proc/sys/net/ipv4/tcp_available_congestion_control
if [ "$congestion" = default ]; then
  if grep -qw cubic $available; then congestion=cubic; else congestion=machine; fi
elif [ "$congestion" != machine ] && ! grep -qw -- "$congestion" $available; then
  echo "no congestion control $congestion here, but $(cat $available)" >&2
  exit 2
fi
case "$rate" in
  *gbit) gigabits=${rate%gbit} ;;
  *mbit) gigabits=$(awk "BEGIN {print ${rate%mbit} / 1000}") ;;
  *) echo "a rate is a number and gbit or mbit, not $rate" >&2; exit 2 ;;
esac
. tests/support/install.sh
need ip:iproute2 tc:iproute2 mpirun:openmpi-bin
[ -z "$switch" ] || need include/CLI/CLI.hpp:libcli11-dev
[ "$switch" != kernel ] || need clang:clang include/bpf/libbpf.h:libbpf-dev
[ "$loss" = 0 ] || need clang:clang include/bpf/libbpf.h:libbpf-dev
case "$program" in
  */*) [ -x "$program" ] || { echo "no program $program" >&2; exit 2; } ;;
  *) program=$(bash bench/run.sh --build "$program") || exit 1 ;;
esac
case "$program" in
  */omni-bench-collectives) args=(--rate "$gigabits" --count-bytes --calibrate "${args[@]}") ;;
  */omni-bench-in-network)
    at=10.77.0.254:4800
    [ "$racks" = 0 ] || at=$(seq -s, -f '10.77.0.%g:4800' 241 $((240 + racks)))
    args=(--rate "$gigabits" --switch "$at" "${args[@]}") ;;
  */omni-bench-compression) args=(--rate "$gigabits" "${args[@]}") ;;
esac
program=$(readlink -f "$program")
case "$switch" in
  '') ;;
  user | kernel) switch_program=${OMNI_SWITCH:-$(bash bench/run.sh --build omni-switch)} || exit 1
    switch_program=$(readlink -f "$switch_program") ;;
  *) echo "--switch user or kernel, not $switch" >&2; exit 2 ;;
esac

[ "$racks" = 0 ] || { [ $((hosts % racks)) = 0 ] && [ "$racks" -le 12 ]; } || { echo "no $racks racks of $hosts hosts" >&2; exit 2; }

tag=omni$$
work=$(mktemp -d /tmp/omni-cluster.XXXXXX)
switches=()
clean() {
  trap - ERR
  set +E
  for pid in "${switches[@]}"; do { kill "$pid"; wait "$pid"; } 2> /dev/null; done
  for i in $(seq 1 "$hosts"); do ip netns del "$tag-h$i" 2> /dev/null; done
  for j in $(seq 1 "$racks"); do ip netns del "$tag-r$j" 2> /dev/null; done
  ip netns del "$tag-switch" 2> /dev/null
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

if ! ip netns add "$tag-switch" 2> "$work/why"; then
  echo "skipped: network namespaces are not allowed here ($(head -1 "$work/why"))"
  exit 77
fi
switch_of() { # the namespace of the switch that a host is at
  if [ "$racks" = 0 ]; then echo "$tag-switch"; else echo "$tag-r$((($1 - 1) * racks / hosts + 1))"; fi
}
in_switch() { ip netns exec "$tag-switch" "$@"; }
if [ "$loss" != 0 ]; then
  clang -O2 -g -target bpf -DOMNI_DROP="$(awk "BEGIN {printf \"%uU\", $loss / 100 * 4294967295}")" -I/usr/include/"$(uname -m)"-linux-gnu \
    -c bench/cluster/drop.bpf.c -o "$work/drop.o" || exit 1
fi
limit() { # NAMESPACE DEVICE
  if [ "$loss" != 0 ]; then
    ip netns exec "$1" tc qdisc add dev "$2" clsact
    ip netns exec "$1" tc filter add dev "$2" egress bpf direct-action object-file "$work/drop.o" section tc
  fi
  ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$rate" burst 256kb limit "$queue"
}
trap 'echo "skipped: no network of namespaces can be made here ($BASH_COMMAND)"; exit 77' ERR
set -E
in_switch ip link add br0 type bridge
in_switch ip link set br0 up
for j in $(seq 1 "$racks"); do
  ip netns add "$tag-r$j"
  ip -n "$tag-r$j" link add br0 type bridge
  ip -n "$tag-r$j" link set br0 up
  ip link add uplink mtu "$mtu" netns "$tag-r$j" type veth peer name "b$j" mtu "$mtu" netns "$tag-switch"
  ip -n "$tag-r$j" link set uplink master br0 up
  in_switch ip link set "b$j" master br0 up
done
list=
for i in $(seq 1 "$hosts"); do
  ns=$tag-h$i
  at=$(switch_of "$i")
  ip netns add "$ns"
  ip link add "v$i" mtu "$mtu" netns "$ns" type veth peer name "b$i" mtu "$mtu" netns "$at"
  ip -n "$at" link set "b$i" master br0 up
  ip netns exec "$ns" ip addr add "10.77.0.$i/24" dev "v$i"
  ip netns exec "$ns" ip link set "v$i" up
  ip netns exec "$ns" ip link set lo up
  if [ "$congestion" != machine ]; then  # a route has it, since a namespace's own setting is not for everyone to change
    ip -n "$ns" route change 10.77.0.0/24 dev "v$i" proto kernel scope link src "10.77.0.$i" congctl "$congestion"
  fi
  limit "$ns" "v$i"
  limit "$at" "b$i"
  mkdir "$work/h$i"
  list+=${list:+,}10.77.0.$i:$ranks
done
# A namespace is a host only with a host name, a /dev/shm and a TMPDIR of its own.
cat > "$work/on" << EOF
#!/usr/bin/env bash
host=\$1; shift
i=\${host##*.}
exec ip netns exec $tag-h\$i unshare --mount --uts bash -c "hostname h\$i; mount -t tmpfs tmpfs /dev/shm; export TMPDIR=$work/h\$i; \$*"
EOF
chmod +x "$work/on"
trap - ERR
set +E
add() { # NAMESPACE ADDRESS PORTS [OPTIONS]: a switch
  local ns=$1 at=$2 ports=$3 log="$work/$1.log" adds=("${@:4}")
  ip -n "$ns" link set lo up
  ip -n "$ns" addr add "$at/24" dev br0
  if [ "$switch" = kernel ]; then adds+=(--bpf "$(dirname "$switch_program")/switch.bpf.o" --ports "$ports"); fi
  ip netns exec "$ns" "$switch_program" --listen "$at:4800" "${adds[@]}" > "$log" 2>&1 &
  local pid=$!
  switches+=("$pid")
  for _ in $(seq 50); do
    grep -q 'listens' "$log" && break
    kill -0 "$pid" 2> /dev/null || break
    sleep 0.1
  done
  grep -q 'listens' "$log" && return
  cat "$log"
  # The kernel may not let a program into it; nothing keeps one in user space from listening.
  if [ "$switch" = kernel ]; then echo "skipped: no switch can be started in the kernel here"; exit 77; fi
  echo "omni-switch does not listen"
  exit 1
}
if [ -n "$switch" ]; then
  if [ "$racks" = 0 ]; then
    add "$tag-switch" 10.77.0.254 "$(seq -s, -f 'b%g' 1 "$hosts")"
  else
    add "$tag-switch" 10.77.0.254 "$(seq -s, -f 'b%g' 1 "$racks")"
    for j in $(seq 1 "$racks"); do
      add "$tag-r$j" "10.77.0.$((240 + j))" "uplink,$(seq -s, -f 'b%g' $(((j - 1) * hosts / racks + 1)) $((j * hosts / racks)))" --above 10.77.0.254:4800
    done
  fi
fi

bytes() { # sent by all hosts
  local sum=0 i n
  for i in $(seq 1 "$hosts"); do
    n=$(ip netns exec "$tag-h$i" cat "/sys/class/net/v$i/statistics/tx_bytes")
    sum=$((sum + n))
  done
  echo "$sum"
}
dropped() { # packets, by all queues
  local i
  for i in $(seq 1 "$hosts"); do
    ip netns exec "$tag-h$i" tc -s qdisc show dev "v$i" root
    ip netns exec "$(switch_of "$i")" tc -s qdisc show dev "b$i" root  # not what a classifier has taken
  done | awk '{ for (k = 1; k < NF; ++k) if ($k == "(dropped") sum += $(k + 1) } END { print sum + 0 }'
}
[ "$congestion" != machine ] || congestion=$(cat /proc/sys/net/ipv4/tcp_congestion_control)
echo "# $hosts hosts, $rate each way, TCP $congestion, $ranks rank(s) on each, $(nproc) cores for all"
before=$(bytes)
command="OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_coll_tuned_use_dynamic_rules=1 \
timeout --foreground -k 10 ${OMNI_CLUSTER_TIMEOUT:-550} mpirun --mca plm_rsh_agent $work/on --mca orte_keep_fqdn_hostnames 1 --host $list \
--mca btl tcp,vader,self --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 --mca mpi_yield_when_idle 1 --bind-to none \
-x OMPI_MCA_coll_tuned_use_dynamic_rules ${OMNI_TRACE:+-x OMNI_TRACE} -np $((hosts * ranks)) $(printf '%q ' "$program" ${args[@]+"${args[@]}"})"
"$work/on" 10.77.0.1 "$command" < /dev/null
code=$?
if [ -n "$switch" ]; then
  for pid in "${switches[@]}"; do kill "$pid"; wait "$pid"; done
  switches=()
  sed 's/^/# /' "$work"/*.log
fi
drops=$(dropped)
echo "# $(($(bytes) - before)) bytes crossed the links in all; full queues dropped $drops packets"
if [ $code = 0 ] && [ $must_drop = 1 ] && [ "$drops" = 0 ]; then
  echo "nothing was dropped" >&2
  exit 1
fi
exit $code
