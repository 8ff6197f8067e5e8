# SPDX-License-Identifier: Apache-2.0
"""Ranks on several machines watch each other, so that who is lost has a name: collectives know of an address at best,
and some wait for minutes."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import sys
import threading
import time
from typing import Any

import torch
import torch.distributed as dist

BEAT_S = 5.0
SILENT_S = 30.0  # after which it is said that nothing is heard
LONG = datetime.timedelta(days=30)  # silence alone ends nothing: a process may be stopped, or a line come back
PARTING_S = 2.0
# Of PyTorch 2.15's gloo, a thread that still frees what was moved last, of which parts are Python's, aborts the process
# if the interpreter ends meanwhile. Asleep, this one gives it the time.
FREES_S = 0.05
TOGETHER_S = 0.5  # where one detaches, all may, for one reason that each of them says
WORD_TAG = 0

BEAT, ENDS, OVER, LEFT, HEARD = range(5)  # words of one byte
DETACHED = "has ended its script, or detached, before finish()"


class Watch:
    """The rank that speaks with the daemon watches each other one, and each of these that one, over a gloo group of
    their own. Who is lost without a word is said on stderr, and to whoever asks; a rank that is asked to end says so
    here."""

    def __init__(self, ranks: list[int], leads: int, names: dict[int, str]):
        """names: of ranks, as torch.distributed numbers them all; every one of them makes one of these"""
        self.lost: str | None = None  # the first one, as it was said
        self._known = threading.Event()  # there is one
        self.asked = False  # by some rank, to end
        self._names = names
        self._group: Any = dist.new_group(ranks, backend="gloo", timeout=LONG)
        own = dist.get_rank()
        self._own, self._leads = names[own], own == leads
        self._peers = [rank for rank in ranks if rank != own] if own == leads else [leads]
        self._parted = threading.Event()  # we have said the last word
        self._wakes, self._ends = threading.Event(), False
        self._lock = threading.Lock()
        self._heard = {rank: time.monotonic() for rank in self._peers}
        self._silent: set[int] = set()
        self._gone: set[int] = set()  # those that have said their last word, or will not
        self._threads = [threading.Thread(target=self._listen, args=(rank,), daemon=True) for rank in self._peers]
        self._threads.append(threading.Thread(target=self._look, daemon=True))
        if not self._leads:
            self._threads.append(threading.Thread(target=self._beat, args=(leads,), daemon=True))
        for thread in self._threads:
            thread.start()
        atexit.register(self._part_at_exit)

    def ask(self) -> None:
        """This rank was asked to end; the one that leads shall know."""
        self._ends = True
        self._wakes.set()

    def part(self, finished: bool) -> None:
        """The last word to those that are watched, after which whatever becomes of this rank is nobody's loss. The
        first call counts."""
        if self._parted.is_set():
            return
        self._parted.set()
        self._wakes.set()
        atexit.unregister(self._part_at_exit)
        try:
            words = [self._send(rank, OVER if finished else LEFT) for rank in self._peers if rank not in self._gone]
            for work, _ in words:
                work.wait(datetime.timedelta(seconds=PARTING_S))
        except Exception:  # who is gone, or has destroyed all groups, hears nothing
            pass
        # A thread that comes back to Python while the interpreter ends aborts the process: each ends by the other
        # side's last word, or by its answer to ours.
        last = time.monotonic() + PARTING_S
        for thread in self._threads:
            thread.join(max(0.0, last - time.monotonic()))

    def _part_at_exit(self) -> None:
        self.part(False)
        time.sleep(FREES_S)

    def close(self) -> None:
        """After part()."""
        group, self._group = self._group, None
        if group is not None and dist.is_initialized():
            dist.destroy_process_group(group)

    def why(self, patience_s: float) -> str | None:
        """Who was lost. What a collective has failed at just now may be known here an instant later."""
        self._known.wait(patience_s)
        return self.lost

    def _send(self, rank: int, word: int) -> tuple[Any, torch.Tensor]:
        said = torch.tensor([word], dtype=torch.uint8, device="cpu")
        return dist.isend(said, rank, group=self._group, tag=WORD_TAG), said

    def _say(self, text: str) -> None:
        print(f"diloco: {self._own}: {text}", file=sys.stderr, flush=True)

    def _lose(self, rank: int, how: str) -> None:
        with self._lock:
            self._gone.add(rank)
            if self._parted.is_set():
                return
            text = f"{self._names[rank]} {how}"
            first, self.lost = self.lost is None, self.lost or text
            self._known.set()
        if first and not (how == DETACHED and self._parted.wait(TOGETHER_S)):
            self._say(f"{text}: the ranks of this island are at an end, and go on from what was kept when they are "
                      "started again")

    def _listen(self, rank: int) -> None:
        heard = torch.zeros(1, dtype=torch.uint8, device="cpu")
        group = self._group
        while True:
            try:
                dist.irecv(heard, rank, group=group, tag=WORD_TAG).wait()
            except Exception:  # whatever gloo, or a group that is no more, has to say of it
                self._lose(rank, "is gone without a word, or the way to it is")
                return
            word = int(heard[0])
            self._hear(rank)
            if word == ENDS:
                self.asked = True
            elif word == HEARD:
                return
            elif word in (LEFT, OVER):
                self._answer(rank)
                if word == LEFT:
                    self._lose(rank, DETACHED)
                return

    def _answer(self, rank: int) -> None:
        """To a last word, unless ours is on its way."""
        with self._lock:
            self._gone.add(rank)
            parted = self._parted.is_set()
        if not parted:
            with contextlib.suppress(Exception):
                self._send(rank, HEARD)[0].wait(datetime.timedelta(seconds=PARTING_S))

    def _hear(self, rank: int) -> None:
        with self._lock:
            silent_s, self._heard[rank] = time.monotonic() - self._heard[rank], time.monotonic()
            was_silent = rank in self._silent
            self._silent.discard(rank)
        if was_silent:
            self._say(f"{self._names[rank]} is heard again, after {silent_s:.0f} s")

    def _beat(self, leads: int) -> None:
        """Who takes a word lives."""
        said = False
        while not self._parted.is_set():
            try:
                self._send(leads, BEAT)[0].wait()
                if self._ends and not said:
                    self._send(leads, ENDS)[0].wait()
                    said = True
            except Exception:  # the listener says it
                return
            self._hear(leads)
            self._wakes.wait(BEAT_S)
            self._wakes.clear()

    def _look(self) -> None:
        looked = time.monotonic()
        while not self._parted.wait(BEAT_S / 2):
            before, now = looked, time.monotonic()
            looked = now
            with self._lock:
                if now - before > BEAT_S:  # it was this process that stood still
                    self._heard = {rank: at + now - before for rank, at in self._heard.items()}
                late = [rank for rank, at in self._heard.items()
                        if now - at >= SILENT_S and rank not in self._silent and rank not in self._gone]
                self._silent.update(late)
            for rank in late:
                self._say(f"nothing is heard of {self._names[rank]} for {SILENT_S:.0f} s: it is stopped, or the line "
                          "to it is cut; the ranks wait for it")
