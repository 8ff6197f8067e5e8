# SPDX-License-Identifier: Apache-2.0
"""What a model is trained upon and that is not trained, as the base below a LoRA: told by names, types, shapes and sums
of the values, so that islands that build upon another base are found out before their work is mixed."""

from __future__ import annotations

import math
from typing import Any, Callable, Iterable

import torch
import torch.distributed as dist

from ._tensors import Frozen
from ._whereabouts import is_spread

PIECE_VALUES = 1 << 18  # looked at in one go, as integers of 64 bits: so many stay in a processor's caches
PIECE_VALUES_OF_DEVICE = 1 << 24  # of a GPU, which has to be told of each piece
AS_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
ROWS, COLUMNS = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03  # odd, and other ones for both


def _signed(number: int) -> int:
    """64 bits as an int64 has them."""
    return (number & (2**64 - 1)) - ((number & 2**63) << 1)


def _weights(first: int, count: int, seed: int, device: Any) -> torch.Tensor:
    """Odd numbers that look drawn at random, of places from `first` on."""
    at = torch.arange(first + 1, first + count + 1, dtype=torch.int64, device=device) * _signed(seed)
    for factor in (0xD6E8FEB86659FD93, 0xA5A3564E27F8862F):
        at = (at ^ ((at >> 32) & 0xFFFFFFFF)) * _signed(factor)
    return at | 1


def sum_of(values: torch.Tensor, row0: int = 0, column0: int = 0) -> int:
    """A sum of 64 bits over values[rows][columns] that are at (row0, column0) of a larger matrix. Parts of it may be
    summed apart and added, modulo 2**64: sum(R(row) * C(column) * bits(value)), with odd weights R and C that look
    random. So of two tensors of one shape with other values nearly all have another sum; it is proof against mistakes,
    and not against a liar, who might as well name the sum of others."""
    rows, columns = values.shape
    most = PIECE_VALUES if values.device.type == "cpu" else PIECE_VALUES_OF_DEVICE
    if columns > most:  # a vector, mostly
        cuts = range(0, columns, most)
        return sum(sum_of(values[:, cut : cut + most], row0, column0 + cut) for cut in cuts)
    total = torch.zeros((), dtype=torch.int64, device=values.device)
    at_columns = _weights(column0, columns, COLUMNS, values.device)
    step = most // max(1, columns)
    for row in range(0, rows, step):
        piece = values[row : row + step].contiguous().view(AS_INTEGERS[values.element_size()]).to(torch.int64)
        by_rows = (piece * at_columns).sum(1)
        total += (by_rows * _weights(row0 + row, len(by_rows), ROWS, values.device)).sum()
    return int(total)


def _own_sum(name: str, value: torch.Tensor, along: Callable[..., Any], leads: bool) -> int | None:
    """Of what this rank has to bring; None: not to be known, as of values that are elsewhere, or of a class of their
    own that shows no bits."""
    first = [0] * max(1, value.dim())
    if is_spread(value):
        first, _, repeated = along(value.placements, value.device_mesh, tuple(value.shape) or (1,), name)
        local, leads = value.to_local().detach(), all(value.device_mesh.get_local_rank(axis) == 0 for axis in repeated)
    else:
        local = value.data  # of a class that only adds to Parameter it is a plain tensor
    shown = type(local) is torch.Tensor and local.layout is torch.strided and not local.is_quantized
    if not shown or local.device.type == "meta" or local.element_size() not in AS_INTEGERS:
        return None
    if not leads or local.numel() == 0:
        return 0
    row0, column0 = (first[0], first[1] * math.prod(value.shape[2:])) if value.dim() > 1 else (0, first[0])
    return sum_of(local.reshape(len(local), -1) if local.dim() > 1 else local.reshape(1, -1), row0, column0)


def frozen_of(named: Iterable[tuple[str, torch.Tensor]], group: Any, along: Callable[..., Any]) -> list[Frozen]:
    """All ranks of a group call alike; each gets the sums over all.

    along: of _torch, where a rank's part of a DTensor lies
    """
    leads = group is None or dist.get_rank(group) == 0
    found, own = [], []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for pieces this small they would wait for each other most of the time
    try:
        for name, value in named:
            found.append(Frozen(name, str(value.dtype).removeprefix("torch.")[:15], tuple(value.shape) or (1,)))
            own.append(_own_sum(name, value, along, leads))
    finally:
        torch.set_num_threads(threads)
    ranks: list[Any] = [own]
    if group is not None and found:
        ranks = [None] * dist.get_world_size(group)
        dist.all_gather_object(ranks, own, group=group)
    for number, one in enumerate(found):
        sums = [rank[number] for rank in ranks]
        one.sum = 0 if None in sums else sum(sums) % 2**64 or 1  # 0 is: not known
    return found
