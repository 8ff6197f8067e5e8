# SPDX-License-Identifier: Apache-2.0
"""The Python package with Lightning, on real islands."""

import importlib.util
import os
import re
import sys
import tempfile
import types
import unittest
import unittest.mock

from islands import ROOT, Run, anchor_of, assert_one_model, main

TRAINER = f"{sys.executable} -u {ROOT}/tests/python/lightning_trainer.py"
BATCH = 16
HERE = importlib.util.find_spec("lightning")
SPEC = """[run]
name = lightning
steps = 200
[sync]
interval = 20
pattern = balanced
fragments = 1
late = merge
pace = lockstep
"""


@unittest.skipUnless(HERE, "lightning is not installed here: pip install lightning")
class Steps(unittest.TestCase):
    """The trainer's count of steps, and all that goes by it, is the run's."""

    def trained(self, run_steps, steps):
        """By a trainer whose run's step is as told after each of its steps; what it has saved."""
        import torch
        from lightning.pytorch import LightningModule, Trainer
        from lightning.pytorch.callbacks import ModelCheckpoint

        import diloco.lightning

        told, rates = iter(run_steps), {}

        class Island(types.SimpleNamespace):
            def step(self, **others):
                self.run_step = next(told)
                self.done = self.run_step >= steps
                return not self.done

        island = Island(steps=steps, run_step=next(told), held=False, done=False, detach=lambda: None,
                        finish=lambda: True)

        class Model(LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(3, 2)

            def training_step(self, batch, number):
                rates[island.run_step] = self.lr_schedulers().get_last_lr()[0]
                return self.layer(batch).square().mean()

            def configure_optimizers(self):
                optimizer = torch.optim.SGD(self.parameters(), lr=1.0)
                linear = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, total_iters=steps)
                return {"optimizer": optimizer, "lr_scheduler": {"scheduler": linear, "interval": "step"}}

        callback = diloco.lightning.DilocoCallback(tokens_per_step=1, seed=False)
        attached = unittest.mock.patch("diloco.lightning.attach", lambda *a, **o: island)
        with tempfile.TemporaryDirectory() as out, attached:
            trainer = Trainer(
                accelerator="cpu", devices=1, max_epochs=-1, logger=False, enable_progress_bar=False,
                enable_model_summary=False,
                callbacks=[callback, ModelCheckpoint(out, every_n_train_steps=25, save_top_k=-1, filename="{step}")],
            )
            trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(64, 3), batch_size=4))
            saved = sorted(int(name.split("=")[1].split(".")[0]) for name in os.listdir(out))
        self.assertEqual((trainer.global_step, trainer.max_steps), (steps, steps))
        for step, rate in rates.items():
            self.assertAlmostEqual(rate, 1 - step / steps, places=5)
        return saved

    def test_a_trainer_that_begins_late_goes_on_where_the_run_is(self):
        self.assertEqual(self.trained(range(60, 161), 160), [75, 100, 125, 150])

    def test_where_the_run_skips_steps_no_checkpoint_is_left_out(self):
        self.assertEqual(self.trained([0, *range(3, 160, 3), 160], 160), [25, 50, 75, 100, 125, 150])


@unittest.skipUnless(HERE, "lightning is not installed here: pip install lightning")
class Islands(unittest.TestCase):
    def ends(self, run, islands):
        import torch

        assert_one_model(islands)
        end = lambda island: torch.load(run.place / island.name / "out/end.pt")
        islands[0].await_("the ends", lambda _: all((run.place / i.name / "out/end.pt").exists() for i in islands))
        return [end(island) for island in islands]

    def test_two_islands_share_their_buffers_too_but_not_what_is_counted(self):
        import torch

        with Run(SPEC) as run:
            paris = run.found("paris", f"{TRAINER} --islands 2 --buffers --out {run.place}/paris/out")
            oslo = run.join("oslo", f"{TRAINER} --islands 2 --buffers --accumulate 2 --out {run.place}/oslo/out")
            ends = self.ends(run, [paris, oslo])
            anchor = anchor_of(paris)
            self.assertIn("layers.1.running_var", anchor)
            self.assertNotIn("layers.1.num_batches_tracked", anchor)
            for end in ends:
                for name, value in anchor.items():
                    want = value.clamp(min=0) if name == "layers.1.running_var" else value
                    self.assertTrue(torch.equal(end["values"][name], want), name)
            # An island's own: what it has seen itself, two batches a step where gradients are accumulated.
            batches = [int(end["values"]["layers.1.num_batches_tracked"]) for end in ends]
            self.assertEqual(batches, [ends[0]["steps"], 2 * ends[1]["steps"]])
            self.assertEqual(oslo.trainer()["tokens"], 2 * BATCH * ends[1]["steps"])

    def test_islands_with_one_seed_draw_batches_of_their_own(self):
        """The first ones, too, which Lightning has drawn before anybody attached."""
        with Run(SPEC) as run:
            islands = [run.found("paris", f"{TRAINER} --islands 2 --out {run.place}/paris/out")]
            islands.append(run.join("oslo", f"{TRAINER} --islands 2 --out {run.place}/oslo/out"))
            self.ends(run, islands)
            first, second = (
                [line.split("first batch ")[1] for line in island.log().splitlines() if "trainer: first batch " in line]
                for island in islands
            )
            self.assertEqual((len(first), len(second)), (1, 1))
            self.assertNotEqual(first, second)

    def test_one_that_gets_a_sigterm_contributes_what_it_has(self):
        spec = SPEC.replace("steps = 200", "steps = 100000").replace("interval = 20", "interval = 5000")
        with Run(spec) as run:
            paris = run.found("paris", f"{TRAINER} --out {run.place}/paris/out")
            paris.await_("some steps", lambda island: island.trainer().get("step", 0) > 60)
            paris.ctl("stop")
            self.assertIn("SIGTERM", paris.log())
            tally = dict(re.findall(r"(?m)^(\w+) = (\S+)", (paris.home / "state/trainer.tokens").read_text()))
            self.assertGreater(int(tally["last"]), 60 * BATCH)
            self.assertEqual(float(tally["counted"]), int(tally["last"]))

    def test_one_that_is_killed_goes_on_from_its_checkpoint(self):
        with Run(SPEC.replace("interval = 20", "interval = 100")) as run:
            paris = run.found("paris", f"{TRAINER} --save-every 40 --out {run.place}/paris/out")
            first = run.place / "paris/out/step=000040.ckpt"
            paris.await_("a checkpoint", lambda _: first.exists(), pause=0.02)
            os.kill(paris.trainer()["pid"], 9)
            paris.await_log("started again")
            paris.await_log("going on from step=000040.ckpt")
            paris.await_log("training goes on after step 40 ")
            self.ends(run, [paris])
            self.assertEqual(paris.trainer()["tokens_counted"], 200 * BATCH)


if __name__ == "__main__":
    main()
