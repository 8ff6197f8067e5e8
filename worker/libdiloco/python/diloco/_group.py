# SPDX-License-Identifier: Apache-2.0
"""Ranks of torch.distributed as libdiloco's group: one speaks with the daemon, the others follow."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable

import torch
import torch.distributed as dist

from . import _abi
from ._errors import DilocoError
from ._watch import FREES_S, Watch

FAILED_S = 1.0  # within which it is known who was lost, after something of ours has failed
HEADER_BYTES = 16  # pid and descriptor of the rank that speaks
PROBE_S = 2.0


@dataclass(frozen=True)
class _Place:
    """Where a rank runs. Names of machines are for people alone: they may be equal, and say nothing of containers."""

    boot: str  # which kernel
    processes: str  # among which processes
    host: str
    socket: tuple[int, int] | None  # which file it is, on that kernel

    @property
    def machine(self) -> tuple[str, str]:
        return self.boot, self.processes


def _place(path: str) -> _Place:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    try:
        found = os.stat(path)
        there = (found.st_dev, found.st_ino) if stat.S_ISSOCK(found.st_mode) else None
    except OSError:
        there = None
    return _Place(boot, os.readlink("/proc/self/ns/pid"), socket.gethostname(), there)


def _somebody_listens(path: str) -> bool:
    """A socket in a folder that machines share is seen by all of them, and is of one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(PROBE_S)
        try:
            probe.connect(path)
        except OSError as error:
            return error.errno != errno.ECONNREFUSED
    return True


def _speaker(places: list[_Place], listens: Callable[[list[int]], list[bool]]) -> int:
    """The rank that speaks with the daemon: the first on its machine. `listens`: of the first rank of each machine that
    has the socket, whether somebody listens there."""
    first: dict[tuple[str, tuple[int, int]], int] = {}  # containers on one kernel may see the same one
    for rank, place in enumerate(places):
        if place.socket is not None:
            first.setdefault((place.boot, place.socket), rank)
    asked = list(first.values())
    if len(asked) > 1:
        asked = [rank for rank, there in zip(asked, listens(asked)) if there]
    if len(asked) > 1:
        one, two = (f"{places[rank].host} (rank {rank})" for rank in asked[:2])
        raise DilocoError(
            f"there is a daemon on {one} and one on {two}, and an island has one: stop one of them, or unset "
            "DILOCO_SOCKET where it is not to be used"
        )
    return asked[0] if asked else 0


class _Carrier:
    """Bytes between two ranks, by a process group of their own, so that they stand in the way of no collective of the
    model's. gloo tells that something has arrived only to whoever waits for it: a thread each does."""

    def __init__(self, ranks: list[int]):
        self.group = dist.new_group(ranks, backend="gloo")
        self._lock = threading.Lock()
        self._number = 0
        self._arrived: dict[int, threading.Event] = {}
        self._failed: dict[int, BaseException] = {}

    def begin(self, transfer: Callable[..., Any], peer: int, tag: int, address: int, count: int) -> int:
        values = torch.frombuffer((ctypes.c_uint8 * count).from_address(address), dtype=torch.uint8)
        work = transfer(values, peer, group=self.group, tag=tag)
        with self._lock:
            self._number += 1
            number = self._number
            self._arrived[number] = threading.Event()
        threading.Thread(target=self._await, args=(number, work, values), daemon=True).start()
        return number

    def _await(self, number: int, work: Any, _values: Any) -> None:
        try:
            work.wait()
        except BaseException as error:  # told to whoever asks
            self._failed[number] = error
        self._arrived[number].set()

    def arrived(self, number: int, wait: bool) -> bool:
        event = self._arrived[number]
        if wait:
            event.wait()
        elif not event.is_set():
            return False
        del self._arrived[number]
        error = self._failed.pop(number, None)
        if error is not None:
            raise error
        return True


