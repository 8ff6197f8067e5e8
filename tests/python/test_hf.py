# SPDX-License-Identifier: Apache-2.0
"""The Python package with transformers and PEFT, on real islands, beside diloco-worker."""

import os
import sys
import types
import unittest
import unittest.mock

from islands import ROOT, TEXT, Run, assert_one_model, main

from diloco.hf import DilocoCallback

LLAMA = f"{sys.executable} -u {ROOT}/docs/examples/llama.py --data {TEXT}"
SPEC = """[run]
name = hf
steps = 300
[model]
vocab = 256
width = 64
layers = 2
heads = 4
kv_heads = 2
ff = 96
context = 32
tied = yes
[train]
batch = 4
[sync]
interval = 20
layers_per_fragment = 1
late = merge
"""


class Tokens(unittest.TestCase):
    def test_what_a_step_has_trained(self):
        """What it is told, else what the trainer has counted since, else sequences."""
        args = types.SimpleNamespace(train_batch_size=4, gradient_accumulation_steps=3, world_size=2)
        callback, state = DilocoCallback(), types.SimpleNamespace(num_input_tokens_seen=0)
        said = []
        for seen in (0, 100, 150):
            state.num_input_tokens_seen = seen
            said.append(callback._tokens(args, state))
        self.assertEqual(said, [24, 100, 50])
        self.assertEqual(DilocoCallback(tokens_per_step=7)._tokens(args, state), 7)


class Seeds(unittest.TestCase):
    """Trainers seed their generators and samplers alike everywhere, and before anybody has attached."""

    def orders(self, loader, callback):
        """Of the batches on two islands, and on the first one once more."""
        from transformers import set_seed

        args, orders = types.SimpleNamespace(seed=42, data_seed=None, output_dir=""), []
        for number in (5, 6, 5):
            set_seed(42)
            island = types.SimpleNamespace(seed=lambda base: number + base)
            with unittest.mock.patch("diloco.hf.attach", lambda model, **options: island):
                callback.on_train_begin(args, types.SimpleNamespace(global_step=0), None, train_dataloader=loader)
            if hasattr(loader, "set_epoch"):
                loader.set_epoch(0)
            orders.append([int(item) for batch in loader for item in batch])
        self.assertEqual(sorted(orders[0]), list(range(64)))
        return orders

    def test_batches_are_an_islands_own(self):
        from accelerate import Accelerator
        from accelerate.utils import DataLoaderConfiguration
        from torch.utils.data import DataLoader
        import torch

        plain = DataLoader(range(64), batch_size=4, shuffle=True)
        own = DataLoader(range(64), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3))
        seedable = Accelerator(
            cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=42)
        ).prepare(DataLoader(range(64), batch_size=4, shuffle=True))
        for loader in (plain, own, seedable):
            first, second, again = self.orders(loader, DilocoCallback())
            self.assertNotEqual(first, second)
            self.assertEqual(first, again)
        first, second, _ = self.orders(plain, DilocoCallback(seed=False))
        self.assertEqual(first, second)


class Islands(unittest.TestCase):
    def test_two_of_transformers_and_one_of_diloco_worker_end_as_one(self):
        with Run(SPEC) as run:
            islands = [run.found("paris", f"{LLAMA} --out {run.place}/out1")]
            islands.append(run.join("oslo", "diloco-worker"))
            islands.append(run.join("rome", f"{LLAMA} --out {run.place}/out2"))
            assert_one_model(islands)

    def test_lora_exchanges_what_it_trains(self):
        with Run(SPEC) as run:
            islands = [run.found("paris", f"{LLAMA} --lora --out {run.place}/out1")]
            islands.append(run.join("oslo", f"{LLAMA} --lora --out {run.place}/out2"))
            assert_one_model(islands)
            self.assertEqual(islands[0].status()["params"], 2 * (4 * 64 + 64 * 4 + 4 * 64 + 32 * 4))

    def test_a_trainer_that_is_killed_goes_on_from_its_checkpoint(self):
        with Run(SPEC.replace("interval = 20", "interval = 150")) as run:
            paris = run.found("paris", f"{LLAMA} --save-every 40 --out {run.place}/out")
            kept = run.place / "out/checkpoint-40/diloco.kept"
            paris.await_("a checkpoint", lambda _: kept.exists(), pause=0.02)
            os.kill(paris.trainer()["pid"], 9)
            paris.await_log("started again")
            paris.await_log("training goes on after step 40 ")
            assert_one_model([paris])
            self.assertEqual(paris.trainer()["tokens_counted"], 300 * 128)


if __name__ == "__main__":
    main()
