# SPDX-License-Identifier: Apache-2.0
"""The small model of ranks_trainer.py, spread in ways of which no DTensor tells: diloco.attach(parts=).

    parts_trainer.py --as pipe|pipe-fsdp|cut --out FILE [--islands 2] [--leave-at STEP] [--names local]

pipe: a pipeline of two stages, on neighbouring ranks, as often as the ranks make one. pipe-fsdp: these copies of each
stage are shards of it instead, and entries are parameters alone. cut: rows, columns, values across the ends of rows,
copies in some ranks and what one has alone, which move towards numbers of the island's.

Wherever several ranks hold the same values it looks after every change whether they are the same bits. FILE gets the
whole parameters as they are in the end. With --leave-at each rank ends there, and has its state in FILE.rank; the next
start goes on from it. With local names each stage counts its layers from 0, which is to be refused; with short
ones an entry of one rank is none.
"""

import argparse
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import diloco
from ranks_trainer import TOKENS, WIDTH, Model, await_others


def all_of(value):
    """An entry for a rank that has the whole tensor."""
    width = value.numel() // value.shape[0] if value.dim() > 1 else value.shape[0]
    return value.detach(), tuple(value.shape), 0, width, 0, value.numel()


class Pipe:
    """A stage, and copies of it in every second rank."""

    def __init__(self):
        replicas = dist.get_world_size() // 2
        self.model, self.stage = Model(), dist.get_rank() % 2
        groups = [dist.new_group([2 * replica + one for replica in range(replicas)]) for one in (0, 1)]
        self.copies = groups[self.stage]
        if self.stage == 0:
            self.model.layers[1] = nn.Identity()
            del self.model.gain
        else:
            self.model.layers[0] = nn.Identity()
            del self.model.embed
        self.parts = {name: all_of(value) for name, value in self.model.named_parameters()}
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.generator = torch.Generator()

    def train(self, target):
        """Forward and backward of this stage: what it hands on goes to its neighbour, gradients come back."""
        tokens = torch.randint(24, (TOKENS,), generator=self.generator)
        neighbour = dist.get_rank() ^ 1
        self.optimizer.zero_grad()
        if self.stage == 0:
            x = self.model.layers[0](self.model.embed(tokens))
            dist.send(x.detach(), neighbour)
            gradient = torch.empty_like(x)
            dist.recv(gradient, neighbour)
            x.backward(gradient)
        else:
            x = torch.empty(TOKENS, WIDTH)
            dist.recv(x, neighbour)
            x.requires_grad_()
            (self.model.gain * self.model.layers[1](x) - target).square().mean().backward()
            dist.send(x.grad, neighbour)
        self.reduce()
        self.optimizer.step()

    def reduce(self):
        for value in self.model.parameters():
            self.reduce_one(value)

    def reduce_one(self, value):
        dist.all_reduce(value.grad, group=self.copies)
        value.grad /= dist.get_world_size(self.copies)


class PipeShard(Pipe):
    """A stage that FSDP2 spreads over its ranks, but for its gain, of which these have copies."""

    def __init__(self):
        super().__init__()
        mesh = DeviceMesh.from_group(self.copies, "cpu")
        for part in (self.model.embed,) if self.stage == 0 else ():
            fully_shard(part, mesh=mesh)
        fully_shard(self.model.layers[self.stage], mesh=mesh)
        self.parts = dict(self.model.named_parameters())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def reduce(self):
        for value in self.model.parameters():
            if not isinstance(value, DTensor):
                super().reduce_one(value)


class Cut:
    def __init__(self):
        rank, count, self.parts = dist.get_rank(), dist.get_world_size(), {}
        self.generator = torch.Generator()
        for number, (name, value) in enumerate(sorted(Model().named_parameters())):
            entry = all_of(value)
            value, width = entry[0], entry[3]
            if value.dim() > 1 and number % 2 == 0:
                begin, end = rank * width // count, (rank + 1) * width // count
                mine = value.view(-1, width)[:, begin:end].clone()
                self.parts[name] = (mine, entry[1], begin, end - begin, 0, mine.numel())
            elif value.dim() > 1:
                begin, end = rank * value.numel() // count, (rank + 1) * value.numel() // count
                self.parts[name] = (value.view(-1)[begin:end].clone(), *entry[1:4], begin, end - begin)
            elif number % count == rank or rank == count - 1:
                self.parts[name] = (value.clone(), *entry[1:])

    def train(self, target):
        for value, *_ in self.parts.values():
            value += 0.05 * (target - value)


