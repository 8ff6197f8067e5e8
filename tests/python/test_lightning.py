# SPDX-License-Identifier: Apache-2.0
"""The Python package with Lightning, on real islands."""

import importlib.util
import os
import sys
import unittest

from islands import ROOT, Run, anchor_of, assert_one_model, main

TRAINER = f"{sys.executable} -u {ROOT}/tests/python/lightning_trainer.py"
BATCH = 16
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


@unittest.skipUnless(importlib.util.find_spec("lightning"), "lightning is not installed here: pip install lightning")
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
