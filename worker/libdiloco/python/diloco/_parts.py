# SPDX-License-Identifier: Apache-2.0
"""Tensors of which each rank says itself what it has: a pipeline's stages, Megatron's, whatever no DTensor shows."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import torch
import torch.distributed as dist

from ._errors import DilocoError
from ._frozen import sum_of
from ._group import RankGroup
from ._tensors import DIMS_MAX
from ._torch import Module, Param, part_of, plain_name, width_of
from ._whereabouts import is_spread

Part = tuple[int, int, int, int]  # column0, columns, first, count
NONE: Part = (0, 0, 0, 0)
Said = dict[str, tuple[tuple[int, ...], Part, str]]  # by name: shape of the whole, part, type


def _whole(shape: tuple[int, ...]) -> int:
    return width_of(shape) * (shape[0] if len(shape) > 1 else 1)


def _assert_contiguous(name: str, tensor: torch.Tensor) -> None:
    if not tensor.is_contiguous():
        raise DilocoError(f"parts: {name} is not contiguous: values are moved where they lie")


def _held(name: str, tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...], Part]:
    """An entry that is a tensor alone: all of it is here, or as much as a DTensor says."""
    shape = tuple(tensor.shape) or (1,)
    if len(shape) > DIMS_MAX or min(shape) < 1:
        raise DilocoError(f"parts: {name} is of shape {shape}, which is none")
    part = part_of(name, tensor)[0] if is_spread(tensor) else (0, width_of(shape), 0, tensor.numel())
    _assert_contiguous(name, tensor.to_local() if is_spread(tensor) else tensor)
    return tensor, shape, part


def _read(name: str, given: Any) -> tuple[torch.Tensor, tuple[int, ...], Part]:
    """One entry of parts=, as it has to be."""
    if isinstance(given, torch.Tensor):
        return _held(name, given)
    try:
        tensor, shape, *numbers = given
        whole = tuple(int(size) for size in shape)
        column0, columns, first, count = (int(number) for number in numbers)
    except (TypeError, ValueError):
        what = "no tensor and no (tensor, shape, column0, columns, first, count)"
        raise DilocoError(f"parts: {name} is {what}") from None
    if is_spread(tensor):
        raise DilocoError(f"parts: {name} is a DTensor, which says itself what is here: give it alone")
    if not isinstance(tensor, torch.Tensor) or not 0 < len(whole) <= DIMS_MAX or min(whole) < 1:
        raise DilocoError(f"parts: {name} is no tensor, or of shape {whole}, which is none")
    rows = _whole(whole) // width_of(whole)
    if columns < 1 or min(column0, first, count) < 0 or column0 + columns > width_of(whole):
        raise DilocoError(f"parts: {name} has {width_of(whole)} columns, and {columns} from {column0} do not lie in it")
    if first + count > rows * columns:
        raise DilocoError(
            f"parts: {name} has {rows} rows, {rows * columns} values in {columns} columns, and {count} from {first} do "
            "not lie in them"
        )
    if tensor.numel() != count:
        raise DilocoError(f"parts: {name} has {tensor.numel()} values in its tensor, and its count is {count}")
    _assert_contiguous(name, tensor)
    return tensor, whole, (column0, columns, first, count)


def _overlap(one: Part, two: Part) -> bool:
    """Of two different ones. Where their columns overlap and are not the same ones, rows are compared."""
    if one[3] == 0 or two[3] == 0 or one[0] >= two[0] + two[1] or two[0] >= one[0] + one[1]:
        return False
    if one[:2] == two[:2]:
        return one[2] < two[2] + two[3] and two[2] < one[2] + one[3]
    (begin, end), (other, last) = ((p[2] // p[1], -(-(p[2] + p[3]) // p[1])) for p in (one, two))
    return begin < last and other < end


def _named(name: str, ranks: list[int]) -> str:
    return f"parts: {name} (rank {', '.join(str(rank) for rank in ranks)})"


def holders(said: list[Said], what: Callable[[int], int]) -> dict[str, dict[Part, list[int]]]:
    """Who has which part of each tensor, by name: all values, and none in two different parts. said: of each rank;
    what(rank): as it is to be named"""
    found: dict[str, dict[Part, list[int]]] = {}
    first: dict[str, tuple[int, tuple[int, ...], str]] = {}
    for rank, of_rank in enumerate(said):
        for name, (shape, part, kind) in of_rank.items():
            other, *like = first.setdefault(name, (rank, shape, kind))
            if like != [shape, kind]:
                raise DilocoError(
                    f"{_named(name, [what(other), what(rank)])}: {like[1]} of shape {like[0]} in the one, "
                    f"{kind} of shape {shape} in the other"
                )
            found.setdefault(name, {}).setdefault(part, []).append(rank)
    for name, parts in found.items():
        parts = {part: ranks for part, ranks in parts.items() if part[3] > 0}
        listed = sorted(parts)
        for at, one in enumerate(listed):
            for two in listed[at + 1 :]:
                if _overlap(one, two):
                    raise DilocoError(
                        f"parts: {name}: rank {what(parts[one][0])} has {one} of it, rank {what(parts[two][0])} {two}; "
                        "these overlap, and are not the same"
                    )
        there, whole = sum(part[3] for part in listed), _whole(first[name][1])
        if there != whole:
            raise DilocoError(f"parts: {name} has {whole} values, and all ranks together have {there} of them")
    return found


class Parts(Module):
    """Each value is brought by one rank; those that hold the same part get it from that one."""

    def __init__(self, parts: Mapping[str, Any], ranks: RankGroup | None):
        read, wrong = {}, None
        try:
            named = {plain_name(key): given for key, given in parts.items()}
            if len(named) < len(parts):
                raise DilocoError("parts: two names differ in a wrapper's prefix alone, as module.w and w")
            read = {name: _read(name, given) for name, given in named.items()}
        except DilocoError as error:  # told to all, who would wait for this rank
            wrong = str(error)
        own: Said = {name: (shape, part, str(tensor.dtype)) for name, (tensor, shape, part) in read.items()}
        heard: list[tuple[str | None, Said]] = [(wrong, own)]
        if ranks is not None:
            heard *= ranks.count
            dist.all_gather_object(heard, (wrong, own), group=ranks.group)
        for rank, (wrong, _) in enumerate(heard):
            if wrong is not None:
                raise DilocoError(f"{wrong} (rank {ranks.number(rank)})" if ranks is not None else wrong)
        all_said = [one for _, one in heard]
        self._holders = holders(all_said, ranks.number if ranks is not None else lambda rank: rank)
        self._shapes = {name: shape for said in all_said for name, (shape, _, _) in said.items()}
        self._own = {name: part for name, (_, _, part) in read.items()}
        self._copies = self._groups(ranks) if ranks is not None else {}
        here: dict[str, torch.Tensor] = {name: tensor for name, (tensor, _, _) in read.items()}
        device = next((tensor.device for tensor in here.values()), torch.device("cpu"))
        nothing = {name: torch.empty(0, dtype=torch.float32, device=device) for name in self._shapes}
        all_named = {name: here.get(name, nothing[name]) for name in sorted(self._shapes)}
        super().__init__(all_named, nearest=ranks.nearest if ranks is not None else None)
        if ranks is not None:
            self._compare_copies(ranks)

    def _compare_copies(self, ranks: RankGroup) -> None:
        """Stages that each count their layers from 0 give one name to two tensors: then their values tell."""
        own = {
            param.name: sum_of(param.local.view(1, -1))
            for param in self.params
            if len(self._holders[param.name].get(self._own.get(param.name, NONE), ())) > 1
        }
        sums: list[dict[str, int]] = [{}] * ranks.count
        dist.all_gather_object(sums, own, group=ranks.group)
        for name, parts in self._holders.items():
            for who in parts.values():
                others = [rank for rank in who if sums[rank].get(name) != sums[who[0]].get(name)]
                if others:
                    raise DilocoError(
                        f"{_named(name, [ranks.number(who[0]), ranks.number(others[0])])}: they have the same part of "
                        "it, and other values. A name tells of one tensor of the whole model, as layers.7.weight of "
                        "whichever stage has layer 7; and copies are made equal before attach()"
                    )

    def _groups(self, ranks: RankGroup) -> dict[tuple[int, ...], Any]:
        """Of those that hold copies, by their ranks; all ranks make all of them, in the same order."""
        held = {tuple(who) for parts in self._holders.values() for part, who in parts.items() if part[3] > 0}
        return {
            who: dist.new_group([ranks.number(rank) for rank in who]) for who in sorted(held) if len(who) > 1
        }

    def _param(self, name: str, value: torch.Tensor) -> Param:
        shape = self._shapes[name]
        part = self._own.get(name, (0, width_of(shape), 0, 0))
        who = tuple(self._holders[name].get(part, ()))
        sources = [(self._copies[who], self._nearest(self._copies[who]))] if part[3] > 0 and len(who) > 1 else []
        local = value.to_local() if is_spread(value) else value
        return Param(name, value, local.detach(), shape, part, sources)

    def release(self) -> None:
        super().release()
        copies, self._copies = self._copies, {}
        for group in copies.values():
            if dist.is_initialized() and group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(group)
