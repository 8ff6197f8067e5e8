# SPDX-License-Identifier: Apache-2.0
"""docs/examples/titan.py: islands of torchtitan's ranks, in the meshes that it makes, beside one of a single rank. In
the end all hold the anchor's values, bit for bit."""

import importlib.util
import json
import os
import re
import sys
import unittest
import unittest.mock
from functools import partial
from types import SimpleNamespace

import torch

from beside import ranks
from islands import ROOT, TEXT, Run, anchor_of, assert_one_model, main
from test_nodes import nodes

STEPS = 60
SPEC = f"""[run]
name = titan
steps = {STEPS}
[sync]
interval = 12
layers_per_fragment = 2
late = merge
pace = lockstep
"""
TRAINER = f"{ROOT}/tests/python/titan_on_cpu.py"


def make_assets(folder):
    """A tokenizer of the text, and the text as a dataset."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    bytes_of_text = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = bytes_of_text
    special, alphabet = ["<s>", "</s>"], bytes_of_text.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train([str(TEXT)], trainer)
    (folder / "text").mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    passages = TEXT.read_text().split("\n\n")
    lines = ("\n\n".join(passages[at : at + 10]) for at in range(0, len(passages), 10))
    (folder / "text/text.json").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))


NO_TITAN = importlib.util.find_spec("torchtitan") is None
WHY = "torchtitan is not installed: pip install torchtitan"


@unittest.skipIf(NO_TITAN, WHY)
class Loop(unittest.TestCase):
    """What titan.py puts into torchtitan's loop, without ranks and daemons."""

    def setUp(self):
        sys.path.insert(0, str(ROOT / "docs/examples"))
        import titan

        self.island = SimpleNamespace(index=1, count=3, run_step=20, steps=STEPS, done=False, step=self.calls)
        self.called = []
        schedules = self.Schedules([SimpleNamespace(last_epoch=0)])
        self.trainer = SimpleNamespace(
            model_parts=[torch.nn.Linear(2, 2)], step=0, gradient_accumulation_steps=3, lr_schedulers=schedules,
            config=SimpleNamespace(training=SimpleNamespace(steps=STEPS, local_batch_size=5, seq_len=7),
                                   checkpoint=SimpleNamespace(enable=True)),
            parallel_dims=SimpleNamespace(dp_enabled=False), checkpointer=SimpleNamespace(states={}),
            batch_generator=lambda loader: iter(loader), train_step=lambda batches: None,
            metrics_processor=SimpleNamespace(log=lambda *_: None),
        )
        with unittest.mock.patch("diloco.attach", return_value=self.island) as attach:
            titan.make_island(self.trainer)
        self.assertEqual(set(attach.call_args.kwargs["parts"]), {"weight", "bias"})

    class Schedules(list):
        def step(self):
            for one in self:
                one.last_epoch += 1

    def calls(self, **said):
        self.called.append(said)

    def test_islands_draw_batches_of_their_own(self):
        self.assertEqual(list(self.trainer.batch_generator(range(10))), [1, 4, 7])

    def test_steps_rates_and_checkpoints_go_by_the_run(self):
        self.assertTrue(self.trainer.should_continue_training())
        self.assertEqual((self.trainer.step, self.trainer.lr_schedulers[0].last_epoch), (20, 20))
        self.assertIs(self.trainer.checkpointer.states["island"], self.island)
        self.trainer.metrics_processor.log(21, 0.5)
        self.trainer.train_step(None)
        self.assertEqual(self.called, [{"tokens": 3 * 5 * 7, "loss": 0.5}])
        self.island.done = True
        self.assertFalse(self.trainer.should_continue_training())


@unittest.skipIf(NO_TITAN, WHY)
class Islands(unittest.TestCase):
    def setUp(self):
        run = Run(SPEC)
        self.run_of_islands = self.enterContext(run)
        make_assets(run.place / "assets")

    def island(self, make, name, launch, *more):
        place = self.run_of_islands.place
        options = f"--assets {place}/assets --out {place}/{name} --dump_folder {place}/{name}-out"
        return make(name, launch(options, f"--training.steps {STEPS}", *more, trainer=TRAINER))

    def beside_one(self, launch, *more):
        run = self.run_of_islands
        paris = self.island(run.found, "paris", launch, *more)
        oslo = self.island(run.join, "oslo", partial(ranks, 1))
        self.hold_the_anchor(paris, oslo)
        return paris

    def hold_the_anchor(self, *islands):
        assert_one_model(islands)
        anchor = anchor_of(islands[0])
        for island in islands:
            island.await_log("over: True")
            files = sorted(self.run_of_islands.place.glob(f"{island.name}.[0-9]*"))
            held = [torch.load(file) for file in files]
            self.assertEqual(set().union(*held), set(anchor))
            for values in held:
                for name, value in values.items():
                    self.assertTrue(torch.equal(value, anchor[name]), f"{island.name}: {name}")

    def test_fsdp2(self):
        self.beside_one(partial(ranks, 2))

    def test_hsdp(self):
        self.beside_one(partial(ranks, 4), "--parallelism.data_parallel_replicate_degree 2",
                        "--parallelism.data_parallel_shard_degree 2")

    def test_fsdp2_of_tensor_parallel(self):
        self.beside_one(partial(ranks, 4), "--parallelism.tensor_parallel_degree 2")

    @unittest.skipIf(os.geteuid() != 0, "machines are made of namespaces, by root")
    def test_a_pipeline_of_fsdp2_over_two_machines(self):
        self.beside_one(partial(nodes, 2, 2), "--parallelism.pipeline_parallel_degree 2",
                        "--parallelism.pipeline_parallel_schedule 1F1B")

    def test_of_its_checkpoint_it_goes_on(self):
        run = self.run_of_islands
        paris = self.island(run.found, "paris", partial(ranks, 2), "--checkpoint.enable", "--checkpoint.interval 10")
        oslo = self.island(run.join, "oslo", partial(ranks, 1))
        paris.await_("some steps", lambda island: island.trainer().get("step", 0) > 15)
        paris.ctl("stop")
        self.assertIn("over: False", paris.log())
        paris.ctl("start")
        self.hold_the_anchor(paris, oslo)
        begun = sorted({int(step) for step in re.findall(r"Training starts at step (\d+)", paris.log())})
        self.assertEqual(begun[0], 1)
        self.assertGreater(begun[-1], 10)


if __name__ == "__main__":
    main()
