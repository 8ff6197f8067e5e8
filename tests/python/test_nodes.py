# SPDX-License-Identifier: Apache-2.0
"""Islands of several machines beside one of a single process: one model in the end, bit for bit."""

import os
import sys
import unittest
from functools import partial

from beside import PARTS, TRAINER, BesideOne
from islands import ROOT, free_port, main


def nodes(count: int, per_node: int, *more: str, launch: str = "", trainer: str = TRAINER) -> str:
    start = f"{sys.executable} -u {ROOT}/tests/python/nodes.py --nodes {count} --per-node {per_node} {launch}"
    return f"{start} --port {free_port()} -- {trainer} {' '.join(more)}"


@unittest.skipIf(os.geteuid() != 0, "machines are made of namespaces, by root")
class Nodes(BesideOne):
    def test_ddp_of_two_machines(self):
        self.beside_one(partial(nodes, 2, 1), "ddp", 5)

    def test_fsdp2_of_two_machines(self):
        self.beside_one(partial(nodes, 2, 2), "fsdp", 5)

    def test_hsdp_of_two_machines(self):
        self.beside_one(partial(nodes, 2, 2), "hsdp", 5)

    def test_tensor_parallel_over_two_machines_of_one_name(self):
        self.beside_one(partial(nodes, 2, 1, launch="--same-names"), "tp", 5)

    def test_fsdp2_of_tensor_parallel_on_each_of_two_machines(self):
        self.beside_one(partial(nodes, 2, 2), "fsdp-tp", 5)

    def test_a_pipeline_over_two_machines_twice(self):
        self.beside_one(partial(nodes, 2, 2, trainer=PARTS), "pipe", 5)


if __name__ == "__main__":
    main()
