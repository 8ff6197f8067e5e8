# SPDX-License-Identifier: Apache-2.0
"""A trainer that writes down which samples of a dataset that all islands have it has trained on, each rank in a file of
its own; and in FILE.own those, with the pass that they are of, that were drawn of this island's own part of it.

    sampling_trainer.py --as sampler|shard --out FILE [--workers N] [--anew STEPS]
                        [--group auto|world|none] [--pause SECONDS]

--anew: its loader is begun anew after so many steps, again and again. --pause: a step takes so much longer; where it
is short, results come late, and islands draw of their own parts.
"""

import argparse
import ctypes
import os
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

import diloco
from diloco import _abi
from diloco._sampler import Sampler

SAMPLES, PER_STEP = 2_000_000, 4


class Numbers:
    """Of a dataset that is larger than what is drawn of it here: who draws of its own part has enough of that."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, at):
        return torch.tensor(at)


def note_own(path):
    """Whoever draws, a loader's worker, too."""
    draw = Sampler._draw

    def noted(self, known, step, unit):
        drawn = known.draw(step, unit, self.per_step)
        if not drawn.dealt:
            number, which = ctypes.c_uint64(), ctypes.c_uint64()
            _abi.library().diloco_window(
                ctypes.byref(drawn), self.samples, self.seed, ctypes.byref(number), ctypes.byref(which)
            )
            with open(path, "a") as file:
                file.write(f"{number.value} {which.value}\n")
        return draw(self, known, step, unit)

    Sampler._draw = noted


def loader_of(island, how, batch, workers, group):
    group = {"none": None, "world": dist.group.WORLD}.get(group, group)
    if how == "shard":
        return DataLoader(island.shard(Numbers(), PER_STEP, group=group), batch, num_workers=workers)
    return DataLoader(Numbers(), batch, sampler=island.sampler(Numbers(), PER_STEP, group=group), num_workers=workers)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--as", dest="how", default="sampler")
    options.add_argument("--out", required=True)
    options.add_argument("--workers", type=int, default=0)
    options.add_argument("--anew", type=int, default=1 << 30)
    options.add_argument("--group", default="auto")
    options.add_argument("--pause", type=float, default=0.01)
    a = options.parse_args()
    torch.set_num_threads(1)
    note_own(f"{a.out}.own")
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if ranks > 1 else 0
    model = torch.nn.Linear(4, 4)
    with diloco.attach(model) as island, open(f"{a.out}.{rank}", "a", buffering=1) as out:
        batch = PER_STEP // (1 if a.group == "none" else ranks)
        loader = loader_of(island, a.how, batch, a.workers, a.group)
        while not island.done:
            for number, batch in enumerate(loader):
                with torch.no_grad():
                    model.weight += 1e-3
                island.step(tokens=PER_STEP)
                out.write("".join(f"{island.run_step} {int(sample)}\n" for sample in batch))
                time.sleep(a.pause)
                if island.done or number + 1 >= a.anew:
                    break
        island.finish()
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
