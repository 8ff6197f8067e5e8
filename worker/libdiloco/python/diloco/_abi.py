# SPDX-License-Identifier: Apache-2.0
"""libdiloco's C interface (diloco.h) in ctypes: structs, constants, and finding the library."""

from __future__ import annotations

import ctypes
import os
import pathlib
import shutil
from ctypes import CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint32
from ctypes import c_uint64, c_void_p
from typing import Any

from ._errors import DilocoError

LIBRARY = "libdiloco.so.0"
NEEDED = (0, 2)  # version of the library that has all that is used here

OK, STOP, INTERRUPTED, OPEN = 0, 1, 2, 3
ERROR, REFUSED, UNREACHABLE = -1, -2, -3
F32, BF16, F16 = 0, 1, 2
READ, WRITE, MIX, SHIFT, ASIDE_OUT, ASIDE_COUNTED, ASIDE_MISSED, ASIDE_LOOK, ASIDE_OFF = range(9)
KEPT_ANCHOR, KEPT_SENT, KEPT_ASIDE, KEPT_PAST, KEPT_CARRY = range(5)
LAYER_NONE, LAYER_FROM_NAME = -1, -2
ANY = -1


class Move(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_int),
        ("type", c_int),
        ("tensor", c_void_p),
        ("first", c_uint64),
        ("beside", c_uint64),
        ("host", c_void_p),
        ("base", c_void_p),
        ("rows", c_size_t),
        ("columns", c_size_t),
        ("stride", c_size_t),
        ("aside", c_void_p),
        ("past", c_void_p),
        ("bad", c_void_p),
        ("carry", c_void_p),
        ("keep", c_double),
        ("fresh", c_double),
        ("past_share", c_double),
        ("decay", c_double),
    ]


MOVE = CFUNCTYPE(c_int, c_void_p, POINTER(Move))
MARK = CFUNCTYPE(c_uint64, c_void_p)
REACHED = CFUNCTYPE(c_int, c_void_p, c_uint64)
ALLOC = CFUNCTYPE(c_void_p, c_void_p, c_size_t)
FREE = CFUNCTYPE(None, c_void_p, c_void_p)
PIN = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)
UNPIN = CFUNCTYPE(None, c_void_p, c_void_p)
BROADCAST = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, POINTER(c_int))
BARRIER = CFUNCTYPE(c_int, c_void_p)
CARRY = CFUNCTYPE(c_uint64, c_void_p, c_int, c_uint32, c_void_p, c_size_t)
ARRIVED = CFUNCTYPE(c_int, c_void_p, c_uint64, c_int)
INTERRUPTED_CALL = CFUNCTYPE(c_int, c_void_p)
BEFORE_MOVES = CFUNCTYPE(c_int, c_void_p)
KEPT_VALUES = CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_void_p, c_uint64)


class Device(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("user", c_void_p),
        ("move", MOVE),
        ("mark", MARK),
        ("reached", REACHED),
        ("alloc", ALLOC),
        ("free", FREE),
        ("pin", PIN),
        ("unpin", UNPIN),
    ]


class Group(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("rank", c_int),
        ("count", c_int),
        ("name", c_char_p),
        ("user", c_void_p),
        ("broadcast", BROADCAST),
        ("barrier", BARRIER),
        ("send", CARRY),
        ("receive", CARRY),
        ("arrived", ARRIVED),
    ]


class Machine(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("device", c_char_p),
        ("ranks", c_int),
        ("tensor_parallel", c_int),
        ("memory_bytes", c_uint64),
        ("memory_total_bytes", c_uint64),
        ("flops_per_token", c_double),
        ("peak_flops", c_double),
    ]


class Options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("socket_path", c_char_p),
        ("trainer", c_char_p),
        ("wait_ms", c_int),
        ("interrupted", INTERRUPTED_CALL),
        ("interrupted_user", c_void_p),
        ("device", POINTER(Device)),
        ("kept", c_void_p),
        ("kept_bytes", c_size_t),
        ("group", POINTER(Group)),
        ("machine", POINTER(Machine)),
        ("without_initial", c_int),
        ("before_moves", BEFORE_MOVES),
        ("before_moves_user", c_void_p),
        ("kept_values", KEPT_VALUES),
        ("kept_values_user", c_void_p),
    ]


class Part(Structure):
    _fields_ = [("column0", c_uint64), ("columns", c_uint64), ("first", c_uint64), ("count", c_uint64)]


class Tensor(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("data", c_void_p),
        ("first", c_uint64),
        ("type", c_int),
        ("dims", c_uint32),
        ("shape", c_uint64 * 6),
        ("layer", c_int32),
        ("part", Part),
    ]


class Frozen(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("type", c_char_p),
        ("dims", c_uint32),
        ("shape", c_uint64 * 6),
        ("sum", c_uint64),
    ]


class Start(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("step", c_uint64),
        ("steps", c_uint64),
        ("version", c_uint64),
        ("tokens", c_uint64),
        ("tokens_counted", c_uint64),
        ("island_index", c_uint32),
        ("islands_count", c_uint32),
        ("island", c_char * 64),
    ]


class Report(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("tokens", c_uint64),
        ("loss", c_double),
        ("tokens_per_s", c_double),
        ("lr", c_double),
        ("grad_norm", c_double),
    ]


