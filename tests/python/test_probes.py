# SPDX-License-Identifier: Apache-2.0
"""Steps that change nothing, and optimizers that write over what the run brought, on real islands."""

import functools
import time
import unittest

import torch

from islands import Run, anchor_of, main

import diloco
from diloco._probes import Overwritten

SPEC = """[run]
name = probes
steps = {steps}
[sync]
interval = 10
layers_per_fragment = 1
late = merge
{more}
"""


class Mastered:
    """SGD or Adam on fp32 masters that it has made for itself, as DeepSpeed's and apex's do."""

    def __init__(self, model, kind, **options):
        self.model = list(model.parameters())
        self.masters = [value.detach().clone().float() for value in self.model]
        self.optimizer = kind(self.masters, **options)

    def step(self):
        for value, master in zip(self.model, self.masters):
            master.grad = value.grad.float()
        self.optimizer.step()
        with torch.no_grad():
            for value, master in zip(self.model, self.masters):
                value.copy_(master)


def learns(run, model, optimizer, island, noise, until=10**9):
    """Towards values drawn at random, by gradients with noise."""
    torch.manual_seed(5)
    goals = [torch.randn(value.shape) for value in model.parameters()]
    while not island.done and island.run_step < until:
        for value, goal in zip(model.parameters(), goals):
            value.grad = (value.detach() - goal + noise * torch.randn(value.shape)).to(value.dtype)
        optimizer.step()
        island.step(tokens=1)
        time.sleep(0.003)


