# SPDX-License-Identifier: Apache-2.0
"""The model of bench_gpu in PyTorch: torch.compile, scaled_dot_product_attention, bf16 autocast with fp32 masters,
fused AdamW, clipping. Prints one line of JSON with its tokens per second; exit status 77, and the reason, where it
cannot run. Nothing needs it: bench_gpu runs it to compare itself with. A batch that does not fit is halved."""
import argparse
import json
import sys
import time

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except Exception as error:  # whatever an installation may lack
    print(f"python3 has no torch: {error}")
    sys.exit(77)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        rstd = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
        return (x.float() * rstd * self.weight).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, width, heads, ff):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * ff, bias=False)
        self.down = nn.Linear(ff, width, bias=False)

    def forward(self, x, cos, sin):
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)

        def rotate(y):
            a, b = y.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(v.dtype)

        y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


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
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.embed(tokens).to(torch.bfloat16)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def measure(a, batch):
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = Model(a)
        data = torch.randint(a.vocab, (8, batch, a.context + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    compiled = torch.compile(model)

    def step(i):
        tokens = data[i % 8]
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for i in range(5):
        step(i)
    torch.cuda.synchronize()
    begin, steps = time.monotonic(), 0
    while steps < 3 or time.monotonic() - begin < a.seconds:
        loss = step(steps)
        steps += 1
        if steps % 4 == 0:
            torch.cuda.synchronize()  # else the host runs far ahead of the clock above
    torch.cuda.synchronize()
    seconds = (time.monotonic() - begin) / steps
    return {"tokens_per_s": batch * a.context / seconds, "ms_per_step": seconds * 1e3, "steps": steps, "batch": batch,
            "loss": float(loss), "memory_gb": torch.cuda.max_memory_allocated() / 1e9,
            "params": sum(p.numel() for p in model.parameters()), "version": "torch " + torch.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("width", "layers", "heads", "ff", "context", "batch", "vocab"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--seconds", type=float, default=5)
    a = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch finds no GPU")
        return 77
    torch.set_float32_matmul_precision("high")
    batch = a.batch
    while True:
        try:
            print(json.dumps(measure(a, batch)))
            return 0
        except torch.cuda.OutOfMemoryError:
            if batch == 1:
                print("out of memory at a batch of one sequence")
                return 77
        torch.cuda.empty_cache()  # outside the handler, whose traceback holds the tensors
        batch //= 2


if __name__ == "__main__":
    sys.exit(main())
