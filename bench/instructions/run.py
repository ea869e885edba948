#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
"""Instructions per byte of tensor in each stop of the data, counted by valgrind's callgrind: old (baseline.json) against new.

Counts do not depend on what else the machine does, so they show what a change costs where times are too noisy. They are those of
the lines of each header, wherever they were inlined, on two ranks that are threads. The processor that valgrind plays has AVX2.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASELINE = pathlib.Path(__file__).with_name("baseline.json")
DENSITIES = ["0", "10", "100"]
STOPS = [  # the first that matches a header below include/omni
    ("detect", r"(detail/)?detect/"),
    ("copy", r"detail/memory/copy"),
    ("fold", r"detail/call/fold\.hpp|operation\.hpp|element\.hpp"),
    ("packets", r"detail/(wire|records|memory|pairs)/|detail/streams/(in_stream|out_stream|stream_)"),
    ("engine", r"detail/(streams|deal|levels|ring|choice)/|topology/|partition/|detail/call/|block\.hpp"),
]


def stop_of(path):
    if "/include/omni/" not in path:
        # What detect, copy and fill are made of. The C library's copies are left out: string instructions count by the byte.
        return "vectors" if path.endswith("intrin.h") else "fill" if path.endswith("stl_algobase.h") else None
    header = os.path.normpath(path).split("/include/omni/")[1]
    return next((name for name, pattern in STOPS if re.match(pattern, header)), None)


def self_costs(lines):
    """Instructions by file, those of inlined lines at the file they are from. The format: valgrind's manual, callgrind-format."""
    names, costs, file, skip = {}, collections.Counter(), "", False
    for line in lines:
        if match := re.match(r"(fl|fi|fe|cfi|cfl|cob|ob|fn|cfn)=(\(\d+\))?\s*(.*)", line):
            kind, number, name = match.groups()
            table = "file" if kind in ("fl", "fi", "fe", "cfi", "cfl") else kind.lstrip("c")
            if number and name:
                names[table, number] = name
            if kind in ("fl", "fi", "fe"):
                file = names.get((table, number), name)
        elif line.startswith("calls="):
            skip = True  # the next line is what was called
        elif re.match(r"[+*-]?\d|\*", line):
            if not skip and len(parts := line.split()) >= 2:
                costs[file] += int(parts[1])
            skip = False
    return costs


def count(program, folder, density):
    def run(calls):
        out = folder / f"callgrind.{density}.{calls}"
        command = ["timeout", "300", "valgrind", "--tool=callgrind", "--dump-line=no", f"--callgrind-out-file={out}", program, density, str(calls)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"valgrind ended with {done.returncode}: {done.stderr[-500:]}")
        return self_costs(out.read_text().splitlines())

    one, three = run(1), run(3)
    stops = collections.Counter()
    for file in three:  # without what the first call and the program's start take
        if (stop := stop_of(file)) is not None:
            stops[stop] += (three[file] - one[file]) / 2
    ranks, size = 2, 4 << 20
    return {stop: round(stops[stop] / (ranks * size), 5) for stop in [s for s, _ in STOPS] + ["vectors", "fill"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="make this the new baseline")
    parser.add_argument("--out", default=str(ROOT / "build" / "instructions"))
    options = parser.parse_args()
    for tool in ("valgrind", "g++"):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} was not found (Debian: valgrind, g++)")
            return 77
    folder = pathlib.Path(options.out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "omni-instructions"
    subprocess.run(["g++", "-std=c++20", "-O2", "-g", f"-I{ROOT}/include", ROOT / "bench/instructions/allreduce.cpp", "-o", program, "-pthread"],
                   check=True)
    new = {density: count(program, folder, density) for density in DENSITIES}
    old = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    print(f"{'density':>8} {'stop':>9} {'old':>10} {'new':>10} {'new/old':>8}   instructions per byte of tensor and rank")
    for density, stops in new.items():
        for stop, value in stops.items():
            was = old.get(density, {}).get(stop)
            ratio = f"{value / was:8.2f}" if was else f"{'':>8}"
            print(f"{density:>7}% {stop:>9} {was if was is not None else '':>10} {value:10} {ratio}")
    if options.save:
        BASELINE.write_text(json.dumps(new, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