class Islands(unittest.TestCase):
    def test_an_optimizer_of_another_models_parameters_is_told(self):
        """And one that changes values behind PyTorch's counts, or only some, is not."""

        @functools.cache
        def another(where):
            other = torch.nn.Linear(6, 5, device=where)
            return other, torch.optim.AdamW(other.parameters())

        def of_another(model):
            other, optimizer = another(model.weight.device)
            other(torch.ones(6)).sum().backward()
            optimizer.step()

        def by_count(model):
            with torch.no_grad():
                model.bias.add_(0.01)

        def behind(model):
            model.bias.data.add_(0.01)

        for change, told in ((of_another, 1), (by_count, 0), (behind, 0)):
            with self.subTest(change), Run(SPEC.format(steps=200, more="")) as run:
                paris, model = run.found("paris", ""), torch.nn.Linear(6, 5)
                with diloco.attach(model, socket=paris.socket(), wait=20) as island:
                    with self.assertLogs("diloco", "WARNING") as said:
                        diloco.island._log.warning("begins")
                        while not island.done:
                            change(model)
                            island.step(tokens=1)
                    self.assertTrue(island.finish())
                idle = [one for one in said.output if "no parameter has changed in the last 5" in one]
                self.assertEqual(len(idle), told)

    OPTIMIZERS = {
        "sgd": (torch.optim.SGD, dict(lr=0.02)),
        "momentum": (torch.optim.SGD, dict(lr=0.005, momentum=0.9)),
        "adam": (torch.optim.AdamW, dict(lr=0.01)),
    }

    def model(self, dtype):
        return torch.nn.Sequential(*(torch.nn.Linear(24, 24) for _ in range(3))).to(dtype)

    def test_an_optimizer_with_masters_of_its_own_is_told_of(self):
        for name, (kind, options) in self.OPTIMIZERS.items():
            for dtype, more in ((torch.float32, ""), (torch.bfloat16, "overlap = 3\nmix = 0.5\n")):
                with self.subTest(f"{name} {dtype} {more}"), Run(SPEC.format(steps=400, more=more)) as run:
                    paris = run.found("paris", "")
                    model = self.model(dtype)
                    with diloco.attach(model, socket=paris.socket(), wait=20) as island:
                        words = "written over .* parameter [0-9].(weight|bias)"
                        with self.assertRaisesRegex(diloco.DilocoError, words):
                            learns(run, model, Mastered(model, kind, **options), island, noise=0.3)
                        self.assertLess(island.run_step, 60)

    def test_a_single_value_that_goes_back_by_itself_is_not(self):
        """Where the learning rate times the curvature is about 1, a step undoes what an anchor has moved."""
        for count, told in ((1, None), (15, None), (16, 0)):
            with self.subTest(count):
                value = torch.zeros(count)
                probe = Overwritten([value])
                probe.before([value])
                value += 1.0
                probe.after([value], lambda number: True)
                for at in (0.01, 0.02):
                    value.fill_(at)
                    found = probe.look([value])
                self.assertEqual(found, told)

    def test_one_that_takes_over_what_comes_in_is_not(self):
        for name, (kind, options) in self.OPTIMIZERS.items():
            for noise, more in ((0, ""), (0.3, ""), (3, "overlap = 3\nmix = 0.5\n"), (0.3, "overlap = 10\nmix = 0\n")):
                with self.subTest(f"{name} {noise} {more}"), Run(SPEC.format(steps=200, more=more)) as run:
                    paris = run.found("paris", "")
                    model = self.model(torch.float32)
                    optimizer = kind(model.parameters(), **options)
                    with diloco.attach(model, socket=paris.socket(), wait=20) as island:
                        learns(run, model, optimizer, island, noise)
                        self.assertTrue(island.finish())
                        self.assertEqual(island.skipped, 0)

    def test_what_masters_hold_at_attach_is_seen_at_once(self):
        with Run(SPEC.format(steps=100, more="")) as run:
            paris = run.found("paris", "")
            model = self.model(torch.float32)
            with diloco.attach(model, socket=paris.socket(), wait=20) as island:
                learns(run, model, torch.optim.SGD(model.parameters(), lr=0.02), island, 0.1, until=30)
            late = self.model(torch.float32)
            optimizer = Mastered(late, torch.optim.SGD, lr=0.02)
            with diloco.attach(late, socket=paris.socket(), wait=20) as island:
                begun = island.run_step
                with self.assertRaisesRegex(diloco.DilocoError, "written over"):
                    learns(run, late, optimizer, island, 0.1)
                self.assertLess(island.run_step, begun + 5)

    def test_steps_that_change_nothing_are_not_counted(self):
        with Run(SPEC.format(steps=100, more="")) as run:
            paris = run.found("paris", "")
            model = self.model(torch.float32)
            tried = trained = 0
            with diloco.attach(model, socket=paris.socket(), wait=20) as island:
                while not island.done:
                    tried += 1
                    if tried % 4 != 3:
                        trained += 1
                        with torch.no_grad():
                            for value in model.parameters():
                                value.mul_(0.99)
                    island.step(tokens=1000 if tried % 4 == 3 else 5)
                self.assertEqual((trained, island.skipped), (100, tried - 100))
                self.assertTrue(island.finish())
            paris.await_finished()
            self.assertEqual(paris.trainer()["tokens_counted"], 500)
            for name, anchor in anchor_of(paris).items():
                self.assertTrue(torch.equal(model.get_parameter(name).detach(), anchor), name)

    def test_a_loop_that_changes_nothing_for_long_or_in_its_own_way_comes_to_its_end(self):
        with Run(SPEC.format(steps=100, more="")) as run:
            paris = run.found("paris", "")
            model = self.model(torch.float32)
            with diloco.attach(model, socket=paris.socket(), wait=20) as island:
                while not island.done:  # of this nothing is to be seen in a parameter's count of changes
                    for value in model.parameters():
                        value.data.mul_(0.99)
                    island.step(tokens=5)
                self.assertEqual(island.skipped, 0)
                self.assertTrue(island.finish())
            paris.await_finished()
            self.assertEqual(paris.trainer()["tokens_counted"], 500)
        with Run(SPEC.format(steps=100, more="")) as run:
            paris = run.found("paris", "")
            with diloco.attach(model, socket=paris.socket(), wait=20) as island:
                with torch.no_grad():
                    model[0].weight.mul_(0.99)
                while island.step(tokens=5):
                    pass
                self.assertLess(island.skipped, 200)
                self.assertTrue(island.finish())


if __name__ == "__main__":
    main()
