#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
"""Writes default.libsvm, two classes that examples/logistic.cpp tells apart when it is given no file:
`python3 make_classes.py > default.libsvm`. Each row has a few of 40 binary features; some say more of the class than others."""


class Random:  # the same in every Python
    def __init__(self, seed): self.state = seed
    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n


random = Random(5)
for _ in range(400):
    label = random.below(2)
    row = sorted({1 + random.below(40) for _ in range(6)} | {1 + 2 * random.below(8) + (label if random.below(5) else 1 - label) for _ in range(2)})
    print(label, " ".join(f"{i}:1" for i in row))
