# SPDX-License-Identifier: Apache-2.0
"""Where a model keeps its tensors: found once, looked at before values are moved, which costs a tenth of a microsecond
a tensor."""

from __future__ import annotations

from typing import Any, Iterable


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


class Whereabouts:
    """`values` are tensors of `model`, a module or a dict. A tensor that somebody replaces in its module, a module that
    somebody replaces in the one above it, and a tensor that gets other storage are noticed."""

    def __init__(self, model: Any, values: Iterable[Any]):
        self._children: list[tuple[dict[str, Any], str, Any]] = []
        if not isinstance(model, dict):
            self._children = [
                (module._modules, key, child) for module in model.modules() for key, child in module._modules.items()
            ]
        places: dict[int, tuple[dict[str, Any], str]] = {}
        for table in _tables(model):
            for key, value in table.items():
                places.setdefault(id(value), (table, key))
        self._whole: list[tuple[dict[str, Any], str]] = []
        self._pointers: list[int] = []
        self._spread: list[tuple[dict[str, Any], str, Any, int]] = []
        for value in values:
            table, key = places.get(id(value), ({"": value}, ""))
            if is_spread(value):
                self._spread.append((table, key, value, value._local_tensor.data_ptr()))
            else:
                self._whole.append((table, key))
                self._pointers.append(value.data_ptr())

    def still(self) -> bool:
        """Whether all are where they were."""
        try:
            if [table[key].data_ptr() for table, key in self._whole] != self._pointers:
                return False
        except (AttributeError, KeyError):  # None is in its place, or nothing
            return False
        for table, key, child in self._children:
            if table.get(key) is not child:
                return False
        return all(self.has(value, table.get(key), pointer) for table, key, value, pointer in self._spread)

    @staticmethod
    def has(value: Any, now: Any, pointer: int) -> bool:
        """Whether a part still lies at `pointer`. FSDP2 puts the whole tensor into its place while it computes with it,
        and may leave it there for a while."""
        return (now is value or not is_spread(now)) and value._local_tensor.data_ptr() == pointer
