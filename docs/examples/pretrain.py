# SPDX-License-Identifier: Apache-2.0
"""What a real script begins as: gpt.py's model with validation, checkpoints, and a restart from the last one.

In the island's dilocod.conf, whose folder gets checkpoint.pt: `program = python3 -u pretrain.py --data book.txt`, or
`program = torchrun --nproc-per-node 2 pretrain.py --data book.txt` for DDP ranks, each with batches of its own.
"""

import argparse
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import diloco
from gpt import GPT, Size, text


def arguments():
    options = argparse.ArgumentParser()
    options.add_argument("--data", required=True)
    options.add_argument("--checkpoint", default="checkpoint.pt")
    options.add_argument("--lr", type=float, default=1e-3)
    options.add_argument("--bf16", action="store_true", help="compute in bfloat16; parameters stay fp32")
    steps = {"save_every": 500, "eval_every": 500, "warmup": 50}  # of the run
    for name, initial in {**steps, "eval_windows": 256, "batch": 8, "seed": 1, **Size()._asdict()}.items():
        options.add_argument("--" + name.replace("_", "-"), type=int, default=initial)
    return options.parse_known_args()[0]


def load(path, size):
    saved = torch.load(path, map_location="cpu", weights_only=True) if os.path.exists(path) else {}
    if saved and saved["size"] != size:
        raise SystemExit(f"{path} is of another model, {saved['size']}; this is {size}: name another --checkpoint")
    return saved


def write(path, state):
    """All of it or nothing: killed meanwhile, the last one is still there."""
    with open(path + ".new", "wb") as file:
        torch.save(state, file)
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def loss_of(model, windows, bf16):
    tokens, targets = windows[:, :-1], windows[:, 1:]
    with torch.autocast(windows.device.type, torch.bfloat16, enabled=bf16):
        return F.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())


@torch.no_grad()
def validate(model, windows, a, island):
    with island.anchor():  # the run's parameters, as all islands share them, in the place of this one's; of all ranks
        if island.leads:
            model.eval()
            loss = sum(loss_of(model, part, a.bf16) * len(part) for part in windows.split(a.batch)) / len(windows)
            model.train()
            print(f"step {island.run_step} of {island.steps}, validation loss {loss:.4f}", flush=True)


def main():
    a = arguments()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else "cpu"
    if device != "cpu":
        torch.cuda.set_device(device)
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1:
        dist.init_process_group("gloo" if device == "cpu" else "nccl")
    windows = text(a.data).unfold(0, a.context + 1, a.context)
    windows, held_out = windows.tensor_split([len(windows) * 9 // 10])
    held_out = held_out[: a.eval_windows].to(device).long()
    size = Size(a.width, a.layers, a.heads, a.context)
    model = GPT(size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr)
    saved = load(a.checkpoint, size._asdict())
    if saved:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    island = diloco.attach(model, state=saved.get("island"), seed=a.seed)  # without a state: the run's parameters

    def rate(step):
        return min(1, (step + 1) / (a.warmup + 1)) * 0.5 * (1 + math.cos(math.pi * step / island.steps))

    schedule = diloco.schedule(torch.optim.lr_scheduler.LambdaLR(optimizer, rate))
    if saved:
        schedule.load_state_dict(saved["schedule"])  # and to where the run is, if that is further
        if island.leads:  # the other ranks, and what draws on a GPU, begin with other numbers, by attach(seed=)
            torch.set_rng_state(saved["generator"])

    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "island": island}

    def save():
        if island.leads:  # ranks hold copies
            states = {name: part.state_dict() for name, part in parts.items()}
            write(a.checkpoint, {"size": size._asdict(), "generator": torch.get_rng_state(), **states})

    trained = DistributedDataParallel(model) if ranks > 1 else model
    for batch in island.batches(DataLoader(windows, a.batch, shuffle=True, drop_last=True)):
        loss = loss_of(trained, batch.to(device).long(), a.bf16)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        before = island.run_step
        island.step(tokens=ranks * a.batch * a.context, loss=loss, lr=schedule.get_last_lr()[0])
        schedule.step()
        if before // a.eval_every < island.run_step // a.eval_every and not island.done:
            validate(model, held_out, a, island)
        if before // a.save_every < island.run_step // a.save_every or island.done:  # by a SIGTERM, too
            save()
    if island.finish():  # False where the run is not over: this script was told to end before it
        validate(model, held_out, a, island)
    save()  # now the run's parameters, where it is over
    island.detach()
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
