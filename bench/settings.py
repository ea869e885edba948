#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
"""Puts together what omni-bench-collectives measured of one number of ranks in several settings of the process, the first one as it was
found: a table, and JSON of its rows with the speed-up over the best MPI of all settings.

MPI's times count that were measured on cores as far apart; where there are none, because the machine has moved the ranks, all do, and
the row says "moved". Where the setting in which MPI is best has measured omni on the same row, in turn with MPI, that is omni's time, too:
both in the same state of the process, at the same time. Other rows have omni as found against MPI in its best setting, which is the
harder comparison: beside an MPI whose heap is paged in anew in each call omni is slower as well."""
import argparse
import json


def size(n):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if n >= unit and n % unit == 0:
            return f"{n // unit} {name}"
    return f"{n} B"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    found, *others = [json.load(open(f)) for f in args.files]
    print(f"{'size':>8} {'density':>8} {'cores':<5} {'topology':<11} {'omni us':>10} {'MPI, best us/alg in':>28} {'speed-up':>9} "
          f"{'heap as found':>14} {'sent B':>11} {'#wrong':>6} {'x limit':>8}  better choice")
    for row in found["rows"]:
        alone = row["mpi_best_us"] is None
        best = (row["mpi_best_us"] or float("nan"), row["mpi_best_algorithm"], found["setting"])
        same = [(r, o["setting"]) for o in others for r in o["rows"] if r["bytes"] == row["bytes"]]
        as_far = [(r, setting) for r, setting in same if r["far"] == row["far"]]
        for r, setting in as_far or same:
            best = min(best, (r["mpi_best_us"], r["mpi_best_algorithm"], setting))
        row["speedup_as_found"] = row["speedup"]
        # What else automatic could have chosen, where that was faster by 5 %: of one run, in turn.
        other, other_us = row.get("other_choice", ""), row.get("other_choice_us", 0)
        better = f"{other} {row['omni_us'] / other_us:.2f} x" if other and other_us < 0.95 * row["omni_us"] else ""
        for r, setting in as_far or same:
            if setting == best[2] and r["density"] == row["density"]:
                row.update({k: v for k, v in r.items() if not k.startswith(("mpi_", "speedup"))})
        if not alone:
            row["mpi_best_us"], row["mpi_best_algorithm"], row["mpi_best_setting"] = best
            row["speedup"] = best[0] / row["omni_us"]
        cores = "" if row["round_trip_ns"] == 0 else "moved" if same and not as_far else "far" if row["far"] else "near"
        mpi = "" if alone else f"{best[0]:.1f}/{best[1]} {best[2]}"
        ratios = f"{'':>9} {'':>14}" if alone else f"{row['speedup']:>9.2f} {row['speedup_as_found']:>14.2f}"
        print(f"{size(row['bytes']):>8} {100 * row['density']:>6.4g} % {cores:<5} {row['topology']:<11} {row['omni_us']:>10.1f} {mpi:>28} "
              f"{ratios} {row['bytes_sent']:>11.0f} {row['wrong']:>6.0f} {row['time_over_limit']:>8.2f}  {better}".rstrip())
    found["settings"] = [found["setting"]] + [o["setting"] for o in others]
    with open(args.out, "w", encoding="utf-8") as out:
        json.dump(found, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
