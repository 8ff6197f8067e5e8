# SPDX-License-Identifier: Apache-2.0
"""The Python package with transformers and PEFT, on real islands, beside diloco-worker."""

import os
import re
import sys
import tempfile
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
            island = types.SimpleNamespace(seed=lambda base: number + base, steps=9, run_step=0)
            state = types.SimpleNamespace(global_step=0, max_steps=9)
            with unittest.mock.patch("diloco.hf.attach", lambda model, **options: island):
                callback.on_train_begin(args, state, None, train_dataloader=loader)
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


class Steps(unittest.TestCase):
    """The trainer's count of steps, and all that goes by it, is the run's."""

    def trained(self, run_steps, steps, scheduler_type="linear", max_steps=1000):
        """By a trainer whose run's step is as told after each of its steps; what it has left."""
        import torch
        from transformers import Trainer, TrainingArguments

        told = iter(run_steps)

        class Island(types.SimpleNamespace):
            def step(self, **others):
                self.run_step = next(told)
                self.done = self.run_step >= steps
                return not self.done

        island = Island(
            seed=lambda base: 1, steps=steps, run_step=next(told), held=False, done=False, ending=False,
            finish=lambda: True, detach=lambda: None,
        )

        class Model(torch.nn.Linear):
            def forward(self, x, labels):
                return {"loss": (super().forward(x) - labels).square().mean()}

        data = [{"x": torch.ones(3), "labels": torch.ones(2)}] * 400
        with tempfile.TemporaryDirectory() as out, unittest.mock.patch("diloco.hf.attach", lambda model, **o: island):
            arguments = TrainingArguments(
                out, per_device_train_batch_size=4, max_steps=max_steps, learning_rate=1.0, warmup_steps=10,
                lr_scheduler_type=scheduler_type, logging_steps=10, save_steps=25, save_strategy="steps", report_to=[],
                disable_tqdm=True, use_cpu=True,
            )
            trainer = Trainer(
                model=Model(3, 2), args=arguments, train_dataset=data, callbacks=[DilocoCallback(tokens_per_step=1)]
            )
            trainer.train()
            saved = sorted(int(name.rpartition("-")[2]) for name in os.listdir(out))
        told_of = [entry for entry in trainer.state.log_history if "learning_rate" in entry]
        rates = {entry["step"]: entry["learning_rate"] for entry in told_of}
        return trainer, rates, saved

    def test_a_schedule_of_the_arguments_is_made_for_the_run_s_steps(self):
        """And goes on where the run is, whatever the trainer has done itself."""
        trainer, rates, saved = self.trained(range(60, 161), 160)
        self.assertEqual((trainer.state.global_step, trainer.state.max_steps), (160, 160))
        self.assertEqual(sorted(rates), list(range(70, 170, 10)))
        for step, rate in rates.items():  # that the last step was made with
            self.assertAlmostEqual(rate, (161 - step) / 150)
        self.assertEqual(saved, [75, 100, 125, 150, 160])
        _, rates, _ = self.trained(range(60, 161), 160, "cosine", 50)
        self.assertAlmostEqual(rates[160], 0, delta=0.001)

    def test_where_the_run_skips_steps_all_is_done_at_the_next_one(self):
        trainer, rates, saved = self.trained([0, *range(3, 160, 3), 160], 160)
        self.assertEqual(sorted(rates), [12, 21, 30, 42, 51, 60, 72, 81, 90, 102, 111, 120, 132, 141, 150, 160])
        self.assertEqual(saved, [27, 51, 75, 102, 126, 150, 160])
        for step, rate in rates.items():  # that the last step was made with
            begun = step - 3 if step < 160 else 159
            self.assertAlmostEqual(rate, min(begun / 10, (160 - begun) / 150))


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

    def test_a_schedule_goes_on_though_nothing_was_saved(self):
        with Run(SPEC.replace("steps = 300", "steps = 160")) as run:
            paris = run.found("paris", f"{LLAMA} --out {run.place}/out")
            paris.await_("some steps", lambda island: island.trainer().get("step", 0) > 80, pause=0.02)
            os.kill(paris.trainer()["pid"], 9)
            paris.await_log("started again")
            assert_one_model([paris])
            rates = [float(rate) for rate in re.findall(r"'learning_rate': '?([0-9.e-]+)", paris.log())]
            self.assertLess(rates[-1], 3e-3 / 50)
            self.assertLess(max(rates[-2:]), 3e-3 / 5)

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
