# SPDX-License-Identifier: Apache-2.0
"""The model of bench_train in PyTorch on the CPU, a step at a time, as it is asked for: bench_train has its own steps
between, so that all are taken under the same load. Reads the name of a way from each line, takes one step in it, and
prints its seconds; begins with a line of JSON when all ways are warm."""

import argparse
import contextlib
import json
import pathlib
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

from torch_model import Layer, Norm

WARM_STEPS = 2


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embed = nn.Embedding(a.vocab, a.width)
        self.layers = nn.ModuleList(Layer(a.width, a.heads, a.ff) for _ in range(a.layers))
        self.norm = Norm(a.width)
        half = a.width // a.heads // 2
        angles = torch.arange(a.context)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("width", "layers", "heads", "ff", "context", "batch", "vocab", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    a = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(a.threads)
    model = Model(a)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    compiled = torch.compile(model)
    tokens = torch.randint(a.vocab, (a.batch, a.context))
    targets = torch.randint(a.vocab, (a.batch, a.context))

    def step(name):
        half = torch.autocast("cpu", torch.bfloat16) if "autocast" in name else contextlib.nullcontext()
        begin = time.perf_counter()
        with half:
            loss = (compiled if "compile" in name else model)(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        return time.perf_counter() - begin

    ways = []
    for name in ("eager", "compile", "autocast", "autocast compile"):
        try:
            for _ in range(WARM_STEPS):
                step(name)
            ways.append(name)
        except Exception as error:  # compiling takes a C++ compiler
            print(f"{name}: {error}", file=sys.stderr)
    params = sum(p.numel() for p in model.parameters())
    print(json.dumps({"version": torch.__version__, "params": params, "ways": ways}), flush=True)
    for line in sys.stdin:
        print(f"{step(line.strip()):.6f}", flush=True)


main()
