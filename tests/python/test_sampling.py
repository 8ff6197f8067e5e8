# SPDX-License-Identifier: Apache-2.0
"""Islands that draw from a dataset that all have, by torch's loaders with workers and in several ranks: no sample
twice, whoever comes."""

import os
import re
import signal
import sys
import unittest

import torch
from torch.utils.data import DataLoader, IterableDataset

from islands import ROOT, Run, free_port, main
import diloco

TRAINER = f"{ROOT}/tests/python/sampling_trainer.py"
SPEC = """[run]
name = sampling
steps = {steps}
[sync]
interval = 20
layers_per_fragment = 1
"""
PER_STEP = 4


class Sampling(unittest.TestCase):
    def drawn(self, place, name):
        """What each rank has trained on, in order."""
        files = sorted(place.glob(f"{name}.*[0-9]"))
        self.assertGreater(len(files), 0, name)
        return [[int(line.split()[1]) for line in file.read_text().splitlines()] for file in files]

    def own(self, place, name):
        """What was drawn of its own part: of each sample the passes that it was drawn of."""
        passes, file = {}, place / f"{name}.own"
        for line in file.read_text().splitlines() if file.exists() else []:
            number, sample = map(int, line.split())
            passes.setdefault(sample, set()).add(number)
        return passes

    def assert_once(self, place, parts):
        """No sample of the first pass was trained on twice; of its own part an island may draw again. `parts`: of each
        island, of each rank."""
        seen, count, of_own = {}, 0, 0
        for name, ranks in parts.items():
            own = self.own(place, f"{name}.drawn")
            for rank, numbers in enumerate(ranks):
                for at, number in enumerate(numbers):
                    count, of_own = count + 1, of_own + (number in own)
                    here = name if number in own else f"{name}, rank {rank}, as number {at}"
                    if 0 in own.get(number, {0}) and seen.setdefault(number, here) != here:
                        self.fail(f"sample {number}: {seen[number]}, and {here}")
        print(f"{count} samples, of them {of_own} of islands' own parts", file=sys.stderr)
        self.assertGreater(count - of_own, 100 * PER_STEP)

    def start(self, run, name, ranks, *more):
        python = f"{sys.executable} -u"
        if ranks > 1:
            python = f"{sys.executable} -m torch.distributed.run --nproc-per-node {ranks} --master-port {free_port()}"
        program = " ".join([python, TRAINER, "--out", f"{run.place}/{name}.drawn", *more])
        program += f"\nunits = {PER_STEP}"
        return run.join(name, program) if run.islands else run.found(name, program)

    def test_no_sample_is_drawn_twice_in_ranks_and_workers_by_islands_that_come_one_by_one(self):
        with Run(SPEC.format(steps=100000)) as run:
            paris = self.start(run, "paris", 2, "--workers 2 --anew 50 --group world")
            paris.await_("some steps", lambda island: island.trainer().get("step", 0) > 40)
            oslo = self.start(run, "oslo", 1, "--as shard --workers 1 --anew 70")
            oslo.await_("some steps", lambda island: island.trainer().get("step", 0) > 100)
            rome = self.start(run, "rome", 2, "--as shard --group none")
            first = run.place / "rome.drawn.0"
            rome.await_("many steps", lambda _: first.exists() and len(first.read_text().split("\n")) > 200 * PER_STEP)
            for island in (rome, oslo, paris):
                island.ctl("stop")
            all_parts = {}
            for name, ranks in (("paris", 2), ("oslo", 1), ("rome", 2)):
                parts = self.drawn(run.place, f"{name}.drawn")
                self.assertEqual(len(parts), ranks)
                if name == "rome":  # whose ranks draw the same, to share out themselves
                    length = min(len(part) for part in parts)
                    self.assertEqual(parts[0][:length], parts[1][:length])
                    parts = [max(parts, key=len)]
                self.assertGreater(len(parts[0]) * len(parts), 100 * PER_STEP)
                all_parts[name] = parts
            self.assert_once(run.place, all_parts)
            log = paris.log() + oslo.log() + rome.log()
            self.assertEqual(re.findall("samples are drawn.*|.*are dealt to this island.*", log), [])

    def test_what_is_lost_is_drawn_by_nobody_else(self):
        """Oslo's trainer is killed, then its daemon: each begins anew, and goes on. No sample is trained on twice."""
        with Run(SPEC.format(steps=100000)) as run:
            islands = [self.start(run, name, 1, f"--pause 0.06 --as {how}")
                       for name, how in (("paris", "sampler --workers 1"), ("oslo", "shard"), ("rome", "sampler"))]
            paris, oslo, rome = islands
            files = {island: run.place / f"{island.name}.drawn.0" for island in islands}

            def drawn(island):
                path = files[island]
                return path.read_text().count("\n") if path.exists() else 0

            def all_go_on(steps=60):
                before = {island: drawn(island) for island in islands}
                for island in islands:
                    island.await_("more steps", lambda _: drawn(island) >= before[island] + steps * PER_STEP)

            all_go_on()
            trainer = oslo.trainer()["pid"]
            os.kill(trainer, signal.SIGKILL)
            oslo.await_("another trainer", lambda island: island.trainer().get("pid", trainer) not in (0, trainer))
            all_go_on()
            daemon = oslo.pid()
            os.kill(daemon, signal.SIGKILL)
            oslo.await_("another daemon", lambda island: island.pid() not in (0, daemon))
            all_go_on()
            for island in islands:
                island.ctl("stop")
            self.assert_once(run.place, {one.name: self.drawn(run.place, f"{one.name}.drawn") for one in islands})

    def test_a_checkpoint_goes_on_with_the_samples_after_it(self):
        def train(island, loader, steps):
            numbers = []
            for batch in loader:
                with torch.no_grad():
                    model.weight += 1e-3
                island.step(tokens=1)
                numbers += batch.tolist()
                if len(numbers) >= steps * PER_STEP:
                    return numbers

        def loader_of(island):
            items = range(100000)
            return DataLoader(items, PER_STEP, sampler=island.sampler(items, PER_STEP), num_workers=1)

        with Run(SPEC.format(steps=100000).replace("= 20", "= 1000")) as run:
            paris, model = run.found("paris", f"\nunits = {PER_STEP}"), torch.nn.Linear(4, 4)
            with diloco.attach(model, socket=paris.socket(), wait=20) as island:
                loader = loader_of(island)
                before = train(island, loader, 10)
                state, saved = island.state_dict(), {k: v.clone() for k, v in model.state_dict().items()}
                after = train(island, loader, 5)
                self.assertEqual(len(set(before + after)), 15 * PER_STEP)
                model.load_state_dict(saved)
                island.load_state_dict(state)
                again = train(island, loader, 5)  # its work was lost; but a step that was begun is not left out now
                self.assertEqual(again[PER_STEP:], after[:-PER_STEP])
                state = island.state_dict()
            with diloco.attach(model, socket=paris.socket(), wait=20, state=state) as island:
                more = train(island, loader_of(island), 5)
                self.assertEqual(len(set(before + again + more)), 20 * PER_STEP)
                with self.assertRaisesRegex(diloco.DilocoError, "which can only be gone through"):
                    island.shard(Endless(), PER_STEP)
                shard = island.shard(range(9), 1)
                self.assertIsInstance(shard, IterableDataset)
                with self.assertRaisesRegex(diloco.DilocoError, "in a loader with 2 workers: one process"):
                    next(iter(DataLoader(shard, num_workers=2)))
                island.state_dict()


class Endless(IterableDataset):
    def __len__(self):
        return 5

    def __iter__(self):
        return iter(range(5))


if __name__ == "__main__":
    main()
