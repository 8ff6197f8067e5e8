# SPDX-License-Identifier: Apache-2.0
"""What is registered: one description a tensor, whatever holds it; and plain buffers, without any framework."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping

from . import _abi
from ._errors import DilocoError

DIMS_MAX = 6


@dataclass
class Described:
    """A tensor as libdiloco is told of it."""

    name: str
    address: int  # of its first value in host memory; on a device any number but 0, by which it is known there
    type: int
    shape: tuple[int, ...]
    part: tuple[int, int, int, int] = (0, 0, 0, 0)  # column0, columns, first, count; columns 0: all
    keeps: Any = field(default=None, repr=False)  # what must live as long as it is registered

    def as_struct(self) -> _abi.Tensor:
        if len(self.shape) > DIMS_MAX:
            raise DilocoError(f"tensor {self.name} has {len(self.shape)} dimensions; at most {DIMS_MAX} are possible")
        shape = (ctypes.c_uint64 * DIMS_MAX)(*self.shape)
        return _abi.sized(
            _abi.Tensor,
            name=self.name.encode(),
            data=self.address,
            type=self.type,
            dims=len(self.shape),
            shape=shape,
            layer=_abi.LAYER_FROM_NAME,
            part=_abi.Part(*self.part),
        )


class Tensors:
    """All tensors of a trainer. Subclasses know where they live."""

    device: _abi.Device | None = None
    described: list[Described]
    watched: list[int] = []  # of these it wants to hear in changed()

    def __iter__(self) -> Iterator[Described]:
        return iter(self.described)

    def changed(self, numbers: list[int]) -> None:
        """The values of these of `watched` have changed, by the numbers of their registration; all ranks call alike."""

    def loss_of(self, loss: Any) -> float:
        """0: not said."""
        return float(loss) if loss is not None else 0.0

    def saved(self, kept: bytearray) -> Any:
        """What a checkpoint of these tensors holds best as so many bytes."""
        return kept

    def close(self) -> None:
        """After libdiloco has detached."""


class Buffers(Tensors):
    """Writable fp32 buffers (array.array('f'), numpy arrays, memoryviews) by name."""

    def __init__(self, buffers: Mapping[str, Any]):
        self.described = []
        for name, buffer in buffers.items():
            try:
                view = memoryview(buffer)
            except TypeError:
                raise DilocoError(f"tensor {name} is a {type(buffer).__name__}, which is no buffer of values") from None
            if view.format != "f" or view.readonly or not view.c_contiguous:
                raise DilocoError(f"tensor {name} is not writable, contiguous fp32 (its format is {view.format!r})")
            if view.nbytes == 0:
                raise DilocoError(f"tensor {name} is empty")
            address = ctypes.addressof(ctypes.c_char.from_buffer(view))
            self.described.append(Described(name, address, _abi.F32, tuple(view.shape or ()), keeps=view))
