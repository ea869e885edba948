#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# The benchmark between hosts: network namespaces on this machine, each a host of its own with a rate-limited link. Needs root.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

usage() {
  cat <<'EOF'
usage: bash bench/cluster/run.sh [--hosts N] [--ranks R] [--rate RATE] [--queue SIZE] [--congestion NAME] [--must-drop] [--mtu BYTES] [--switch user|kernel] [--program WHAT] [options of omni-bench-collectives]

  --hosts N       hosts (default 4)
  --ranks R       ranks on each, servers included (default 1)
  --rate RATE     of each link both ways, as tc says it: 1gbit, 200mbit, 10gbit (default 1gbit)
  --queue SIZE    of a link, as tc says it: what is more is dropped (default 16mb: nothing)
  --congestion NAME  TCP's congestion control: cubic (default: Linux's), reno, bbr, ..., or machine: what is set here. With bbr each
                  connection all but pauses for 200 ms every 10 s, and calls wait for it
  --must-drop     the exit status is 1 if full queues dropped nothing
  --mtu BYTES     of the links (default 1500)
  --switch WHERE  an omni-switch at 10.77.0.254:4800 between the hosts, which adds in user space or in the kernel
  --program WHAT  to run: a file, or one of the programs of bench/ by its name, which is built then (default omni-bench-collectives)

Everything else goes to the benchmark; the default is --sizes 64M --repeats 7. The benchmark calibrates the communicator first, holds the bytes that cross the interfaces
against those that calls report, and fails if they are not the same. The namespaces are taken down at the end, after an error
as well.
EOF
}

hosts=4 ranks=1 rate=1gbit queue=16mb congestion=default must_drop=0 mtu=1500 switch= program=omni-bench-collectives
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
    --switch) switch=${2:?}; shift 2 ;;
    --program) program=${2:?}; shift 2 ;;
    --help|-h) usage; exit 0 ;;
    *) args+=("$1"); shift ;;
  esac
done
[ ${#args[@]} -gt 0 ] || case "$program" in *omni-bench-collectives) args=(--sizes 64M --repeats 7) ;; *) args=(--repeats 7) ;; esac
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
case "$program" in
  */*) [ -x "$program" ] || { echo "no program $program" >&2; exit 2; } ;;
  *) program=$(bash bench/run.sh --build "$program") || exit 1 ;;
esac
case "$program" in
  */omni-bench-collectives) args=(--rate "$gigabits" --count-bytes --calibrate "${args[@]}") ;;
  */omni-bench-in-network) args=(--rate "$gigabits" --switch 10.77.0.254:4800 "${args[@]}") ;;
  */omni-bench-compression) args=(--rate "$gigabits" "${args[@]}") ;;
esac
program=$(readlink -f "$program")
case "$switch" in
  '') ;;
  user | kernel) switch_program=${OMNI_SWITCH:-$(bash bench/run.sh --build omni-switch)} || exit 1
    switch_program=$(readlink -f "$switch_program") ;;
  *) echo "--switch user or kernel, not $switch" >&2; exit 2 ;;
esac

tag=omni$$
work=$(mktemp -d /tmp/omni-cluster.XXXXXX)
clean() {
  [ -z "${switch_pid:-}" ] || { kill "$switch_pid"; wait "$switch_pid"; } 2> /dev/null
  for i in $(seq 1 "$hosts"); do ip netns del "$tag-h$i" 2> /dev/null; done
  ip netns del "$tag-switch" 2> /dev/null
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

if ! ip netns add "$tag-switch" 2> "$work/why"; then
  echo "skipped: network namespaces are not allowed here ($(head -1 "$work/why"))"
  exit 77
fi
in_switch() { ip netns exec "$tag-switch" "$@"; }
limit() { # NAMESPACE DEVICE
  ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$rate" burst 256kb limit "$queue"
}
trap 'echo "skipped: no network of namespaces can be made here ($BASH_COMMAND)"; exit 77' ERR
set -E
in_switch ip link add br0 type bridge
in_switch ip link set br0 up
list=
for i in $(seq 1 "$hosts"); do
  ns=$tag-h$i
  ip netns add "$ns"
  ip link add "v$i" mtu "$mtu" netns "$ns" type veth peer name "b$i" mtu "$mtu" netns "$tag-switch"
  in_switch ip link set "b$i" master br0 up
  ip netns exec "$ns" ip addr add "10.77.0.$i/24" dev "v$i"
  ip netns exec "$ns" ip link set "v$i" up
  ip netns exec "$ns" ip link set lo up
  if [ "$congestion" != machine ]; then  # a route has it, since a namespace's own setting is not for everyone to change
    ip -n "$ns" route change 10.77.0.0/24 dev "v$i" proto kernel scope link src "10.77.0.$i" congctl "$congestion"
  fi
  limit "$ns" "v$i"
  limit "$tag-switch" "b$i"
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
if [ -n "$switch" ]; then
  in_switch ip link set lo up
  in_switch ip addr add 10.77.0.254/24 dev br0
  ports=$(seq -s, -f 'b%g' 1 "$hosts")
  adds=()
  if [ "$switch" = kernel ]; then adds=(--bpf "$(dirname "$switch_program")/switch.bpf.o" --ports "$ports"); fi
  in_switch "$switch_program" --listen 10.77.0.254:4800 "${adds[@]}" > "$work/switch.log" 2>&1 &
  switch_pid=$!
  for i in $(seq 50); do
    grep -q 'listens' "$work/switch.log" && break
    kill -0 "$switch_pid" 2> /dev/null || { cat "$work/switch.log"; echo "skipped: no switch can be started here"; switch_pid=; exit 77; }
    sleep 0.1
  done
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
    in_switch tc -s qdisc show dev "b$i" root  # not what a classifier has taken
  done | awk '{ for (k = 1; k < NF; ++k) if ($k == "(dropped") sum += $(k + 1) } END { print sum + 0 }'
}
[ "$congestion" != machine ] || congestion=$(cat /proc/sys/net/ipv4/tcp_congestion_control)
echo "# $hosts hosts, $rate each way, TCP $congestion, $ranks rank(s) on each, $(nproc) cores for all"
before=$(bytes)
command="OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_coll_tuned_use_dynamic_rules=1 \
timeout ${OMNI_CLUSTER_TIMEOUT:-550} mpirun --mca plm_rsh_agent $work/on --mca orte_keep_fqdn_hostnames 1 --host $list \
--mca btl tcp,vader,self --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 --mca mpi_yield_when_idle 1 --bind-to none \
-x OMPI_MCA_coll_tuned_use_dynamic_rules ${OMNI_TRACE:+-x OMNI_TRACE} -np $((hosts * ranks)) $program ${args[*]}"
"$work/on" 10.77.0.1 "$command" < /dev/null
code=$?
if [ -n "$switch" ]; then
  kill "$switch_pid"; wait "$switch_pid"; switch_pid=
  sed 's/^/# /' "$work/switch.log"
fi
drops=$(dropped)
echo "# $(($(bytes) - before)) bytes crossed the links in all; full queues dropped $drops packets"
if [ $code = 0 ] && [ $must_drop = 1 ] && [ "$drops" = 0 ]; then
  echo "nothing was dropped" >&2
  exit 1
fi
exit $code
