# SPDX-License-Identifier: Apache-2.0
"""Islands of several ranks, and of several types, beside one of a single process: one model in the end, bit for bit."""

import gc
import re
import sys
import unittest
import weakref
from unittest import mock

import torch
import torch.distributed as dist

from islands import ROOT, Run, anchor_of, assert_one_model, free_port, main
import diloco
from diloco._group import RankGroup

TRAINER = f"{ROOT}/tests/python/ranks_trainer.py"
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


def ranks(count: int, *more: str) -> str:
    launch = f"{sys.executable} -m torch.distributed.run --nproc-per-node {count} --master-port {free_port()}"
    return " ".join([launch, TRAINER, *more])


class Ranks(unittest.TestCase):
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

    def beside_one(self, count, how, mixes_min, *more):
        with Run(SPEC) as run:
            paris = run.found("paris", ranks(count, "--as", how, "--out", f"{run.place}/paris.pt", *more))
            oslo = run.join("oslo", alone("--out", f"{run.place}/oslo.pt", *more))
            dtype = getattr(torch, more[1]) if more else torch.float32
            self.end_as_one(run, [paris, oslo], [dtype, dtype])
            mixes = re.search(r"(\d+) mixes with equal copies", paris.log())
            self.assertIsNotNone(mixes)
            self.assertGreaterEqual(int(mixes.group(1)), mixes_min)

    def test_tensor_parallel_by_rows_and_by_columns(self):
        self.beside_one(2, "tp", 5)

    def test_fsdp2_of_tensor_parallel(self):
        self.beside_one(4, "fsdp-tp", 5)

    def test_fsdp2_of_what_three_ranks_cannot_share_evenly(self):
        self.beside_one(3, "fsdp", 5)

    def test_copies_of_ddp_are_equal_after_every_mix(self):
        self.beside_one(2, "ddp", 5)

    def test_copies_of_ddp_in_16_bits_are_equal_after_every_mix(self):
        self.beside_one(2, "ddp", 5, "--dtype", "bfloat16")

    def test_what_no_part_can_be_made_of_is_refused_by_name(self):
        with Run(SPEC) as run:
            paris = run.found("paris", ranks(2, "--as", "tp", "--bad", "--out", f"{run.place}/paris.pt"))
            paris.await_log("refused: parameter layers.1.spare is sharded along dimension 2; 0 and 1 are possible")

    def test_a_group_that_is_destroyed_before_the_end_is_named(self):
        with Run(SPEC) as run:
            paris = run.found("paris", ranks(2, "--as", "ddp", "--destroy", "--out", f"{run.place}/paris.pt"))
            for rank in (0, 1):
                paris.await_log(f"refused: rank {rank} has lost the others of its group: torch.distributed's process")
                paris.await_log("was destroyed before: call finish() and detach() first")

    def test_ranks_of_several_machines_are_refused(self):
        def gather(hosts, _own, group):
            hosts[:] = [("1", "p", "here"), ("2", "p", "there")]

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        with mock.patch.object(dist, "all_gather_object", gather):
            words = r"ranks on here \(rank 0\) and there \(rank 1\): .* on one machine"
            with self.assertRaisesRegex(diloco.DilocoError, words):
                RankGroup()

    def test_after_its_end_no_process_group_is_held(self):
        """One that is would be destroyed too late: threads of it and the end of the interpreter end the process."""
        gc.disable()
        self.addCleanup(gc.enable)
        for backend in ("gloo", "nccl"):  # of the latter it makes one of its own for bytes
            with self.subTest(backend), mock.patch.object(dist, "get_backend", lambda _group: backend):
                dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
                try:
                    group = RankGroup()
                    held = [weakref.ref(group.group), weakref.ref(group.bytes_group)]
                    self.assertEqual(group.bytes_group is group.group, backend == "gloo")
                    group.close()
                    group.close()
                finally:
                    dist.destroy_process_group()
                self.assertEqual([one() for one in held], [None, None])

    def test_islands_of_three_types_in_one_run(self):
        types = [torch.float32, torch.bfloat16, torch.float16]
        with Run(SPEC) as run:
            islands = []
            for name, dtype in zip(("paris", "oslo", "rome"), ("float32", "bfloat16", "float16")):
                program = alone("--islands 3 --dtype", dtype, "--out", f"{run.place}/{name}.pt")
                islands.append(run.join(name, program) if islands else run.found(name, program))
            self.end_as_one(run, islands, types)


if __name__ == "__main__":
    main()
