# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
"""Whether a timeline is a whole one: of so many ranks, and the stages of every call inside it."""
import json
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    events = json.load(f)
calls = [e for e in events if e["name"].startswith(("allreduce, ", "broadcast, "))]
assert {c["name"].split(",")[0] for c in calls} == {"allreduce", "broadcast"}, calls
assert {e["tid"] for e in calls} == set(range(int(sys.argv[2]))), calls
for e in events:
    assert e["ph"] == "X" and e["dur"] >= 0, e
    inside = [c for c in calls if c["tid"] == e["tid"] and c["pid"] == e["pid"] and c["ts"] <= e["ts"] + 1 and e["ts"] + e["dur"] <= c["ts"] + c["dur"] + 1]
    assert inside, e
for c in calls:
    phases = sum(c["args"][p + "_us"] for p in ("detect", "exchange", "fold", "deliver"))
    assert phases <= c["dur"] * 1.01 + 1, c
print(len(calls), "calls,", len(events), "events")
