# SPDX-License-Identifier: Apache-2.0
"""A trainer that writes down which samples of a dataset that all islands have it has trained on, each rank in a file of
its own.

    sampling_trainer.py --as sampler|shard --out FILE [--workers N] [--anew STEPS]
                        [--group auto|world|none]

--anew: its loader is begun anew after so many steps, again and again.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

import diloco

SAMPLES, PER_STEP = 2_000_000, 4


class Numbers:
    """Of a dataset that is larger than what is drawn of it here: who draws of its own part has enough of that."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, at):
        return torch.tensor(at)


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
    a = options.parse_args()
    torch.set_num_threads(1)
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
                time.sleep(0.01)
                if island.done or number + 1 >= a.anew:
                    break
        island.finish()
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
