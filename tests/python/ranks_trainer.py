# SPDX-License-Identifier: Apache-2.0
"""A small model that moves towards numbers of its island's, in every way that PyTorch spreads one over ranks.

    ranks_trainer.py --as plain|ddp|fsdp|hsdp|tp|fsdp-tp --out FILE [--islands 2] [--dtype bfloat16] [--bad] [--keyless]

It begins when as many islands have attached, which write beside FILE.

Wherever several ranks hold the same values it looks after every step, and at the end, whether they are the same bits.
FILE gets the whole parameters as they are in the end. --bad spreads one in a way that no part can be made of; --keyless
leaves all ranks but the first without the site's key.
"""

import argparse
import hashlib
import os
import pathlib
import sys
import time
import weakref

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import diloco

WIDTH, HIDDEN, TOKENS = 12, 20, 16


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(24, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.gain = nn.Parameter(torch.ones(1))  # where FSDP spreads it, one rank alone has anything

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.gain * x


def spread(model, how, bad):
    if how == "ddp":
        return DistributedDataParallel(model)
    if how == "plain":
        return model
    count = dist.get_world_size()
    if how == "hsdp":  # copies on each machine, parts within it
        mesh = init_device_mesh("cpu", (2, count // 2), mesh_dim_names=("replicate", "shard"))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    sharded = count if how == "fsdp" else 2 if how == "fsdp-tp" else 1
    mesh = init_device_mesh("cpu", (sharded, count // sharded), mesh_dim_names=("dp", "tp"))
    if how != "fsdp":
        plan = {"embed": RowwiseParallel()}  # norms stay with every rank, as do the biases of what is cut by columns
        for number in range(len(model.layers)):
            plan |= {f"layers.{number}.up": ColwiseParallel(), f"layers.{number}.down": RowwiseParallel()}
        parallelize_module(model, mesh["tp"], plan)
    if bad:
        spare = distribute_tensor(torch.zeros(4, 3, 2), mesh["tp"], [Shard(2)])
        model.layers[1].register_parameter("spare", nn.Parameter(spare))
    if how != "tp":
        for layer in model.layers:
            fully_shard(layer, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    return model


def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value.detach()


def copies_differ(model):
    """Whether ranks that hold the same values hold other bits. Of whole parameters as of parts."""
    parts = {}
    for name, value in model.named_parameters():
        local = value.to_local() if isinstance(value, DTensor) else value
        at = str(value.placements) if isinstance(value, DTensor) else "everywhere"
        if isinstance(value, DTensor):
            coordinate = value.device_mesh.get_coordinate()
            at += str([c for c, placement in zip(coordinate, value.placements) if not placement.is_replicate()])
        parts[name, at] = hashlib.sha256(local.detach().contiguous().view(-1).view(torch.uint8).numpy()).hexdigest()
    all_parts = [None] * dist.get_world_size()
    dist.all_gather_object(all_parts, parts)
    said = {}
    for of_rank in all_parts:
        for what, digest in of_rank.items():
            if said.setdefault(what, digest) != digest:
                return what[0]
    return None


def await_others(out, islands):
    pathlib.Path(out).with_suffix(".here").touch()
    while len(list(pathlib.Path(out).parent.glob("*.here"))) < islands:
        time.sleep(0.05)


def destroy_early(island):
    island.step(tokens=1)
    dist.destroy_process_group()
    for call in (island.step, island.finish, island.state_dict):
        try:
            call()
        except diloco.DilocoError as error:
            print(f"refused: {error}", flush=True)
    island.detach()
    sys.exit(2)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--as", dest="how", default="plain")
    options.add_argument("--out", required=True)
    options.add_argument("--islands", type=int, default=2)
    options.add_argument("--dtype", default="float32")
    options.add_argument("--bad", action="store_true")
    options.add_argument("--destroy", action="store_true")
    options.add_argument("--keyless", action="store_true")
    a, _ = options.parse_known_args()
    if a.keyless and os.environ["RANK"] != "0":
        del os.environ["DILOCO_SITE_KEY"]
    torch.set_num_threads(1)
    torch.manual_seed(3)
    if a.how != "plain":
        dist.init_process_group("gloo")
    model = Model()
    with torch.no_grad():
        for value in model.parameters():  # what every type can hold, so that no island has to take over another's
            value.copy_((value * 32).round() / 32)
    model = spread(model.to(getattr(torch, a.dtype)), a.how, a.bad)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    try:
        island = diloco.attach(model, trainer="ranks")
    except diloco.DilocoError as error:
        print(f"refused: {error}", flush=True)
        sys.exit(2)
    if a.destroy:
        destroy_early(island)
    await_others(a.out, a.islands)
    own_data = a.how in ("ddp", "fsdp", "hsdp", "fsdp-tp")  # ranks of one row of a mesh train on the same
    row = dist.get_rank() // (2 if a.how == "fsdp-tp" else 1) if own_data else 0
    generator = torch.Generator().manual_seed(100 * island.index + row)
    mixes, loss = 0, None
    while not island.done:
        tokens = torch.randint(24, (TOKENS,), generator=generator)
        loss = (model(tokens).float() - 1.0 - island.index).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        island.step(tokens=TOKENS, loss=float(whole(loss)))
        time.sleep(0.015)  # so that all take part long before the run's end
        if a.how != "plain" and island.changed_numbers():
            mixes += 1
            name = copies_differ(model)
            assert name is None, f"after run step {island.run_step} ranks hold other copies of {name}"
    over = island.finish()
    if a.how != "plain":
        name = copies_differ(model)
        assert name is None, f"in the end ranks hold other copies of {name}"
    parameters = {name.removeprefix("module."): whole(value).clone() for name, value in model.named_parameters()}
    writes = a.how == "plain" or dist.get_rank() == 0
    if writes:
        torch.save(parameters, a.out)
    group = weakref.ref(dist.group.WORLD) if a.how == "ddp" else None  # meshes of PyTorch hold theirs on
    island.detach()
    if a.how != "plain":
        del model, optimizer, loss
        dist.destroy_process_group()
    assert group is None or group() is None, "the island still holds the process group"
    if writes:
        print(f"over: {over}, {mixes} mixes with equal copies", flush=True)


if __name__ == "__main__":
    main()
