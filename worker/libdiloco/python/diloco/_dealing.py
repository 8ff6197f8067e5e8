# SPDX-License-Identifier: Apache-2.0
"""What an island knows of how data is dealt to it, in memory that the processes which load data for it see, too."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import zlib
from dataclasses import dataclass
from typing import Any

from . import _abi
from ._errors import DilocoError

_HEAD = struct.Struct("=QQQ")  # how many were written before, life, run step
_SUM = struct.Struct("=Q")
_ROOM = _SUM.size + _HEAD.size + ctypes.sizeof(_abi.Dealing)  # of one; there are two
_READS = 1000  # of memory that is written meanwhile
ENDED = 0  # the life of an island that has detached


@dataclass(frozen=True)
class Known:
    """As of one moment. Whatever is heard later, what was drawn by it stays right."""

    life: int  # which attachment of the island, from 1
    run_step: int
    dealing: Any

    @property
    def horizon(self) -> int:
        """Twice the run's interval, in steps: so far beyond the results that are known samples are dealt."""
        return int(self.dealing.words[1])

    def draw(self, step: int, unit: int, units: int) -> Any:
        drawn = _abi.sized(_abi.Unit)
        library = _abi.library()
        if library.diloco_draw_by(ctypes.byref(self.dealing), step, unit, units, ctypes.byref(drawn)) != _abi.OK:
            raise DilocoError(library.diloco_error(None).decode(errors="replace"))
        return drawn


def window(drawn: Any, samples: int, seed: int) -> int:
    number, which = ctypes.c_uint64(), ctypes.c_uint64()
    _abi.library().diloco_window(ctypes.byref(drawn), samples, seed, ctypes.byref(number), ctypes.byref(which))
    return which.value


class Dealing:
    """The trainer writes it after each step, in the place of the last but one, so that whoever reads meanwhile, in this
    process or in one that was forked or spawned, sees one that is whole."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("diloco-dealing")
        os.ftruncate(self._fd, 2 * _ROOM)
        self._memory = mmap.mmap(self._fd, 2 * _ROOM)
        self._written = 0

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": f"/proc/{os.getpid()}/fd/{self._fd}"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fd = os.open(state["path"], os.O_RDWR | os.O_CLOEXEC)
        self._memory = mmap.mmap(self._fd, 2 * _ROOM)

    def write(self, life: int, run_step: int, dealing: Any) -> None:
        self._written += 1
        said = _HEAD.pack(self._written, life, run_step) + bytes(dealing)
        begin = self._written % 2 * _ROOM
        self._memory[begin + _SUM.size : begin + _ROOM] = said
        self._memory[begin : begin + _SUM.size] = _SUM.pack(zlib.crc32(said))

    def _whole(self) -> list[bytes]:
        places = (self._memory[begin : begin + _ROOM] for begin in (0, _ROOM))
        return [one[_SUM.size :] for one in places if zlib.crc32(one[_SUM.size :]) == _SUM.unpack_from(one)[0]]

    def read(self) -> Known:
        for _ in range(_READS):
            said = max(self._whole(), key=_HEAD.unpack_from, default=b"")
            if said:
                break
        else:
            raise DilocoError("what is dealt to this island cannot be read: its memory is damaged")
        _, life, run_step = _HEAD.unpack_from(said)
        if life == ENDED:
            raise DilocoError("samples are drawn after detach()")
        return Known(life, run_step, _abi.Dealing.from_buffer_copy(said, _HEAD.size))