class RankGroup:
    """One rank maps the memory of the daemon and speaks with it, with all others on its machine; those elsewhere are
    served by these. `path`: of the daemon's socket, or the address of a gateway beside it, to which each rank has a
    connection of its own that libdiloco makes. Ranks are counted from the one that speaks on."""

    def __init__(self, group: Any = None, path: str = ""):
        self.group = group if group is not None else dist.group.WORLD
        self._ranks = ranks = dist.get_process_group_ranks(self.group)
        own = _place(path)
        self.places: list[_Place] = [own] * len(ranks)
        dist.all_gather_object(self.places, own, group=self.group)
        self._path, self._by_gateway = path, path.startswith("tcp://")
        self.source = _speaker(self.places, self._listens)
        order = [self.source, *(rank for rank in range(len(ranks)) if rank != self.source)]
        self._global = [ranks[rank] for rank in order]
        # What is said is bytes in host memory, whatever the group for gradients is made for.
        speaks = dist.get_backend(self.group) == "gloo"
        self.bytes_group = self.group if speaks else dist.new_group(ranks, backend="gloo")
        self.rank, self.count, self.first = order.index(dist.get_rank(self.group)), len(ranks), ranks[self.source]
        self.near = self.is_near(dist.get_rank(self.group))
        self.failure: BaseException | None = None
        all_near = all(self.is_near(rank) for rank in range(len(ranks)))
        self._carrier = None if all_near or self._by_gateway else _Carrier(ranks)
        hosts = ["" if all_near else f" on {place.host}" for place in self.places]
        names = {rank: f"rank {rank}{host}" for rank, host in zip(ranks, hosts)}
        self._watch = None if all_near else Watch(ranks, self.first, names)
        far: dict[str, Any] = {}
        if self._carrier is not None:
            far = {
                "send": _abi.CARRY(self._send),
                "receive": _abi.CARRY(self._receive),
                "arrived": _abi.ARRIVED(self._has_arrived),
            }
        self.struct: Any = _abi.sized(
            _abi.Group,
            rank=self.rank,
            count=self.count,
            name=names[dist.get_rank()].encode(),
            broadcast=_abi.BROADCAST(self._broadcast),
            barrier=_abi.BARRIER(self._barrier),
            **far,
        )

    def _listens(self, asked: list[int]) -> list[bool]:
        said: list[bool] = [False] * len(self.places)
        own = dist.get_rank(self.group)
        dist.all_gather_object(said, own in asked and _somebody_listens(self._path), group=self.group)
        return [said[rank] for rank in asked]

    def is_near(self, rank: int) -> bool:
        """Of a rank of the group, as torch.distributed counts."""
        return not self._by_gateway and self.places[rank].machine == self.places[self.source].machine

    def number(self, rank: int) -> int:
        """Of a rank of the group, as torch.distributed counts: the one among all."""
        return self._ranks[rank]

    def is_to_end(self, asked: bool) -> bool:
        """Whether this rank was asked to end, or, in the one that speaks, any: of those elsewhere it hears here."""
        if self._watch is None:
            return asked
        if asked:
            self._watch.ask()
        return asked or (self.rank == 0 and self._watch.asked)

    def part(self) -> None:
        """After finish(): whoever ends now is nobody's loss."""
        if self._watch is not None:
            self._watch.part(True)

    def nearest(self, group: Any) -> int:
        """Of another group, or this one, the rank there whose copy of something is the one to be exchanged."""
        own = dist.get_process_group_ranks(self.group)
        there = dist.get_process_group_ranks(group)
        if self._global[0] in there:
            return there.index(self._global[0])
        near = (at for at, rank in enumerate(there) if rank in own and self.is_near(own.index(rank)))
        return next(near, 0)

    def close(self) -> None:
        """After the last word of all ranks, once or more often. Of the process groups it holds none any more."""
        if self.struct is None:
            return
        if self._watch is not None:
            self._watch.part(False)
            self._watch.close()
        if self._carrier is not None and dist.is_initialized():
            dist.destroy_process_group(self._carrier.group)
        if self.bytes_group is not self.group and dist.is_initialized():
            dist.destroy_process_group(self.bytes_group)
        self.group = self.bytes_group = self.struct = self._carrier = self._watch = None
        time.sleep(FREES_S)

    def _broadcast(self, _user: Any, address: int, count: int, fd: Any) -> int:
        try:
            self._pass_on(address, count, fd)
        except BaseException as error:  # no exception passes through C
            self.failure = self._explained(error)
            return -1
        return 0

    def lost(self) -> str | None:
        """A rank on another machine that is gone, as it is said."""
        return self._watch.lost if self._watch is not None else None

    def _explained(self, error: BaseException) -> BaseException:
        if dist.is_initialized():
            lost = self._watch.why(FAILED_S) if self._watch is not None else None
            return DilocoError(lost) if lost is not None else error
        return DilocoError(
            "torch.distributed's process group, by which the ranks of an island speak, was destroyed before: call "
            "finish() and detach() first"
        )

    def _pass_on(self, address: int, count: int, fd: Any) -> None:
        said = torch.empty(HEADER_BYTES + count, dtype=torch.uint8, device="cpu")
        own = said.data_ptr()
        if self.rank == 0:
            header = (ctypes.c_int64 * 2)(os.getpid(), fd[0])
            ctypes.memmove(own, header, HEADER_BYTES)
            ctypes.memmove(own + HEADER_BYTES, address, count)
        dist.broadcast(said, src=self.first, group=self.bytes_group)
        header = (ctypes.c_int64 * 2).from_buffer_copy(ctypes.string_at(own, HEADER_BYTES))
        if self.rank != 0:
            ctypes.memmove(address, own + HEADER_BYTES, count)
            fd[0] = self._take(header[0], header[1]) if header[1] >= 0 and self.near else -1
        if header[1] >= 0:
            dist.barrier(group=self.bytes_group)  # rank 0 may close it then

    @staticmethod
    def _take(pid: int, fd: int) -> int:
        """One that cannot have it is far, wherever it runs."""
        try:
            return os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return -1

    def _begin(self, transfer: Callable[..., Any], peer: int, tag: int, address: int, count: int) -> int:
        try:
            assert self._carrier is not None
            return self._carrier.begin(transfer, self._global[peer], tag, address, count)
        except BaseException as error:
            self.failure = self._explained(error)
            return 0

    def _send(self, _user: Any, peer: int, tag: int, address: int, count: int) -> int:
        return self._begin(dist.isend, peer, tag, address, count)

    def _receive(self, _user: Any, peer: int, tag: int, address: int, count: int) -> int:
        return self._begin(dist.irecv, peer, tag, address, count)

    def _has_arrived(self, _user: Any, number: int, wait: int) -> int:
        try:
            assert self._carrier is not None
            return int(self._carrier.arrived(number, wait != 0))
        except BaseException as error:
            self.failure = self._explained(error)
            return -1

    def share(self, said: bytearray) -> bytearray:
        """Rank 0's bytes to all, who bring as many."""
        values = torch.frombuffer(said, dtype=torch.uint8)
        dist.broadcast(values, src=self.first, group=self.bytes_group)
        return said

    def meet(self) -> None:
        dist.barrier(group=self.bytes_group)

    def _barrier(self, _user: Any) -> int:
        try:
            dist.barrier(group=self.bytes_group)
        except BaseException as error:
            self.failure = self._explained(error)
            return -1
        return 0
