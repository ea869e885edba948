#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
"""Whether the headers lie in known rooms, and include only what lies in the same room or in one that stands before it.

The order of the rooms is the table of docs/design.md, "Rooms", read from there: what the document says is what is checked."""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADERS = os.path.join(ROOT, "include", "omni")


def rooms():
    """{file or folder: its place in the order}, from the table's rows: | folder/ or `a` `b` (headers of the root) | what it is |."""
    text = open(os.path.join(ROOT, "docs", "design.md"), encoding="utf-8").read()
    section = text.split("\n## Rooms\n", 1)[1].split("\n## ", 1)[0]
    order = {}
    for place, row in enumerate(r for r in section.split("\n") if r.startswith("| `")):
        for name in re.findall(r"`([^`]+)`", row.split("|")[1]):
            order[name if name.endswith("/") else name + ".hpp"] = place
    return order


def includes(header):
    for line in open(os.path.join(HEADERS, header), encoding="utf-8"):
        found = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if found:
            yield os.path.normpath(os.path.join(os.path.dirname(header), found.group(1)))


def cycle_from(header, graph, done, path):
    if header in path:
        return path[path.index(header):] + [header]
    if header in done:
        return None
    for other in graph[header]:
        found = cycle_from(other, graph, done, path + [header])
        if found:
            return found
    done.add(header)
    return None


def main():
    order = rooms()
    graph = {}
    for folder, _, files in os.walk(HEADERS):
        for f in files:
            header = os.path.relpath(os.path.join(folder, f), HEADERS)
            graph[header] = list(includes(header))
    wrong = []
    room = {}
    for header in sorted(graph):
        room[header] = header if header in order or "/" not in header else os.path.dirname(header) + "/"
        if room[header] not in order:
            wrong.append(f"{header}: in no room of docs/design.md")
    for header in sorted(graph):
        for other in graph[header]:
            if other not in graph:
                wrong.append(f"{header}: includes {other}, which is not there")
            elif order.get(room[other], 0) > order.get(room[header], 0):
                wrong.append(f"{header}: includes {other}, which stands after it")
    done = set()
    for header in sorted(graph):
        found = cycle_from(header, {h: [o for o in others if o in graph] for h, others in graph.items()}, done, [])
        if found:
            wrong.append("a cycle: " + " -> ".join(found))
            break
    unused = [name for name in order if name not in room.values()]
    wrong += [f"docs/design.md: {name} is a room of nothing" for name in unused]
    print("\n".join(wrong) if wrong else f"{len(graph)} headers in {len(order)} rooms: includes go one way")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
