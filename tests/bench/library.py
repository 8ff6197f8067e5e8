# SPDX-License-Identifier: Apache-2.0
"""What the Python package costs where a model is large, or of thousands of tensors; one line of JSON.

As bench_library.c does it in C: one island, whose daemon has nothing else to do; calls of island.step() that take a
snapshot, mix an anchor in, or do neither, each held against memcpy of as many fp32 values right after it. All in
processor time of the training thread, so that the daemon and whatever else is on the machine do not count.
"""

import argparse
import ctypes
import json
import pathlib
import resource
import signal
import sys
import time

import torch

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "python")]

from islands import Run  # it says where diloco is

import diloco

INTERVAL, GROUP, INTERVALS = 20, 3, 5
SPEC = f"""[run]
name = library
steps = 100000
[sync]
interval = {INTERVAL}
layers_per_fragment = {GROUP}
overlap = 2
late = wait
"""
SMALL_VALUES = 1 << 20  # of smaller fragments the caches decide


def gpt(width, layers, kind):
    """The parameters of GPT-2's layers, by name."""
    shapes = {
        "norm1.weight": (width,), "norm1.bias": (width,), "qkv.weight": (3 * width, width), "qkv.bias": (3 * width,),
        "out.weight": (width, width), "out.bias": (width,), "norm2.weight": (width,), "norm2.bias": (width,),
        "up.weight": (4 * width, width), "up.bias": (4 * width,), "down.weight": (width, 4 * width),
        "down.bias": (width,),
    }  # fmt: skip
    model = {"embed.weight": torch.full((1280, width), 0.01, dtype=kind)}
    for layer in range(layers):
        for name, shape in shapes.items():
            model[f"layers.{layer}.{name}"] = torch.full(shape, 0.01, dtype=kind)
    return model


def many(count, values):
    """As many tensors, in 12 layers."""
    return {f"layers.{i * 12 // count}.part.{i}": torch.full((values,), 0.01) for i in range(count)}


def layer_of(name):
    return int(name.split(".")[1]) if name.startswith("layers.") else -1


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def copy_s(to, origin, values):
    begin = time.thread_time()
    ctypes.memmove(to.data_ptr(), origin.data_ptr(), 4 * values)
    return time.thread_time() - begin


def train(island, fragments, scratch):
    """What calls of each kind take, and so many times memcpy."""
    names = list(fragments)
    count = max(fragments.values()) + 1
    sizes = [0] * count
    for name, fragment in fragments.items():
        sizes[fragment] += island_sizes[name]
    offsets = {fragment * INTERVAL // count: fragment for fragment in range(count)}
    calls = {"nothing": [], "snapshot": [], "mix": []}
    ratios = {"snapshot": [], "mix": []}
    for step in range(1, INTERVALS * INTERVAL + 1):
        out = offsets.get(step % INTERVAL) if step - step % INTERVAL >= INTERVAL else None
        begin = time.thread_time()
        island.step(tokens=1000)
        took = time.thread_time() - begin
        changed = sum(island_sizes[names[number]] for number in island.changed_numbers())
        if out is not None and changed:
            continue
        kind = "snapshot" if out is not None else "mix" if changed else "nothing"
        values = changed or (sizes[out] if out is not None else 0)
        if kind == "nothing":
            calls[kind].append(took)
        elif values >= SMALL_VALUES:
            calls[kind].append(took)
            ratios[kind].append(took / copy_s(*scratch, values))
    return calls, ratios


def median(values):
    return sorted(values)[len(values) // 2] if values else 0.0


def measure(model):
    global island_sizes
    island_sizes = {name: value.numel() for name, value in model.items()}
    values = sum(island_sizes.values())
    fragments = {name: 1 + layer_of(name) // GROUP if layer_of(name) >= 0 else 0 for name in model}
    if 0 not in fragments.values():
        fragments = {name: fragment - 1 for name, fragment in fragments.items()}
    scratch = [torch.ones(values), torch.ones(values)]
    with Run(SPEC) as run:
        path = run.found("a", "").socket()
        before, begin, own = peak_bytes(), time.perf_counter(), time.thread_time()
        island = diloco.attach(model, socket=path)
        attach_s, attach_cpu_s = time.perf_counter() - begin, time.thread_time() - own
        calls, ratios = train(island, fragments, scratch)
        trained = peak_bytes()
        begin = time.perf_counter()
        state = island.state_dict()
        keep_s, kept = time.perf_counter() - begin, len(state["kept"])
        saved = peak_bytes()
        island.detach()
    return {
        "values": values,
        "tensors": len(model),
        "attach_s": attach_s,
        "attach_cpu_s": attach_cpu_s,
        "bytes_per_value": (trained - before) / values,
        "state_s": keep_s,
        "state_bytes_per_value": kept / values,
        "state_peak_bytes_per_value": max(0, saved - trained) / values,
        "step_ms": {kind: 1000 * median(taken) for kind, taken in calls.items()},
        "over_memcpy": {kind: median(taken) for kind, taken in ratios.items()},
        "worst": {kind: max(taken, default=0.0) for kind, taken in ratios.items()},
    }


CASES = {
    "fp32_85m": lambda: gpt(768, 12, torch.float32),
    "bf16_85m": lambda: gpt(768, 12, torch.bfloat16),
    "tensors_6000": lambda: many(6000, 2000),
}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("case", choices=list(CASES))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what it has started
    torch.set_num_threads(1)
    print(json.dumps(measure(CASES[options.parse_args().case]())))


if __name__ == "__main__":
    main()
