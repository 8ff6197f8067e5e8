# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint keeps of an island, with torch.save() and with torch.distributed.checkpoint."""

import copy
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

import torch

from islands import ROOT, TEXT, Run, anchor_of, assert_one_model, free_port, main

import diloco

HERE = pathlib.Path(__file__).resolve().parent
PRETRAIN = f"{ROOT}/docs/examples/pretrain.py --data {TEXT} --width 32 --layers 2 --heads 2 --context 32 --lr 3e-3"
BATCH_TOKENS = 8 * 32
RANKS = f"{sys.executable} -u -m torch.distributed.run --nproc-per-node {{n}} --master-port {{port}}"
SPEC = """[run]
name = checkpoint
steps = {steps}
[sync]
interval = {interval}
layers_per_fragment = 1
late = merge
{more}
"""


def trained(model, island, until):
    """Each step adds a hundredth."""
    while island.run_step < until and not island.done:
        with torch.no_grad():
            for value in model.parameters():
                value += 0.01
        island.step(tokens=10)
        time.sleep(0.002)


class Alone(unittest.TestCase):
    def found(self, run):
        return run.found("paris", "")

    def state_of(self, island):
        return island.state_dict()

    def goes_on(self, more, dtype, save, load):
        """Saved in the middle of an interval and gone on from, all is counted once."""
        with Run(SPEC.format(steps=120, interval=50, more=more)) as run:
            paris = self.found(run)
            model = torch.nn.Linear(30, 20).to(dtype)
            with torch.no_grad():
                for value in model.parameters():
                    value.zero_()
            with diloco.attach(model, socket=paris.socket(), wait=20) as island:
                trained(model, island, 75)
                save({"model": model.state_dict(), "island": self.state_of(island)}, run.place)
            again = torch.nn.Linear(30, 20).to(dtype)
            with load(again, run.place, paris.socket()) as island:
                self.assertEqual((island.start_step, island.tokens), (75, 750))
                trained(again, island, 120)
                self.assertTrue(island.finish())
            paris.await_finished()
            self.assertEqual(paris.trainer()["tokens_counted"], 1200)
            return again

    def test_torch_saves_and_loads_it(self):
        def save(state, place):
            torch.save(state, place / "checkpoint.pt")

        def load(model, place, socket):
            state = torch.load(place / "checkpoint.pt", weights_only=True)
            model.load_state_dict(state["model"])
            return diloco.attach(model, socket=socket, wait=20, state=state["island"])

        for more, dtype in (("", torch.float32), ("overlap = 50\nmix = 0\n", torch.float32), ("", torch.bfloat16)):
            with self.subTest(f"{more} {dtype}"):
                self.goes_on(more, dtype, save, load)

    def test_what_is_no_state_is_refused_and_nothing_is_attached(self):
        with Run(SPEC.format(steps=120, interval=50, more="")) as run:
            paris = self.found(run)
            model = torch.nn.Linear(30, 20)
            with diloco.attach(model, socket=paris.socket(), wait=20) as island:
                trained(model, island, 5)
                state = island.state_dict()
            self.assertEqual({word for word in state if word not in ("kept", "run_step")}, {"anchor", "sent"})
            wrong = {
                "not what state_dict": {"run_step": 5},
                "not what state_dict..": [1, 2],
                "is empty": state | {"kept": state["kept"][:0]},
                "damaged": state | {"kept": state["kept"].clone()},
                "has no 'anchor' of (weight|bias)": state | {"anchor": {}},
                "has torch.float32 .20, 29. for parameter weight": state
                | {"anchor": state["anchor"] | {"weight": torch.zeros(20, 29)}},
            }
            wrong["damaged"]["kept"][50] ^= 1
            for words, one in wrong.items():
                with self.subTest(words), self.assertRaisesRegex(diloco.DilocoError, words):
                    diloco.attach(model, socket=paris.socket(), wait=20, state=one)
            with diloco.attach(model, socket=paris.socket(), wait=20, state=state) as island:
                self.assertEqual(island.start_step, 5)
        with Run(SPEC.format(steps=120, interval=50, more="")) as run:
            other = run.found("rome", "")
            with diloco.attach(torch.nn.Linear(30, 21), socket=other.socket(), wait=20) as island:
                trained(model, island, 5)
            with self.assertRaisesRegex(diloco.DilocoError, "of another run"):
                diloco.attach(torch.nn.Linear(30, 21), socket=other.socket(), wait=20, state=state)

    def test_it_may_be_one_piece_of_bytes(self):
        saved = {}

        def load(model, _, socket):
            model.load_state_dict(saved["model"])
            return diloco.attach(model, socket=socket, wait=20, state=saved["island"])

        self.state_of = lambda island: {"kept": bytes(island.kept())}
        self.goes_on("", torch.float32, lambda state, _: saved.update(copy.deepcopy(state)), load)

    def test_a_save_takes_no_more_memory_than_its_size(self):
        """Of 16M parameters, in a process of its own: what is resident at most, beside what it is before."""
        script = """
import sys, time, torch, diloco
def resident(what):
    return int(next(line for line in open("/proc/self/status") if line.startswith(what)).split()[1]) * 1024
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(4)))
with diloco.attach(model, socket=sys.argv[1], wait=60) as island:
    island.step(tokens=1)
    torch.save(torch.zeros(1 << 20), sys.argv[2])
    open("/proc/self/clear_refs", "w").write("5")
    before = resident("VmRSS")
    state = island.state_dict()
    torch.save(state, sys.argv[2])
    size = sum(v.numel() * 4 for kind in ("anchor", "sent") for v in state[kind].values())
    print((resident("VmHWM") - before) / size, size / (4 << 22), flush=True)
"""
        with Run(SPEC.format(steps=120, interval=50, more="")) as run:
            paris = run.found("paris", "")
            done = subprocess.run([sys.executable, "-c", script, paris.socket(), str(run.place / "saved")],
                                  capture_output=True, text=True, timeout=120, check=True)
            share, per_parameter = map(float, done.stdout.split())
            self.assertEqual(per_parameter, 8)
            self.assertLess(share, 1.3)
            self.assertGreater(share, 0.9)


