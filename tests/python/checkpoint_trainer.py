# SPDX-License-Identifier: Apache-2.0
"""Ranks of one island, whose checkpoints are torch.distributed.checkpoint's.

    checkpoint_trainer.py --as fsdp|ddp [--until STEP --save FOLDER [--async]] [--load FOLDER] [--alone]

--alone: they are torch.save()'s, in rank 0, which does not ask the others.
"""

import argparse
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import diloco


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--as", dest="how", required=True)
    options.add_argument("--until", type=int, default=1 << 30)
    for name in ("--save", "--load"):
        options.add_argument(name)
    options.add_argument("--async", dest="behind", action="store_true")
    options.add_argument("--alone", action="store_true")
    a = options.parse_args()
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(9, 7), torch.nn.Linear(7, 5))
    with torch.no_grad():
        for value in model.parameters():
            value.zero_()
    if a.how == "fsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    else:
        model = DistributedDataParallel(model)
    if a.load and a.alone:
        saved = torch.load(a.load, weights_only=True)
        model.load_state_dict(saved["model"])
        island = diloco.attach(model, state=saved["island"])
    else:
        island = diloco.attach(model)
    if a.load and not a.alone:
        state = {"model": get_model_state_dict(model), "island": island}
        dcp.load(state, checkpoint_id=a.load)
        set_model_state_dict(model, state["model"])
    if a.load and dist.get_rank() == 0:
        print(f"goes on after {island.start_step}, {island.tokens} tokens", flush=True)
    saved = None
    while not island.done and not (a.save and saved is None and island.run_step >= a.until):
        with torch.no_grad():
            for value in model.parameters():
                (value.to_local() if hasattr(value, "to_local") else value).add_(0.01)
        island.step(tokens=10)
        time.sleep(0.003)
    if a.save and a.alone:
        if dist.get_rank() == 0:
            torch.save({"model": model.state_dict(), "island": island.state_dict()}, a.save)
        dist.barrier()
    elif a.save:
        state = {"model": get_model_state_dict(model), "island": island}
        if a.behind:
            under_way = dcp.async_save(state, checkpoint_id=a.save)
            under_way.result()
        else:
            dcp.save(state, checkpoint_id=a.save)
    if a.save:
        if dist.get_rank() == 0:
            print(f"saved at {island.run_step}, {10 * island.run_step} tokens", flush=True)
    else:
        assert island.finish()
    island.detach()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
