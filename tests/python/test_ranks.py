# SPDX-License-Identifier: Apache-2.0
"""Islands of several ranks, and of several types, beside one of a single process: one model in the end, bit for bit."""

import gc
import socket
import tempfile
import weakref
from functools import partial
from unittest import mock

import torch
import torch.distributed as dist

from beside import PARTS, SPEC, BesideOne, alone, ranks
from islands import Run, main
import diloco
from diloco._group import RankGroup, _Place, _somebody_listens, _speaker

class Ranks(BesideOne):
    def test_tensor_parallel_by_rows_and_by_columns(self):
        self.beside_one(partial(ranks, 2), "tp", 5)

    def test_fsdp2_of_tensor_parallel(self):
        self.beside_one(partial(ranks, 4), "fsdp-tp", 5)

    def test_fsdp2_of_what_three_ranks_cannot_share_evenly(self):
        self.beside_one(partial(ranks, 3), "fsdp", 5)

    def test_copies_of_ddp_are_equal_after_every_mix(self):
        self.beside_one(partial(ranks, 2), "ddp", 5)

    def test_copies_of_ddp_in_16_bits_are_equal_after_every_mix(self):
        self.beside_one(partial(ranks, 2), "ddp", 5, "--dtype", "bfloat16")

    def test_parts_of_every_kind_that_ranks_say_themselves(self):
        self.beside_one(partial(ranks, 3, trainer=PARTS), "cut", 5)

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

    def test_who_speaks_is_where_the_daemon_is(self):
        def places(*rows):
            return [_Place(boot, processes, host, there) for boot, processes, host, there in rows]

        def all_listen(asked):
            return [True] * len(asked)

        shared = places(("1", "p", "n", (5, 6)), ("2", "p", "n", (5, 6)), ("2", "p", "n", (5, 6)))
        self.assertEqual(_speaker(places(("1", "p", "n", None), ("2", "p", "n", None)), all_listen), 0)
        self.assertEqual(_speaker(places(("1", "p", "n", None), ("2", "p", "n", (5, 6))), all_listen), 1)
        # Containers that see one socket of one kernel; a folder that machines share, in which one has it.
        self.assertEqual(_speaker(places(("1", "p", "n", (5, 6)), ("1", "q", "n", (5, 6))), all_listen), 0)
        self.assertEqual(_speaker(shared, lambda asked: [rank == 1 for rank in asked]), 1)
        self.assertEqual(_speaker(shared, lambda asked: [False] * len(asked)), 0)
        two = r"there is a daemon on n \(rank 0\) and one on n \(rank 1\), and an island has one: stop one of them"
        with self.assertRaisesRegex(diloco.DilocoError, two):
            _speaker(shared, all_listen)

    def test_a_socket_that_nobody_listens_at_is_no_daemon(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/worker.sock"
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(path)
                self.assertFalse(_somebody_listens(path))
                listener.listen()
                self.assertTrue(_somebody_listens(path))

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