class Distributed(unittest.TestCase):
    def found(self, run):
        return run.found("paris", "")

    def ranks(self, run, island, count, *arguments):
        command = RANKS.format(n=count, port=free_port()).split() + [str(HERE / "checkpoint_trainer.py"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200,
                              env=os.environ | {"DILOCO_SOCKET": island.socket(), "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-3000:])
        return done.stdout

    def test_ranks_save_their_parts_and_other_ranks_go_on(self):
        """With torch.distributed.checkpoint; of two ranks one, three, or as many."""
        for how, again in (("fsdp", 2), ("fsdp", 3), ("fsdp", 1), ("ddp", 2), ("ddp", 1)):
            with self.subTest(f"{how}, 2 and {again} ranks"):
                with Run(SPEC.format(steps=120, interval=50, more="overlap = 50\nmix = 0\n")) as run:
                    paris = self.found(run)
                    folder = str(run.place / "checkpoint")
                    said = self.ranks(run, paris, 2, "--as", how, "--until", "75", "--save", folder)
                    self.assertIn("saved at 75, 750 tokens", said)
                    said = self.ranks(run, paris, again, "--as", how, "--load", folder)
                    self.assertIn("goes on after 75, 750 tokens", said)
                    paris.await_finished()
                    self.assertEqual(paris.trainer()["tokens_counted"], 1200)

    def test_rank_0_alone_saves_what_ranks_hold_copies_of(self):
        """As nanoGPT does, in `if master_process:`."""
        with Run(SPEC.format(steps=120, interval=50, more="")) as run:
            paris = self.found(run)
            file = str(run.place / "checkpoint.pt")
            said = self.ranks(run, paris, 2, "--as", "ddp", "--until", "75", "--save", file, "--alone")
            self.assertIn("saved at 75, 750 tokens", said)
            said = self.ranks(run, paris, 2, "--as", "ddp", "--load", file, "--alone")
            self.assertIn("goes on after 75, 750 tokens", said)
            paris.await_finished()
            self.assertEqual(paris.trainer()["tokens_counted"], 1200)

    def test_it_is_saved_while_training_goes_on(self):
        with Run(SPEC.format(steps=120, interval=50, more="")) as run:
            paris = run.found("paris", "")
            folder = str(run.place / "checkpoint")
            said = self.ranks(run, paris, 2, "--as", "fsdp", "--until", "75", "--save", folder, "--async")
            self.assertIn("saved at 75, 750 tokens", said)
            said = self.ranks(run, paris, 2, "--as", "fsdp", "--load", folder)
            self.assertIn("goes on after 75, 750 tokens", said)
            paris.await_finished()
            self.assertEqual(paris.trainer()["tokens_counted"], 1200)


class AloneByGateway(Alone):
    test_a_save_takes_no_more_memory_than_its_size = None  # a rank's, wherever it is

    def found(self, run):
        return run.found_with_gateway("paris")


class DistributedByGateway(Distributed):
    test_it_is_saved_while_training_goes_on = None

    def found(self, run):
        return run.found_with_gateway("paris")


class Example(unittest.TestCase):
    """docs/examples/pretrain.py: what it promises to whoever copies it."""

    def saved(self, island):
        return torch.load(island.home / "checkpoint.pt", weights_only=True)

    def await_saved(self, island):
        path = island.home / "checkpoint.pt"
        island.await_("a checkpoint", lambda _: path.exists(), pause=0.02)

    def assert_goes_on(self, island, saved):
        """In its second life, from what it has saved."""
        line = "training goes on after step "
        island.await_("its second life", lambda one: one.log().count(line) == 2)
        step, how = island.log().split(line)[2].splitlines()[0].split(" ", 1)
        self.assertGreaterEqual(int(step), saved["island"]["run_step"])
        self.assertIn("with what it had kept", how)

    def ended(self, island, steps):
        """The last checkpoint holds the run's parameters. Returns the optimizer's steps, and the validation losses."""
        island.await_("the script's end", lambda one: "ended with status 0" in one.log().split("trainer is done")[-1])
        saved = self.saved(island)
        self.assertEqual((saved["island"]["run_step"], saved["schedule"]["last_epoch"]), (steps, steps))
        for name, values in anchor_of(island).items():
            self.assertTrue(torch.equal(saved["model"][name], values), name)
        losses = re.findall(r"step (\d+) of \d+, validation loss ([\d.]+)", island.log())
        self.assertEqual(int(losses[-1][0]), steps)
        return int(saved["optimizer"]["state"][0]["step"]), [float(loss) for _, loss in losses]

    def assert_all_counted(self, island, tokens):
        """Those of all of the optimizer's steps, and no others."""
        told = island.trainer()
        self.assertEqual((told["tokens"], told["tokens_counted"]), (tokens, tokens))

    def test_it_goes_on_after_a_kill_and_after_a_stop(self):
        steps = 3000
        program = f"{sys.executable} -u {PRETRAIN} --eval-every 300 --save-every 70"
        with Run(SPEC.format(steps=steps, interval=100, more="")) as run:
            paris = run.found("paris", f"env OMP_NUM_THREADS=1 {program}")
            oslo = run.join("oslo", f"env OMP_NUM_THREADS=1 {program}")
            self.await_saved(oslo)
            os.kill(oslo.trainer()["pid"], 9)
            self.assert_goes_on(oslo, self.saved(oslo))
            paris.ctl("stop")
            stopped = self.saved(paris)
            paris.ctl("start")
            self.assert_goes_on(paris, stopped)
            assert_one_model([paris, oslo])
            (updates, losses), (after_kill, others) = (self.ended(island, steps) for island in (paris, oslo))
            self.assertLess(losses[-1], losses[0])
            self.assertEqual(losses[-1], others[-1])
            self.assert_all_counted(paris, updates * BATCH_TOKENS)
            self.assertGreaterEqual(oslo.trainer()["tokens_counted"], after_kill * BATCH_TOKENS)
            command = [*program.split(), "--layers", "3", "--checkpoint", str(paris.home / "checkpoint.pt")]
            other = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual((other.returncode, len(other.stderr.splitlines())), (1, 1), other.stderr)
            self.assertIn("checkpoint.pt is of another model", other.stderr)

    def test_its_ranks_go_on_after_a_stop(self):
        ranks = RANKS.format(n=2, port=free_port())
        with Run(SPEC.format(steps=400, interval=100, more="")) as run:
            paris = run.found("paris", f"{ranks} {PRETRAIN} --bf16 --eval-every 100 --save-every 70")
            self.await_saved(paris)
            paris.ctl("stop")
            stopped = self.saved(paris)
            paris.ctl("start")
            self.assert_goes_on(paris, stopped)
            paris.await_finished()
            updates, losses = self.ended(paris, 400)
            self.assertEqual((updates, len(losses)), (400, 4))
            self.assertLess(losses[-1], losses[0])
            self.assert_all_counted(paris, updates * 2 * BATCH_TOKENS)


if __name__ == "__main__":
    main()
