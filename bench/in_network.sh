#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# omni::allreduce through a switch between hosts: network namespaces with rate-limited links, and an omni-switch between them that adds
# in the kernel or in user space; against owner streams and the best of MPI's algorithms, interleaved. Needs root.
#
#     bash bench/in_network.sh [kernel|user] [--hosts N] [--rate 200mbit] [--mtu 9000] [options of omni-bench-in-network]
set -euo pipefail
cd "$(dirname "$0")/.."
where=kernel
case "${1:-}" in kernel | user) where=$1; shift ;; esac
exec bash bench/cluster/run.sh --switch "$where" --mtu 9000 --rate 200mbit --program omni-bench-in-network "$@"
