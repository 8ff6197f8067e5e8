# SPDX-License-Identifier: Apache-2.0
"""Islands of several machines beside one of a single process: one model in the end, bit for bit, whatever becomes of a
machine or of the line to it."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest
from functools import partial

from beside import PARTS, SPEC, TRAINER, BesideOne, alone
from islands import BUILD, ROOT, Run, free_port, main
from nodes import link_of

def spec(steps):
    return SPEC.replace("steps = 300", f"steps = {steps}")


def nodes(count: int, per_node: int, *more: str, launch: str = "", trainer: str = TRAINER) -> str:
    start = f"{sys.executable} -u {ROOT}/tests/python/nodes.py --nodes {count} --per-node {per_node} {launch}"
    return f"{start} --port {free_port()} -- {trainer} {' '.join(more)}"


def by_gateway(*more, **options):
    launch = f"--gateway {BUILD}/diloco-gateway --gateway-port {free_port()}"
    return nodes(2, 2, *more, launch=launch, **options)


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

    def test_a_pipeline_of_stages_that_fsdp2_spreads(self):
        self.beside_one(partial(nodes, 2, 2, trainer=PARTS), "pipe-fsdp", 5)

    def test_fsdp2_of_two_machines_by_a_gateway(self):
        self.beside_one(by_gateway, "fsdp", 5)

    def test_a_pipeline_by_a_gateway(self):
        self.beside_one(partial(by_gateway, trainer=PARTS), "pipe", 5)


class Launched:
    """What a trainer over two machines consists of, on the machine of the test."""

    def __init__(self, place):
        self.place = str(place)

    def _all(self):
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit():
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if self.place in command and TRAINER in command:
                        yield int(entry.name), command, os.readlink(entry / "ns/pid")

    def far_ranks(self):
        own = os.readlink("/proc/self/ns/pid")
        return [pid for pid, command, space in self._all() if space != own and "torch.distributed.run" not in command]


@unittest.skipIf(os.geteuid() != 0, "machines are made of namespaces, by root")
class Trouble(BesideOne):
    @contextlib.contextmanager
    def started(self, how, steps=900, launch=""):
        """Both islands train; to the end, as one, afterwards."""
        with Run(spec(steps)) as run:
            paris = run.found("paris", nodes(2, 1, "--as", how, "--out", f"{run.place}/paris.pt", launch=launch))
            oslo = run.join("oslo", alone("--out", f"{run.place}/oslo.pt"))
            paris.await_("some results", lambda island: island.trainer().get("tokens_counted", 0) > 0)
            yield paris, Launched(run.place)
            self.end_as_one(run, [paris, oslo])

    def test_a_rank_that_is_killed_is_named_and_the_next_start_goes_on(self):
        with self.started("ddp") as (paris, launched):
            for pid in launched.far_ranks():
                os.kill(pid, signal.SIGKILL)
            paris.await_log("rank 1 on node1 is gone without a word, or the way to it is: the ranks of this island are")
            paris.await_("to go on", lambda island: re.search("training goes on after step [1-9]", island.log()))

    def test_a_line_that_is_cut_for_five_seconds_costs_as_much(self):
        self.cut_for_five_seconds("")

    def test_a_line_to_a_gateway_that_is_cut_for_five_seconds_costs_as_much(self):
        self.cut_for_five_seconds(f"--gateway {BUILD}/diloco-gateway --gateway-port {free_port()}")

    def cut_for_five_seconds(self, launch):
        with self.started("fsdp", launch=launch) as (paris, launched):
            link, pid = link_of(launched.place), paris.trainer()["pid"]
            subprocess.run(["ip", "link", "set", link, "down"], check=True)
            time.sleep(5)
            subprocess.run(["ip", "link", "set", link, "up"], check=True)
            step = paris.trainer()["step"]
            paris.await_("steps after the cut", lambda island: island.trainer()["step"] > step + 20)
            self.assertEqual(paris.trainer()["pid"], pid)

    def test_a_rank_that_cannot_come_to_the_gateway_ends_the_wait_of_the_others(self):
        with Run(spec(900)) as run:
            gateway = f"--gateway {BUILD}/diloco-gateway --gateway-port {free_port()}"
            paris = run.found("paris", nodes(2, 1, "--as", "ddp", "--keyless", "--out", f"{run.place}/paris.pt",
                                             launch=gateway))
            paris.await_log("DILOCO_SITE_KEY is not set")
            paris.await_("both to be refused", lambda island: island.log().count("refused: ") > 1)
            self.assertIn("refused: rank 1 on node1 has ended its script, or detached, before finish()", paris.log())
            self.assertNotIn("terminate called", paris.log())

    def test_a_line_that_is_cut_for_good_is_said_by_name(self):
        with self.started("ddp", 2500) as (paris, launched):
            subprocess.run(["ip", "link", "set", link_of(launched.place), "down"], check=True)
            paris.await_log("nothing is heard of rank 1 on node1 for 30 s: it is stopped, or the line to it is cut")
            paris.ctl("stop")
            paris.ctl("start")

    def test_a_daemon_that_is_killed_while_parts_travel_is_found_again(self):
        with self.started("fsdp") as (paris, _):
            pid = paris.trainer()["pid"]
            for _ in range(3):
                os.kill(paris.pid(), signal.SIGKILL)
                step = paris.trainer().get("step", 0)
                paris.await_("steps after it", lambda island: island.trainer().get("step", 0) > step + 30)
            self.assertEqual(paris.trainer()["pid"], pid)

    def test_sigterm_on_a_far_machine_alone_ends_all_in_order(self):
        with Run(spec(900)) as run:
            paris = run.found("paris", nodes(2, 1, "--as", "ddp", "--out", f"{run.place}/paris.pt"))
            run.join("oslo", alone("--out", f"{run.place}/oslo.pt"))
            paris.await_("some results", lambda island: island.trainer().get("tokens_counted", 0) > 0)
            for pid in Launched(run.place).far_ranks():
                os.kill(pid, signal.SIGTERM)
            paris.await_log("over: False", 30)
            paris.await_log("ended with status 0")
            self.assertNotIn("diloco: rank", paris.log())


if __name__ == "__main__":
    main()
