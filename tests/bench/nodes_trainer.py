# SPDX-License-Identifier: Apache-2.0
"""A rank of what nodes.py measures. Rank 0 writes a line of JSON to --out, and all of them end.

    nodes_trainer.py --do turns --pairs N --out FILE     a GPT spread by FSDP2, in turns alone and attached
    nodes_trainer.py --do carry --rounds N --out FILE    larger parameters that are not trained, so that what goes over
                                                         the line is the island's alone
"""

import argparse
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2] / "docs/examples"))

import diloco
from gpt_loop import BEGIN, INTERVAL, WARM_STEPS, GptLoop

CARRIED, WIDTH = 32, 1024  # square matrices of so many rows: 33.6M values
PAUSE_S = 0.02  # between steps where nothing is trained


def spread(model):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)


def turns(a, rank):
    """Of each piece: seconds a step, and of them in island.step()."""
    loop = GptLoop(a.data, rank, spread)
    for _ in range(WARM_STEPS):
        loop.step(None)
    island = diloco.attach(loop.model, trainer="nodes")
    while island.run_step < INTERVAL or island.run_step % INTERVAL != BEGIN:
        loop.step(island)
    pieces = {True: [], False: []}
    for attached in (False, True, True, False) * (a.pairs // 2):  # what only drifts is on both sides
        dist.barrier()
        until = island.run_step + INTERVAL
        taken = within = 0.0
        steps = 0
        while island.run_step < until if attached else steps < INTERVAL:
            whole, call = loop.step(island if attached else None)
            taken, within, steps = taken + whole, within + call, steps + 1
        pieces[attached].append((taken / steps, within / steps))
    parameters = sum(value.numel() for value in loop.model.parameters())
    return island, dict(alone=pieces[False], attached=pieces[True], parameters=parameters)


def resident(key):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return 1024 * int(line.split()[1])
    raise LookupError(key)


def carry(a, rank):
    """Of each rank: bytes a value of its own that it holds beside them at most, and whether it is a far one."""
    model = nn.ModuleDict({"layers": nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(CARRIED))})
    for layer in model["layers"]:
        fully_shard(layer)
    own = [value.to_local().detach() for value in model.parameters()]
    values = sum(value.numel() for value in own)
    for value in own:
        value.mul_(1.01)
    dist.barrier()
    before = resident("VmRSS:")
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: proc_pid_clear_refs(5)
    island = diloco.attach(model, trainer="nodes")
    mixes = 0
    while mixes < a.rounds and island.step(tokens=1):
        for value in own:
            value.mul_(1.0001)
        mixes += bool(island.changed_numbers())
        time.sleep(PAUSE_S)
    held = (resident("VmHWM:") - before) / values
    ranks = [None] * dist.get_world_size()
    far = not os.access(os.environ["DILOCO_SOCKET"], os.R_OK)
    dist.all_gather_object(ranks, (far, held))
    return island, dict(ranks=ranks, values=values * len(ranks), mixes=mixes)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--do", choices=["turns", "carry"], required=True)
    options.add_argument("--data", required=True)
    options.add_argument("--out", required=True)
    options.add_argument("--pairs", type=int, default=4)
    options.add_argument("--rounds", type=int, default=12)
    a, _ = options.parse_known_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    island, figures = (turns if a.do == "turns" else carry)(a, dist.get_rank())
    if dist.get_rank() == 0:
        pathlib.Path(a.out + ".new").write_text(json.dumps(figures))
        os.rename(a.out + ".new", a.out)
    island.detach()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
