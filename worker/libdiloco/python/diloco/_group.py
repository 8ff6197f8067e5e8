# SPDX-License-Identifier: Apache-2.0
"""Ranks of torch.distributed as libdiloco's group: one speaks with the daemon, the others follow."""

from __future__ import annotations

import ctypes
import os
import socket
import time
from typing import Any

import torch
import torch.distributed as dist

from . import _abi
from ._errors import DilocoError

HEADER_BYTES = 16  # pid and descriptor of rank 0
FREES_S = 0.05


def _machine() -> tuple[str, str]:
    """Which kernel runs this process, and among which processes: names of machines say neither."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return boot, os.readlink("/proc/self/ns/pid")


def _check_hosts(hosts: list[tuple[str, str, str]]) -> None:
    """Of each rank the machine, the processes that it sees, and a name for people."""
    first: dict[tuple[str, str], int] = {}
    for rank, (boot, processes, _) in enumerate(hosts):
        first.setdefault((boot, processes), rank)
    if len(first) == 1:
        return
    names = " and ".join(f"{hosts[rank][2]} (rank {rank})" for rank in first.values())
    if len({boot for boot, _ in first}) == 1:
        raise DilocoError(
            f"ranks in several containers, {names}: those of one island have to see each other's processes; run them "
            "in one container, or with one PID namespace"
        )
    raise DilocoError(f"ranks on {names}: those of one island have to be on one machine")


class RankGroup:
    """Needs all ranks on one machine, as they map the memory of one daemon."""

    def __init__(self, group: Any = None):
        self.group = group if group is not None else dist.group.WORLD
        hosts: list[Any] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(hosts, (*_machine(), socket.gethostname()), group=self.group)
        _check_hosts(hosts)
        ranks = dist.get_process_group_ranks(self.group)
        # What is said is bytes in host memory, whatever the group for gradients is made for.
        speaks = dist.get_backend(self.group) == "gloo"
        self.bytes_group = self.group if speaks else dist.new_group(ranks, backend="gloo")
        self.rank, self.count, self.first = dist.get_rank(self.group), len(ranks), ranks[0]
        self.failure: BaseException | None = None
        self.struct: Any = _abi.sized(
            _abi.Group,
            rank=self.rank,
            count=self.count,
            broadcast=_abi.BROADCAST(self._broadcast),
            barrier=_abi.BARRIER(self._barrier),
        )

    def close(self) -> None:
        """After the last word of all ranks, once or more often. Of the process groups it holds none any more."""
        if self.struct is None:
            return
        if self.bytes_group is not self.group and dist.is_initialized():
            dist.destroy_process_group(self.bytes_group)
        self.group = self.bytes_group = self.struct = None
        # Of PyTorch 2.15's gloo, a thread that still frees what the last collective moved, of which parts are Python's,
        # aborts the process if the interpreter ends meanwhile. Asleep, this one gives it the time.
        time.sleep(FREES_S)

    def _broadcast(self, _user: Any, address: int, count: int, fd: Any) -> int:
        try:
            self._pass_on(address, count, fd)
        except BaseException as error:  # no exception passes through C
            self.failure = self._explained(error)
            return -1
        return 0

    @staticmethod
    def _explained(error: BaseException) -> BaseException:
        if dist.is_initialized():
            return error
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
            fd[0] = os.open(f"/proc/{header[0]}/fd/{header[1]}", os.O_RDWR | os.O_CLOEXEC) if header[1] >= 0 else -1
        if header[1] >= 0:
            dist.barrier(group=self.bytes_group)  # rank 0 may close it then

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
