# SPDX-License-Identifier: Apache-2.0
"""A rank that only watches: watch_rank.py RANK COUNT STORE. It does what its input says, a word a line."""

import sys
import time

import torch.distributed as dist

from diloco import _watch

_watch.BEAT_S, _watch.SILENT_S, _watch.TOGETHER_S = 0.2, 1.5, 5.0

rank, count, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", store=dist.FileStore(store, count), rank=rank, world_size=count)
watch = _watch.Watch(list(range(count)), 0, {number: f"rank {number} on n{number}" for number in range(count)})
print("watches", flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == "finish":
        watch.part(True)
    elif word == "detach":
        watch.part(False)
    elif word == "ask":
        watch.ask()
    elif word == "asked":
        end = time.monotonic() + 20
        while not watch.asked and time.monotonic() < end:
            time.sleep(0.02)
        print("asked" if watch.asked else "not asked", flush=True)
    elif word == "why":
        print(watch.why(20.0), flush=True)
    elif word == "end":
        break
if dist.is_initialized() and watch._parted.is_set():
    watch.close()
    dist.destroy_process_group()
