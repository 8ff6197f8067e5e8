# SPDX-License-Identifier: Apache-2.0
"""An island of several ranks beside one of a single process."""

import re
import sys
import unittest

import torch

from islands import ROOT, Run, anchor_of, assert_one_model, free_port

TRAINER = f"{ROOT}/tests/python/ranks_trainer.py"
PARTS = f"{ROOT}/tests/python/parts_trainer.py"
SPEC = """[run]
name = ranks
steps = 300
[sync]
interval = 12
layers_per_fragment = 1
late = merge
pace = lockstep
"""


def alone(*more: str) -> str:
    return " ".join([sys.executable, "-u", TRAINER, *more])


def ranks(count: int, *more: str, trainer: str = TRAINER) -> str:
    launch = f"{sys.executable} -m torch.distributed.run --nproc-per-node {count} --master-port {free_port()}"
    return " ".join([launch, trainer, *more])


class BesideOne(unittest.TestCase):
    def end_as_one(self, run, islands, types=None):
        """All have the anchors of the first one, and their trainers these in their own type, in every value."""
        assert_one_model(islands)
        anchor = anchor_of(islands[0])
        for number, island in enumerate(islands):
            island.await_log("over: ")  # said when the file is there
            held = torch.load(run.place / f"{island.name}.pt")
            self.assertEqual(set(held), set(anchor))
            for name, value in held.items():
                want = anchor[name].to(types[number] if types else torch.float32)
                self.assertTrue(torch.equal(value, want), f"{island.name}: {name}")
            self.assertGreater(island.trainer()["tokens_counted"], 0)

    def beside_one(self, launch, how, mixes_min, *more):
        """launch(ARGUMENTS...): the command of paris' trainer"""
        with Run(SPEC) as run:
            paris = run.found("paris", launch("--as", how, "--out", f"{run.place}/paris.pt", *more))
            oslo = run.join("oslo", alone("--out", f"{run.place}/oslo.pt", *more))
            dtype = getattr(torch, more[1]) if more else torch.float32
            self.end_as_one(run, [paris, oslo], [dtype, dtype])
            mixes = re.search(r"(\d+) mixes with equal copies", paris.log())
            self.assertIsNotNone(mixes)
            self.assertGreaterEqual(int(mixes.group(1)), mixes_min)
