# SPDX-License-Identifier: Apache-2.0
"""Seconds that gloo takes for an all-reduce: how many floats, between how many processes. The median, to standard
output."""

import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

ROUNDS, WARM = 7, 2


def reduce(rank, count, processes, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "meet"), rank=rank,
                            world_size=processes)
    values = torch.randn(count)
    took = []
    for _ in range(ROUNDS):
        dist.barrier()
        begin = time.monotonic()
        dist.all_reduce(values)
        took.append(time.monotonic() - begin)
        values /= processes
    if rank == 0:
        print(statistics.median(took[WARM:]))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        floats, many = int(sys.argv[1]), int(sys.argv[2])
        mp.spawn(reduce, args=(floats, many, folder), nprocs=many)
