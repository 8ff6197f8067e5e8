# SPDX-License-Identifier: Apache-2.0
"""Where a model keeps its tensors: found once, looked at before values are moved, which costs a tenth of a microsecond
a tensor."""

from __future__ import annotations

from typing import Any, Iterable

import torch


def is_spread(value: Any) -> bool:
    """Whether it is a DTensor, of which this rank has a part."""
    return hasattr(value, "device_mesh") and hasattr(value, "placements")


def _tables(model: Any) -> Iterable[dict[str, Any]]:
    if isinstance(model, dict):
        yield model
        return
    for module in model.modules():
        yield module._parameters
        yield module._buffers


class _Table:
    """Entries of dictionaries, and what they were. All are looked up without a line of Python for each."""

    def __init__(self, entries: list[tuple[dict[str, Any], str, Any]]):
        self.tables = [table for table, _, _ in entries]
        self.keys = [key for _, key, _ in entries]
        self.values = [value for _, _, value in entries]

    def same(self) -> bool:
        return list(map(dict.get, self.tables, self.keys)) == self.values

    def pointers(self) -> list[int]:
        return list(map(torch.Tensor.data_ptr, map(dict.__getitem__, self.tables, self.keys)))


class Whereabouts:
    """`values` are tensors of `model`, a module or a dict. A tensor that somebody replaces in its module, a module that
    somebody replaces in the one above it, and a tensor that gets other storage are noticed."""

    def __init__(self, model: Any, values: Iterable[Any]):
        modules = [] if isinstance(model, dict) else list(model.modules())
        edges = [(module._modules, key, child) for module in modules for key, child in module._modules.items()]
        self._modules = _Table(edges)
        places: dict[int, tuple[dict[str, Any], str]] = {}
        for table in _tables(model):
            for key, value in table.items():
                places.setdefault(id(value), (table, key))
        found = [(*places.get(id(value), ({"": value}, "")), value) for value in values]
        self._whole = _Table([one for one in found if not is_spread(one[2])])
        self._pointers = self._whole.pointers()
        self._spread = [(*one, one[2]._local_tensor.data_ptr()) for one in found if is_spread(one[2])]

    def still(self) -> bool:
        """Whether all are where they were."""
        try:
            if self._whole.pointers() != self._pointers:
                return False
        except (KeyError, TypeError):  # nothing is in its place, or what is no tensor
            return False
        return self._modules.same() and all(
            self.has(value, table.get(key), pointer) for table, key, value, pointer in self._spread
        )

    @staticmethod
    def has(value: Any, now: Any, pointer: int) -> bool:
        """Whether a part still lies at `pointer`. FSDP2 puts the whole tensor into its place while it computes with it,
        and may leave it there for a while."""
        return (now is value or not is_spread(now)) and value._local_tensor.data_ptr() == pointer
