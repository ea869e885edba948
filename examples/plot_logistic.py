#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
"""Distance to the optimum by bits that a rank has sent, and by time: from the CSV that omni-example-logistic prints."""
import argparse
import csv
import os

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

STYLES = {"gradient descent": "-", "quantised": ":", "DIANA": "-", "VR-DIANA": "--"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--out", default="logistic.png")
    args = parser.parse_args()
    figure, panels = plt.subplots(2, len(args.files), figsize=(6.4 * len(args.files), 8.4), squeeze=False)
    for column, file in enumerate(args.files):
        lines = {}
        for row in csv.DictReader(open(file)):
            lines.setdefault((row["algorithm"], row["compressor"]), []).append(row)
        names = sorted({compressor for _, compressor in lines})
        for (algorithm, compressor), rows in lines.items():
            colour = "black" if compressor == "dense" else plt.cm.tab10(names.index(compressor))
            for panel, x in zip(panels[:, column], ("bits", "seconds")):
                panel.plot([float(r[x]) for r in rows], [max(float(r["distance"]), 1e-16) for r in rows], STYLES[algorithm], lw=1.3,
                           color=colour, label=f"{algorithm}, {compressor}")
        for panel, x in zip(panels[:, column], ("bits sent by a rank", "seconds")):
            panel.set(xscale="log", yscale="log", xlabel=x, ylabel="f(x) - f*", title=os.path.basename(file).removesuffix(".csv"))
            panel.set_ylim(bottom=1e-11)
    panels[0][0].legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
