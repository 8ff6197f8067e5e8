# SPDX-License-Identifier: Apache-2.0
"""What the exchange between islands does to tensors on a GPU: all kinds of move of diloco.h, by torch's own operations,
queued behind training's and waited for by nobody."""

from __future__ import annotations

import ctypes
from typing import Any, Iterator

import torch

from . import _abi
from ._errors import DilocoError

PIECE = 8 << 20  # values that are computed at a time: several of so many are on the device meanwhile


def host_values(address: int, rows: int, columns: int, stride: int) -> torch.Tensor:
    """fp32 values of the memory that is shared with the daemon."""
    count = (rows - 1) * stride + columns
    memory = (ctypes.c_char * (count * 4)).from_address(address)
    return torch.frombuffer(memory, dtype=torch.float32, count=count).as_strided((rows, columns), (stride, 1))


def pieces(rows: int, columns: int, most: int) -> Iterator[tuple[int, int, int, int]]:
    """(row, column, rows, columns) of parts of a move, of `most` values at most, in the order of its values."""
    some = max(1, most // columns)
    for row in range(0, rows, some):
        for column in range(0, columns, most):
            yield row, column, min(some, rows - row), min(most, columns - column)


class _Work:
    """One piece of a move. Its arrays are of one dimension, fp32, and lie on the device; `live` is what the tensor
    holds, with what 16 bits could not."""

    def __init__(self, move: Any, live: torch.Tensor, aside: Any, past: Any, bad: Any):
        self.move, self.live, self.aside, self.past, self.bad = move, live, aside, past, bad

    def _estimate(self, moved: torch.Tensor) -> torch.Tensor:
        """What aside.h's Eager takes ahead; none of what is not finite."""
        ahead = moved * self.move.fresh - self.past * self.move.past_share
        return torch.where(torch.isfinite(moved), ahead, torch.zeros((), device=moved.device))

    def set_aside(self, base: torch.Tensor) -> torch.Tensor:
        moved = self.live - base
        live = base
        if self.move.keep > 0:
            kept = moved * self.move.keep
            self.aside.copy_(moved - kept)
            live = base + kept
        else:
            self.aside.copy_(moved)
        return live + self._estimate(moved) if self.past is not None else live

    def take_in(self, base: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
        live, moved, keep = self.live, anchor - base, self.move.keep
        counted = self.move.kind == _abi.ASIDE_COUNTED
        if self.past is not None:
            live = live - self._estimate(self.aside)
        if not counted:
            return live + (moved + self.aside)
        if self.past is not None:
            self.past.mul_(self.move.decay).sub_(self.aside)
        return live + (moved - moved * keep if keep > 0 else moved)

    def call_off(self) -> torch.Tensor:
        live = self.live - self._estimate(self.aside) if self.past is not None else self.live
        return torch.where(self.bad == 0, live + self.aside, live)

    def after(self, host: Any, base: Any) -> torch.Tensor:
        """`live` as it is to be. It may be `live` itself, changed."""
        kind = self.move.kind
        if kind == _abi.WRITE:
            return host
        if kind == _abi.MIX:
            return self.live.mul_(self.move.keep).add_(host, alpha=1 - self.move.keep)
        if kind == _abi.SHIFT:
            return self.live.add_(host - base)
        if kind == _abi.ASIDE_OUT:
            return self.set_aside(base)
        if kind in (_abi.ASIDE_COUNTED, _abi.ASIDE_MISSED):
            return self.take_in(base, host)
        if kind == _abi.ASIDE_OFF:
            return self.call_off()
        raise DilocoError(f"a move of kind {kind} was not asked for")


class Moves:
    """A device as libdiloco knows devices. What goes out leaves on a stream of its own while training goes on, and what
    comes in comes on another one, for which training waits on the device. On several GPUs at once it can only read and
    write, and the library computes on the host."""

    def __init__(self, values: list[torch.Tensor]):
        self.open(values)
        devices = sorted({value.device for value in values}, key=str)
        self.cuda = devices[0].type == "cuda"
        self.out = {device: torch.cuda.Stream(device) for device in devices if self.cuda}
        self.into = {device: torch.cuda.Stream(device) for device in devices if self.cuda}
        self.marks: dict[int, list[Any]] = {}
        self.beside: dict[int, torch.Tensor] = {}
        self.number = 0
        self.pinned = 0
        self.failure: BaseException | None = None
        self.struct = _abi.sized(
            _abi.Device,
            move=_abi.MOVE(self._move),
            mark=_abi.MARK(self._mark),
            reached=_abi.REACHED(self._reached),
            pin=_abi.PIN(self._pin),
            unpin=_abi.UNPIN(self._unpin),
        )
        if len(devices) == 1:
            self.device = devices[0]
            self.struct.alloc = _abi.ALLOC(self._alloc)
            self.struct.free = _abi.FREE(self._free)

    def open(self, values: list[torch.Tensor]) -> None:
        """After close(), too."""
        self.flat = [value.view(-1) for value in values]

    # ---- memory beside the tensors ----

    def _alloc(self, _user: Any, values: int) -> int | None:
        try:
            memory = torch.zeros(values, dtype=torch.float32, device=self.device)
        except BaseException as error:  # no exception passes through C
            self.failure = error
            return None
        self.beside[memory.data_ptr()] = memory
        return memory.data_ptr()

    def _free(self, _user: Any, address: int) -> None:
        self.beside.pop(address, None)

    # ---- moves ----

    def _move(self, _user: Any, move: Any) -> int:
        try:
            with torch.no_grad():
                self._do(move.contents)
        except BaseException as error:
            self.failure = error
            return -1
        return 0

    def _tensor(self, address: int) -> torch.Tensor:
        """By its number, or, of what is beside them, where it begins."""
        return self.flat[address - 1] if 0 < address <= len(self.flat) else self.beside[address]

    def _do(self, move: _abi.Move) -> None:
        tensor = self._tensor(move.tensor)
        for row, column, rows, columns in pieces(move.rows, move.columns, PIECE):
            first, count = row * move.columns + column, rows * columns
            at = (row * move.stride + column) * 4
            live = tensor[move.first + first : move.first + first + count]
            carry, aside, past = (
                self.beside[where][move.beside + first : move.beside + first + count] if where else None
                for where in (move.carry, move.aside, move.past)
            )
            shape = (rows, columns, move.stride)
            if move.kind == _abi.READ:
                self._send(live, carry, host_values(move.host + at, *shape))
                continue
            bad = self.beside[move.bad].view(torch.int32)[:1] if move.bad else None
            if move.kind == _abi.ASIDE_LOOK:
                bad |= ~torch.isfinite(aside).all()
                continue
            host = self._bring(live, host_values(move.host + at, *shape)) if move.host else None
            base = self._bring(live, host_values(move.base + at, *shape)) if move.base else None
            work = _Work(move, self._wide(live, carry), aside, past, bad)
            self._assign(live, carry, work.after(host, base))

    @staticmethod
    def _wide(live: torch.Tensor, carry: torch.Tensor | None) -> torch.Tensor:
        return live if carry is None else live.to(torch.float32).add_(carry)

    @staticmethod
    def _assign(live: torch.Tensor, carry: torch.Tensor | None, values: torch.Tensor) -> None:
        if values is not live:
            live.copy_(values)
        if carry is not None:
            rest = values - live
            carry.copy_(torch.where(torch.isfinite(rest), rest, torch.zeros((), device=rest.device)))

    def _send(self, live: torch.Tensor, carry: torch.Tensor | None, host: torch.Tensor) -> None:
        if live.device.type != "cuda":
            host.copy_(self._wide(live, carry).view(host.shape))
            return
        copy = live.to(torch.float32, copy=True)
        if carry is not None:
            copy.add_(carry)
        stream = self.out[live.device]
        stream.wait_stream(torch.cuda.current_stream(live.device))
        with torch.cuda.stream(stream):
            host.copy_(copy.view(host.shape), non_blocking=True)
        copy.record_stream(stream)

    def _bring(self, live: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
        if live.device.type != "cuda":
            return host.reshape(-1)
        stream, current = self.into[live.device], torch.cuda.current_stream(live.device)
        with torch.cuda.stream(stream):
            values = host.to(live.device, non_blocking=True).reshape(-1)
        current.wait_stream(stream)
        values.record_stream(current)
        return values

    # ---- what is done ----

    def _mark(self, _user: Any) -> int:
        self.number += 1
        events = []
        for device, out in self.out.items():
            for stream in (torch.cuda.current_stream(device), out):
                event = torch.cuda.Event()
                event.record(stream)
                events.append(event)
        self.marks[self.number] = events
        return self.number

    def _reached(self, _user: Any, mark: int) -> int:
        try:
            for number in [n for n in self.marks if n <= mark]:
                if not all(event.query() for event in self.marks[number]):
                    return 0
                del self.marks[number]
        except BaseException as error:
            self.failure = error
            return -1
        return 1

    def _pin(self, _user: Any, memory: int, count: int) -> None:
        # Not pinned, copies wait; nothing else is lost.
        if self.cuda and int(torch.cuda.cudart().cudaHostRegister(memory, count, 0)) == 0:
            self.pinned = memory

    def _unpin(self, _user: Any, memory: int) -> None:
        if self.pinned == memory:
            torch.cuda.cudart().cudaHostUnregister(memory)
        self.pinned = 0

    def close(self) -> None:
        self.flat = []
        self.marks.clear()
        self.beside.clear()