def local_of(given):
    """The values here of an entry, whatever it is."""
    value = given[0] if isinstance(given, tuple) else given.detach()
    return value.to_local() if isinstance(value, DTensor) else value


def entry_of(name, given):
    if isinstance(given, tuple):
        return given
    local, shape, part = local_of(given), tuple(given.shape), None
    if isinstance(given, DTensor):  # rows of an equal share each, as FSDP2 makes them
        mesh = given.device_mesh
        width = given.numel() // shape[0] if len(shape) > 1 else 1
        first = min(shape[0], -(-shape[0] // mesh.size()) * mesh.get_local_rank()) * width
        part = (0, shape[0] if len(shape) == 1 else width, first, local.numel())
    return (local, *all_of(local)[1:]) if part is None else (local, shape, *part)


def joined(parts):
    """The whole tensors, of all ranks' parts; copies are to be the same bits."""
    said = [None] * dist.get_world_size()
    dist.all_gather_object(said, {name: entry_of(name, one) for name, one in parts.items()})
    found = {name: torch.full(value.shape, torch.nan) for name, value in Model().named_parameters()}
    for of_rank in said:
        for name, (value, shape, column0, columns, first, count) in of_rank.items():
            matrix = found[name].view(shape[0] if len(shape) > 1 else 1, -1)
            packed = matrix[:, column0 : column0 + columns].reshape(-1)
            there, value = packed[first : first + count].clone(), value.reshape(-1)
            assert torch.isnan(there).all() or torch.equal(there, value), f"ranks hold other copies of {name}"
            packed[first : first + count] = value
            matrix[:, column0 : column0 + columns] = packed.view(matrix.shape[0], columns)
    return found


def leave(island, parts, path):
    state = island.state_dict()
    assert set(state["anchor"]) <= set(parts), "a rank keeps what it has, and nothing else"
    torch.save({"parts": {name: local_of(one) for name, one in parts.items()}, "island": state}, path)
    island.detach()
    dist.destroy_process_group()
    sys.exit(3)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--as", dest="how", choices=("pipe", "pipe-fsdp", "cut"), required=True)
    options.add_argument("--out", required=True)
    options.add_argument("--islands", type=int, default=2)
    options.add_argument("--names", choices=("whole", "local", "short"), default="whole")
    options.add_argument("--leave-at", type=int, default=0)
    a = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    dist.init_process_group("gloo")
    kind = {"pipe": Pipe, "pipe-fsdp": PipeShard, "cut": Cut}[a.how]
    with torch.no_grad():
        spread = kind()
        parts = spread.parts
        kept = pathlib.Path(f"{a.out}.{dist.get_rank()}")
        state = torch.load(kept) if kept.exists() else None
        for name, one in parts.items():
            value = local_of(one)
            value.copy_(state["parts"][name] if state is not None else (value * 32).round() / 32)
    named = {name.replace("layers.1", "layers.0") if a.names == "local" else name: one for name, one in parts.items()}
    if a.names == "short" and "gain" in named:  # of one rank alone
        named["gain"] = named["gain"][:3]
    try:
        island = diloco.attach(parts=named, trainer="parts", state=state["island"] if state is not None else None)
    except diloco.DilocoError as error:
        print(f"rank {dist.get_rank()} is refused: {error}", flush=True)
        sys.exit(2)
    if state is not None and dist.get_rank() == 0:
        print(f"goes on from step {state['island']['run_step']} of its own state", flush=True)
    await_others(a.out, a.islands)
    spread.generator.manual_seed(100 * island.index + dist.get_rank() // 2)
    mixes = 0
    while not island.done:
        spread.train(1.0 + island.index)
        island.step(tokens=TOKENS)
        time.sleep(0.015)  # so that all take part long before the run's end
        if island.changed_numbers():
            mixes += 1
            joined(parts)
        if a.leave_at and state is None and island.run_step >= a.leave_at:
            leave(island, parts, kept)
    over = island.finish()
    parameters, writes = joined(parts), dist.get_rank() == 0
    if writes:
        torch.save(parameters, a.out)
    island.detach()
    dist.destroy_process_group()
    if writes:
        print(f"over: {over}, {mixes} mixes with equal copies", flush=True)


if __name__ == "__main__":
    main()
