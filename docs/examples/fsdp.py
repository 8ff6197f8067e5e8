# SPDX-License-Identifier: Apache-2.0
"""The same GPT, spread over the ranks of one island by FSDP2, or copied to each of them by DDP (--ddp):

    torchrun --nproc-per-node 2 fsdp.py --data book.txt

All ranks call diloco alike; the first one speaks with the daemon.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import diloco
from gpt import GPT, Size, arguments, draw, text


def main():
    a = arguments()
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)  # NCCL's calls with objects go by it
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)
    data = text(a.data)
    model = GPT(Size(a.width, a.layers, a.heads, a.context)).to(device)
    if "--ddp" in sys.argv:
        model = DistributedDataParallel(model)
    else:
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr)

    island = diloco.attach(model, trainer="fsdp")
    windows = range(0, len(data) - a.context - 1, a.context)
    generator = torch.Generator().manual_seed(island.seed(a.seed) + rank)  # this island's own, and each rank's
    while not island.done:
        tokens, targets = (part.to(device) for part in draw(data, windows, a.batch // ranks, generator))
        loss = F.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        island.step(tokens=a.batch * a.context, loss=loss)
    island.finish()
    island.detach()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
