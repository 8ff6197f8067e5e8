# SPDX-License-Identifier: Apache-2.0
"""A GPT in plain PyTorch on the bytes of a text, as one island of a run: a small one, or as large as its options say.

In the island's dilocod.conf: `program = python3 gpt.py --data book.txt`; or by hand, with DILOCO_SOCKET set. The four
lines that are diloco's are marked.
"""

import argparse
import math
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

import diloco


class Size(NamedTuple):
    width: int = 64
    layers: int = 4
    heads: int = 4
    context: int = 64


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (
            part.view(*part.shape[:2], self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.transpose(2, 3) / math.sqrt(q.shape[3])).masked_fill(later, -math.inf)
        x = x + self.out((F.softmax(scores, -1) @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, size=Size()):
        super().__init__()
        self.embed, self.place = nn.Embedding(256, size.width), nn.Embedding(size.context, size.width)
        self.layers = nn.ModuleList(Block(size.width, size.heads) for _ in range(size.layers))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, 256, bias=False)
        self.head.weight = self.embed.weight  # tied; diloco counts it once
        for embedding in (self.embed, self.place):
            nn.init.normal_(embedding.weight, std=0.02)  # as GPT-2's: of 1, a wide model's first logits are far off

    def forward(self, tokens):
        x = self.embed(tokens) + self.place.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def arguments():
    options = argparse.ArgumentParser()
    options.add_argument("--data", required=True)
    options.add_argument("--lr", type=float, default=1e-3)
    options.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--batch", type=int, default=8)
    options.add_argument("--warmup", type=int, default=0, help="steps of the run in which the learning rate rises")
    options.add_argument("--threads", type=int, default=1)
    for name, initial in Size()._asdict().items():
        options.add_argument(f"--{name}", type=int, default=initial)
    return options.parse_known_args()[0]  # fsdp.py has one more


def text(path):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


def draw(data, windows, count, generator):
    """`count` windows of tokens, each with the one that follows it."""
    begin = torch.tensor([windows[i] for i in torch.randint(len(windows), (count,), generator=generator)])
    batch = data[begin[:, None] + torch.arange(windows.step + 1)].long()
    return batch[:, :-1], batch[:, 1:]


def main():
    a = arguments()
    torch.manual_seed(a.seed)
    torch.set_num_threads(a.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = text(a.data)
    size = Size(a.width, a.layers, a.heads, a.context)
    model = GPT(size).to(device, getattr(torch, a.dtype))
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr)

    island = diloco.attach(model)  # 1: the parameters are the run's now
    windows = range(0, len(data) - a.context - 1, a.context)
    generator = torch.Generator().manual_seed(island.seed(a.seed))  # 2: the batches this island's own
    while not island.done:
        tokens, targets = (part.to(device) for part in draw(data, windows, a.batch, generator))
        loss = F.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())
        for group in optimizer.param_groups:  # by the run's step, which every island shares
            rising = min(1, (island.run_step + 1) / (a.warmup + 1))
            group["lr"] = a.lr * rising * 0.5 * (1 + math.cos(math.pi * island.run_step / island.steps))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        island.step(tokens=a.batch * a.context, loss=loss)  # 3: after every optimizer step
        if island.run_step % 100 == 0:
            print(f"step {island.run_step} of {island.steps}, loss {loss.item():.4f}", flush=True)
    island.finish()  # 4: all islands hold the same parameters
    island.detach()


if __name__ == "__main__":
    main()