class Unit(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("dealt", c_int),
        ("island", c_uint32),
        ("position", c_uint64),
        ("turn", c_uint64),
        ("since", c_uint64),
    ]


class Dealing(Structure):
    _fields_ = [("size", c_size_t), ("words", c_uint64 * 84)]


STRUCTS = {
    "diloco_move": Move,
    "diloco_device": Device,
    "diloco_group": Group,
    "diloco_machine": Machine,
    "diloco_options": Options,
    "diloco_part": Part,
    "diloco_tensor": Tensor,
    "diloco_frozen": Frozen,
    "diloco_start": Start,
    "diloco_report": Report,
    "diloco_unit": Unit,
    "diloco_dealing": Dealing,
}

_CALLS = {
    "diloco_version": (c_char_p, []),
    "diloco_attach": (c_int, [POINTER(Options), POINTER(c_void_p)]),
    "diloco_register": (c_int, [c_void_p, POINTER(Tensor)]),
    "diloco_register_frozen": (c_int, [c_void_p, POINTER(Frozen)]),
    "diloco_place": (c_int, [c_void_p, c_int, c_void_p]),
    "diloco_begin": (c_int, [c_void_p, POINTER(Start)]),
    "diloco_step": (c_int, [c_void_p, POINTER(Report)]),
    "diloco_run_step": (c_uint64, [c_void_p]),
    "diloco_run_steps": (c_uint64, [c_void_p]),
    "diloco_seed": (c_uint64, [c_void_p, c_uint64]),
    "diloco_deals": (c_int, [c_void_p]),
    "diloco_draw": (c_int, [c_void_p, c_uint64, c_uint32, c_uint32, POINTER(Unit)]),
    "diloco_dealing": (c_int, [c_void_p, POINTER(Dealing)]),
    "diloco_draw_by": (c_int, [POINTER(Dealing), c_uint64, c_uint32, c_uint32, POINTER(Unit)]),
    "diloco_window": (c_int, [POINTER(Unit), c_uint64, c_uint64, POINTER(c_uint64), POINTER(c_uint64)]),
    "diloco_changed": (c_int, [c_void_p, c_int]),
    "diloco_anchor": (c_int, [c_void_p, c_int, c_void_p, c_uint64]),
    "diloco_keep_bytes": (c_size_t, [c_void_p]),
    "diloco_keep": (c_size_t, [c_void_p, c_void_p, c_size_t]),
    "diloco_keep_ranks": (c_int, [c_void_p]),
    "diloco_keep_begin": (c_int, [c_void_p]),
    "diloco_keep_values": (c_int, [c_void_p, c_int, c_int, c_void_p, c_uint64]),
    "diloco_keep_rest_bytes": (c_size_t, [c_void_p]),
    "diloco_keep_rest": (c_size_t, [c_void_p, c_void_p, c_size_t]),
    "diloco_ending": (None, [c_void_p, c_int]),
    "diloco_finish": (c_int, [c_void_p]),
    "diloco_detach": (None, [c_void_p]),
    "diloco_error": (c_char_p, [c_void_p]),
    "diloco_attached": (c_int, [c_void_p]),
}


def sized(struct: Any, /, **values: Any) -> Any:
    """A struct that begins with its own size, as every call wants it."""
    return struct(size=ctypes.sizeof(struct), **values)


def _places() -> list[str]:
    if os.environ.get("DILOCO_LIBRARY"):
        return [os.environ["DILOCO_LIBRARY"]]
    here = pathlib.Path(__file__).resolve().parent
    places = [str(here / LIBRARY)]  # in a wheel
    if len(here.parents) > 3 and (here.parents[3] / "Makefile").is_file():  # in a clone
        places += sorted(str(path) for path in here.parents[3].glob("build/gcc/" + LIBRARY))
    daemon = shutil.which("dilocod")
    if daemon is not None:  # of a build folder that is in PATH
        places.append(str(pathlib.Path(daemon).resolve().parent / LIBRARY))
    return [place for place in places if os.path.exists(place)] + [LIBRARY]


def _check_version(place: str, version: str) -> None:
    """A newer library knows what an older package wants of it; one of another major version is another interface."""
    parts = [int(part) if part.isdecimal() else -1 for part in version.split(".")[:2]]
    if tuple(parts) < NEEDED:
        raise DilocoError(f"{place} is version {version}, older than this package; install both from the same one")
    if parts[0] > NEEDED[0]:
        raise DilocoError(f"{place} is version {version}, newer than this package; install both from the same one")


def _load() -> ctypes.CDLL:
    reason = ""
    for place in _places():
        try:
            library = ctypes.CDLL(place)
        except OSError as error:
            reason = str(error)
            continue
        for name, (result, arguments) in _CALLS.items():
            try:
                call = getattr(library, name)
            except AttributeError:
                raise DilocoError(
                    f"{place} has no {name}(): it is older than this package; install both from the same version"
                ) from None
            call.restype, call.argtypes = result, arguments
        _check_version(place, library.diloco_version().decode(errors="replace"))
        return library
    raise DilocoError(f"{LIBRARY} cannot be loaded ({reason}); run `make install`, or set DILOCO_LIBRARY to its path")


_library: ctypes.CDLL | None = None


def library() -> ctypes.CDLL:
    """The library, loaded when it is needed first."""
    global _library
    if _library is None:
        _library = _load()
    return _library
