# SPDX-License-Identifier: Apache-2.0
"""What is registered: one description a tensor, whatever holds it; and plain buffers, without any framework."""

from __future__ import annotations

import array
import ctypes
import math
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Mapping

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


@dataclass
class Frozen:
    """A tensor that is not trained."""

    name: str
    type: str
    shape: tuple[int, ...]
    sum: int = 0  # of its values; 0: not known

    def as_struct(self) -> _abi.Frozen:
        if len(self.shape) > DIMS_MAX:  # what makes them the same tensor is the sum
            self.shape = (self.shape[0], math.prod(self.shape[1:]))
        shape = (ctypes.c_uint64 * DIMS_MAX)(*self.shape)
        name, kind = self.name.encode(), self.type.encode()
        return _abi.sized(_abi.Frozen, name=name, type=kind, dims=len(self.shape), shape=shape, sum=self.sum)


class Tensors:
    """All tensors of a trainer. Subclasses know where they live."""

    device: _abi.Device | None = None
    described: list[Described]
    frozen: list[Frozen] = []
    watched: list[int] = []  # of these it wants to hear in changed()
    idle = 0  # for so many steps nobody has changed any value
    loaded = False  # somebody has loaded other values into the model

    def __iter__(self) -> Iterator[Described]:
        return iter(self.described)

    def open(self) -> None:
        """Before libdiloco attaches, again too; all ranks call alike."""

    def moved(self) -> list[tuple[int, int]]:
        """Those that lie elsewhere than before, by the numbers of their registration, with their addresses now. Raises
        if one is not to be found, or is another one than was registered. Called before values move: it is quick."""
        return []

    def before_moves(self) -> None:
        """Values may move now, where moved() has said."""

    def after_moves(self, changed: Callable[[int], Any]) -> None:
        """All that moved in a call has moved; changed(number) says what."""

    def stood_still(self) -> bool:
        """At the beginning of a step: whether nothing was changed since after_moves(). Raises if what came in was
        written over."""
        return False

    def changed(self, numbers: list[int]) -> None:
        """The values of these of `watched` have changed, by the numbers of their registration; all ranks call alike."""

    def loss_of(self, loss: Any) -> float:
        """0: not said."""
        return float(loss) if loss is not None else 0.0

    def exchange(self, read: Callable[[int, int, int], None]) -> Callable[[], None]:
        """Puts the anchor's values in the place of all; what is returned puts them back as they were. read(number,
        address, count) reads those of a tensor. All ranks call alike."""
        raise NotImplementedError

    def distance(self, read: Callable[[int, int, int], None]) -> tuple[float, float]:
        """Squares, summed over the values that this rank has: of what they are away from the anchor, and of the anchor;
        read as in exchange()."""
        raise NotImplementedError

    def tokens_of(self, tokens: Any, last: bool) -> int:
        """Those that are known now; `last`: nobody asks again, so that all are waited for."""
        return int(tokens)

    def saved(self, kept: bytearray) -> Any:
        """What a checkpoint of these tensors holds best as so many bytes."""
        return kept

    def room(self, number: int) -> tuple[Any, int, int]:
        """Of a tensor, by the number of its registration, or of the part that this rank has: a place for as many fp32
        values, as a checkpoint holds it best; the address of its first value, and how many there are."""
        raise NotImplementedError

    def take(self, number: int, kept: Any, address: int, count: int) -> None:
        """Writes what room() gave for a tensor, and a checkpoint brought back, to host memory."""
        raise NotImplementedError

    def close(self) -> None:
        """After libdiloco has detached."""

    def release(self) -> None:
        """After the last close()."""


class Buffers(Tensors):
    """Writable fp32 buffers (array.array('f'), numpy arrays, memoryviews) by name."""

    def __init__(self, buffers: Mapping[str, Any]):
        self._given = buffers
        self._seen = dict(buffers)
        self.described = [self._describe(name, buffer) for name, buffer in buffers.items()]

    @staticmethod
    def _describe(name: str, buffer: Any) -> Described:
        try:
            view = memoryview(buffer)
        except TypeError:
            raise DilocoError(f"tensor {name} is a {type(buffer).__name__}, which is no buffer of values") from None
        if view.format != "f" or view.readonly or not view.c_contiguous:
            raise DilocoError(f"tensor {name} is not writable, contiguous fp32 (its format is {view.format!r})")
        if view.nbytes == 0:
            raise DilocoError(f"tensor {name} is empty")
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        return Described(name, address, _abi.F32, tuple(view.shape or ()), keeps=view)

    def moved(self) -> list[tuple[int, int]]:
        """A buffer does not move while it is registered, but another one may be in its place."""
        found = []
        for number, one in enumerate(self.described):
            buffer = self._given.get(one.name)
            if buffer is self._seen[one.name]:
                continue
            new = self._describe(one.name, buffer) if buffer is not None else None
            if new is None or new.shape != one.shape:
                now = f"has shape {new.shape} now, and had {one.shape}" if new is not None else "is gone"
                raise DilocoError(f"tensor {one.name} {now}: attach after what changes it")
            self._seen[one.name], self.described[number] = buffer, new
            found.append((number, new.address))
        return found

    def room(self, number: int) -> tuple[Any, int, int]:
        values = array.array("f", bytes(self.described[number].keeps.nbytes))
        return values, *values.buffer_info()

    def take(self, number: int, kept: Any, address: int, count: int) -> None:
        values = memoryview(kept)
        if values.format != "f" or values.nbytes != 4 * count:
            raise DilocoError(f"attach(state=) has {values.nbytes} bytes for tensor {self.described[number].name}, "
                              f"which has {count} values of 4")
        ctypes.memmove(address, values.tobytes(), values.nbytes)

    def distance(self, read: Callable[[int, int, int], None]) -> tuple[float, float]:
        away = size = 0.0
        for number, one in enumerate(self.described):
            anchor = array.array("f", bytes(one.keeps.nbytes))
            read(number, anchor.buffer_info()[0], len(anchor))
            away += sum((own - there) ** 2 for own, there in zip(one.keeps.cast("B").cast("f"), anchor))
            size += sum(there * there for there in anchor)
        return away, size

    def exchange(self, read: Callable[[int, int, int], None]) -> Callable[[], None]:
        saved = [bytes(one.keeps.cast("B")) for one in self.described]

        def back() -> None:
            for one, values in zip(self.described, saved):
                one.keeps.cast("B")[:] = values

        try:
            for number, one in enumerate(self.described):
                read(number, one.address, one.keeps.nbytes // 4)
        except BaseException:
            back()
            raise
        return back
