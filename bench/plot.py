#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
"""Speed-up over density, a line per size, a panel per number of ranks: from the JSON that omni-bench-collectives writes."""
import argparse
import json

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def size(n):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if n >= unit:
            return f"{n / unit:g} {name}"
    return f"{n} B"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--out", default="speedup.png")
    args = parser.parse_args()
    runs = sorted((json.load(open(f)) for f in args.files), key=lambda r: r["ranks"])
    figure, panels = plt.subplots(1, len(runs), figsize=(5.6 * len(runs), 4.4), sharey=True, squeeze=False)
    for panel, run in zip(panels[0], runs):
        sizes = sorted({row["bytes"] for row in run["rows"]})
        colours = plt.cm.viridis([i / max(len(sizes) - 1, 1) * 0.92 for i in range(len(sizes))])
        for n, colour in zip(sizes, colours):
            rows = sorted((r for r in run["rows"] if r["bytes"] == n), key=lambda r: r["density"])
            panel.plot([100 * r["density"] for r in rows], [r["speedup"] for r in rows], "o-", ms=3.5, lw=1.4, color=colour, label=size(n))
        panel.axhline(1, color="0.4", lw=0.8, ls="--")
        panel.set(xscale="log", yscale="log", xlabel="blocks that are not null on a rank, %", title=f"{run['ranks']} ranks")
        ticks = [0.1, 1, 10, 100]
        panel.set_xticks(ticks, [f"{t:g}" for t in ticks])
        marks = [0.5, 1, 2, 3, 5, 10, 20]
        panel.set_yticks(marks, [f"{m:g}" for m in marks])
        panel.minorticks_off()
        panel.grid(alpha=0.25)
    panels[0][0].set_ylabel("times faster than MPI's best dense algorithm")
    panels[0][-1].legend(fontsize=7, title="tensor", title_fontsize=7)
    figure.tight_layout()
    figure.savefig(args.out, dpi=130)


if __name__ == "__main__":
    main()
