#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
"""omni against MPI's dense algorithms on simulated networks of up to hundreds of hosts, with SimGrid's SMPI (Debian: libsimgrid-dev).

Builds bench/scale/allreduce.cpp with smpicxx, runs it on each number of ranks, and writes table.txt, rows.json and scale.png. What is
simulated is the network: computing takes no time, and asking MPI for progress 10 ns.
"""
import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEVELS = {"automatic": 0, "colocated": 0, "hierarchical": 1, "three-level": 2}  # how often ranks are put together in groups
CALIBRATED = 64  # ranks, at most: of more it takes the simulator minutes
DENSE = ["ompi", "rdb", "rab_rdb", "lr", "ompi_ring_segmented"]  # as SimGrid names them; ompi is Open MPI's own choice


def platform(folder, kind, hosts, bandwidth, latency):
    head = "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n<platform version=\"4.1\">\n"
    shape = ""
    if kind == "fat-tree":  # two levels, 16 hosts to a switch, as many links up as down
        leaves = -(-hosts // 16)
        shape = f'topology="FAT_TREE" topo_parameters="2;16,{leaves};1,16;1,1" '
        hosts = 16 * leaves
    text = f'{head}<cluster id="c" prefix="n-" suffix="" radical="0-{hosts - 1}" speed="100Gf" bw="{bandwidth}Bps" lat="{latency}us" {shape}/>\n</platform>\n'
    (folder / "platform.xml").write_text(text)
    (folder / "hosts").write_text("".join(f"n-{i}\n" for i in range(hosts)))


def simulate(folder, seconds, ranks, algorithm, plain, *arguments):
    command = ["smpirun", "-np", str(ranks), "-platform", folder / "platform.xml", "-hostfile", folder / "hosts",
               "--cfg=smpi/host-speed:100Gf", "--cfg=smpi/simulate-computation:no", "--cfg=smpi/coll-selector:ompi",
               "--cfg=smpi/grow-injected-times:no", "--cfg=smpi/test:1e-8", "--cfg=smpi/shared-malloc:local", "--log=root.thres:critical"]
    if plain:  # messages of all sizes get the whole link, and the latency as it is, whatever goes the other way
        command += ["--cfg=smpi/bw-factor:0:1.0", "--cfg=smpi/lat-factor:0:1.0", "--cfg=network/crosstraffic:0"]
    if algorithm != "ompi":
        command.append(f"--cfg=smpi/allreduce:{algorithm}")
    command += [folder / "omni-scale", *map(str, arguments)]
    try:
        done = subprocess.run(["timeout", str(seconds), *map(str, command)], capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit(f"cannot run smpirun: {error}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0:
        failed.append((ranks, algorithm, arguments))
        print(f"# {ranks} ranks, {arguments}: ended with {done.returncode} after {len(rows)} rows", file=sys.stderr)
    return rows


failed = []  # simulations that did not end well: without one, a best may be missing


def model(row, bandwidth, latency, group):
    """What docs/algorithms.md says, in microseconds."""
    n, s, d, u = row["ranks"], row["bytes"], row["density"], row["union"]
    alpha, rate = 2 * latency, bandwidth / 1e6  # a link out and a link in
    agreeing = math.ceil(math.log(n, 4)) * alpha

    def streams(ranks, own, size, levels):
        if not levels:
            return 2 * alpha + (ranks - 1) / ranks * (own + u) * size / rate
        g = min(levels[0], ranks)
        of_group = min(u, g * own) if row["pattern"] != "identical" else u
        inside = 2 * alpha + (g - 1) / g * (own + u) * size / rate
        return inside + streams(-(-ranks // g), of_group, size / g, levels[1:])

    kind = row["topology"]
    if kind == "ring":
        return agreeing + 2 * (n - 1) * alpha + 2 * (n - 1) / n * s / rate
    if kind == "dedicated":
        return agreeing + 2 * alpha + max(d, u) * s / rate
    if kind in LEVELS:
        return agreeing + streams(n, d, s, [group] * LEVELS[kind])
    return 2 * math.ceil(math.log2(n)) * alpha + 2 * (n - 1) / n * s / rate  # a good dense algorithm


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="8,16,32,64", help="default: %(default)s")
    parser.add_argument("--sizes", default="4", help="MiB of the tensor (default: %(default)s)")
    parser.add_argument("--densities", default="0.1,1,10", help="percent (default: %(default)s)")
    parser.add_argument("--patterns", default="identical", help="of identical, independent, power-law (default: %(default)s)")
    parser.add_argument("--topologies", default="colocated,hierarchical,three-level,ring,dedicated", help="default: %(default)s")
    parser.add_argument("--group", type=int, default=0, help="ranks that hierarchical puts together; 0: about the root of all, and the third root or more for three-level (default)")
    parser.add_argument("--packet", type=int, default=0, help="bytes; 0: chosen (default)")
    parser.add_argument("--window", type=int, default=0, help="packets of a stream under way; 0: chosen (default)")
    parser.add_argument("--platform", choices=["cluster", "fat-tree"], default="cluster")
    parser.add_argument("--plain", action="store_true", help="links as they are said to be, without SimGrid's factors for the size of a message")
    parser.add_argument("--bandwidth", type=float, default=12.5e9, help="bytes a second of a link (default: 100 Gbit/s)")
    parser.add_argument("--latency", type=float, default=1, help="microseconds of a link (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=300, help="limit of one simulation (default: %(default)s)")
    parser.add_argument("--out", default=str(ROOT / "build" / "scale"))
    options = parser.parse_args()
    folder = pathlib.Path(options.out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.which("smpicxx") is None:
        print("skipped: smpicxx was not found (Debian: libsimgrid-dev)")
        return 77
    # Each rank has a copy of the program's variables, and must not share what templates have.
    subprocess.run(["smpicxx", "-std=c++20", "-O2", "-fno-gnu-unique", f"-I{ROOT}/include", ROOT / "bench/scale/allreduce.cpp", "-o",
                    folder / "omni-scale"], check=True)
    rows = []
    counts = [int(n) for n in options.ranks.split(",")]
    for n in counts:
        platform(folder, options.platform, 2 * n, options.bandwidth, options.latency)
        print(f"# {n} ranks", file=sys.stderr)
        best = {}
        largest = max(int(s) for s in options.sizes.split(",")) << 20
        for algorithm in DENSE:  # dense takes as long for every density and pattern
            if algorithm == "rdb" and n * largest > 8 << 30:
                continue  # it takes two tensors of memory for each rank, and is never the best of large ones
            for row in simulate(folder, options.seconds, n, algorithm, options.plain, "dense", 0, 1, 1, 0, 0, "identical", options.sizes, 100):
                if row["wrong"] == 0 and row["us"] < best.get(row["bytes"], (math.inf,))[0]:
                    best[row["bytes"]] = (row["us"], algorithm)
        for topology in options.topologies.split(","):
            servers = n if topology == "dedicated" else 0
            levels = LEVELS.get(topology, 0)
            root = math.log2(n) / (levels + 1)
            group = options.group or 1 << (math.ceil(root) if levels > 1 else round(root))
            packet = options.packet
            if packet == 0 and n > CALIBRATED and topology not in ("automatic", "dedicated"):  # what calibration would choose
                fast = options.bandwidth >= 500e6
                together = group if levels else n
                packet = min(128 << 10, (48 << 20) // 7 // together) if fast else min(62 << 10, (12 << 20) // 7 // together)
            for row in simulate(folder, options.seconds, n + servers, "ompi", options.plain, topology, servers, group, group, packet, options.window,
                                options.patterns, options.sizes, options.densities):
                row["dense_us"], row["dense_algorithm"] = best.get(row["bytes"], (math.nan, "none"))
                row["speedup"] = row["dense_us"] / row["us"]
                row["model_us"] = model(row, options.bandwidth, options.latency, group)
                limit = (n - 1) / n * (row["density"] + row["union"]) * row["bytes"] / options.bandwidth * 1e6
                row["time_over_limit"] = row["us"] / limit if limit else math.nan
                if levels:
                    row["group"] = group
                rows.append(row)
    lines = [f"# {options.platform}, {options.bandwidth / 1e9:g} GB/s and {options.latency:g} us a link{', plain' if options.plain else ''}; simulated, best dense of {', '.join(DENSE)}",
             f"{'ranks':>6} {'MiB':>5} {'pattern':>12} {'density':>8} {'topology':>16} {'us':>10} {'model us':>10} {'x limit':>8} "
             f"{'dense us':>10} {'speed-up':>9} {'#wrong':>6}"]
    for r in sorted(rows, key=lambda r: (r["bytes"], r["pattern"], r["density"], r["ranks"], r["us"])):
        name = f"{r['topology']}({r['group']})" if "group" in r else r["topology"]
        lines.append(f"{r['ranks']:6} {r['bytes'] >> 20:5} {r['pattern']:>12} {100 * r['density']:7g}% {name:>16} {r['us']:10.1f} "
                     f"{r['model_us']:10.1f} {r['time_over_limit']:8.2f} {r['dense_us']:10.1f} {r['speedup']:9.2f} {r['wrong']:6.0f}")
    print("\n".join(lines))
    (folder / "table.txt").write_text("\n".join(lines) + "\n")
    (folder / "rows.json").write_text(json.dumps(rows, indent=1) + "\n")
    if rows:
        draw(rows, folder / "scale.png")
    if failed:
        print(f"# {len(failed)} simulations did not end well: best dense may be slower than it is", file=sys.stderr)
    return 1 if any(r["wrong"] for r in rows) or not rows or failed else 0


def draw(rows, path):
    try:
        import matplotlib
    except ImportError:
        print("# no picture without matplotlib", file=sys.stderr)
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    cases = sorted({(r["bytes"], r["pattern"], r["density"]) for r in rows})
    colours = {topology: f"C{i}" for i, topology in enumerate(sorted({r["topology"] for r in rows}))}
    figure, panels = plt.subplots(1, len(cases), figsize=(3.6 * len(cases) + 1, 3.8), squeeze=False)
    for panel, case in zip(panels[0], cases):
        mine = [r for r in rows if (r["bytes"], r["pattern"], r["density"]) == case]
        for topology in sorted({r["topology"] for r in mine}):
            line = sorted((r["ranks"], r["us"]) for r in mine if r["topology"] == topology)
            panel.plot(*zip(*line), "o-", ms=3.5, label=topology, color=colours[topology])
        panel.plot(*zip(*sorted({(r["ranks"], r["dense_us"]) for r in mine})), "k--", lw=1, label="dense, best")
        panel.set(xscale="log", yscale="log", xlabel="ranks", title=f"{case[0] >> 20} MiB, {case[1]}, {100 * case[2]:g} %")
        panel.title.set_fontsize(8)
        ticks = sorted({r["ranks"] for r in mine})
        panel.set_xticks(ticks, ticks)
        panel.minorticks_off()
        panel.grid(alpha=0.25)
    panels[0][0].set_ylabel("simulated microseconds")
    panels[0][-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    sys.exit(main())
