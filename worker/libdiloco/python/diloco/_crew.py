# SPDX-License-Identifier: Apache-2.0
"""Processes that make tokens of pieces: as many as there are, what comes of them comes in order.

Each has a pipe of its own and gets the next pieces when it is idle. They are started afresh instead of forked, so that
none holds the end of another's pipe: when this process is gone, however it went, they see it and end.
"""

from __future__ import annotations

import array
import multiprocessing
import signal
import sys
from collections import deque
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Callable, Iterator, List, Protocol, Sequence, Tuple

from . import _corpus
from ._errors import DilocoError

AHEAD = 8  # tasks for each process that may be under way or wait for one before them
TICK_S = 0.25
TASK_PIECES_MAX = 256  # small files go together

Task = List[_corpus.Piece]
Answer = Tuple[List["Made"], str]  # of the first pieces of a task; and what is wrong with the next one, or nothing


class Encoder(Protocol):
    def encode(self, texts: list[str]) -> Sequence[Sequence[int]]:
        """Tokens of each text, without any before or behind it."""


@dataclass(frozen=True)
class Orders:
    """What is to be done with each piece."""

    opener: Callable[[], Encoder]  # called in each process
    rules: _corpus.Rules
    eot: int | None  # behind each document
    vocab: int
    token_bits: int


@dataclass(frozen=True)
class Made:
    """What has become of a piece."""

    digest: bytes
    tokens: bytes
    documents: int
    empty: int
    text_bytes: int


def _little_endian(tokens: array.array[int]) -> bytes:
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens.tobytes()


def make(piece: _corpus.Piece, encoder: Encoder, orders: Orders) -> Made:
    texts = _corpus.documents(piece, orders.rules)
    full = [text for text in texts if text]
    tokens = array.array("H" if orders.token_bits == 16 else "I")
    try:
        encoded = encoder.encode(full)
    except Exception as error:  # whatever a tokenizer may raise
        raise DilocoError(f"{piece.path}: the tokenizer fails on text from line {piece.line} on: {error}") from None
    for ids in encoded:
        if ids and max(ids) >= orders.vocab:
            raise DilocoError(f"{piece.path}: becomes token {max(ids)} of a tokenizer with {orders.vocab}; mend that")
        tokens.extend(ids)
        if orders.eot is not None:
            tokens.append(orders.eot)
    text_bytes = sum(len(text.encode()) for text in full)
    return Made(_corpus.digest(piece, texts), _little_endian(tokens), len(full), len(texts) - len(full), text_bytes)


def tasks(pieces: Iterator[_corpus.Piece]) -> Iterator[Task]:
    """What was cut before something cannot be read comes first."""
    task: Task = []
    size = 0
    failure = None
    while True:
        try:
            piece = next(pieces, None)
        except DilocoError as error:
            piece, failure = None, error
        if piece is not None:
            task.append(piece)
            size += len(piece.data) if piece.kind != _corpus.TABLE else _corpus.PIECE_BYTES
        if task and (piece is None or size >= _corpus.PIECE_BYTES or len(task) >= TASK_PIECES_MAX):
            yield task
            task, size = [], 0
        if failure is not None:
            raise failure
        if piece is None:
            return


# ---- in a process of its own ----


def _answer(task: Task, encoder: Encoder, orders: Orders) -> Answer:
    """What is wrong is said in its turn, when all before it is done."""
    made: list[Made] = []
    for piece in task:
        try:
            made.append(make(piece, encoder, orders))
        except DilocoError as error:
            return made, str(error)
        except MemoryError:
            return made, f"{piece.path}: out of memory for a piece of it; give fewer --workers"
    return made, ""


def _serve(pipe: Connection, orders: Orders) -> None:
    try:
        try:
            encoder = orders.opener()
        except DilocoError as error:
            pipe.send(([], str(error)))
            return
        while True:
            pipe.send(_answer(pipe.recv(), encoder, orders))
    except (EOFError, OSError):
        pass  # nobody waits for it any more


class Crew:
    """`count` processes; with 0 the work is done in this one. close() ends them, whatever they are doing."""

    def __init__(self, count: int, orders: Orders):
        self.orders = orders
        self.processes: list[Any] = []
        self.pipes: list[Connection] = []
        context = multiprocessing.get_context("spawn")
        if count > 0:
            resource_tracker.ensure_running()  # else the first start() would, and unblock what is blocked here
        # A Ctrl-C goes to all processes of the terminal; this one alone answers it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for _ in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, orders), daemon=True)
                process.start()
                theirs.close()
                self.processes.append(process)
                self.pipes.append(ours)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def work(self, given: Iterator[Task]) -> Iterator[list[tuple[_corpus.Piece, Made]]]:
        """What comes of the pieces, in order; nothing now and then, so that who waits can do something else. What goes
        wrong is raised in its turn."""
        answers = self._in_processes(given) if self.processes else self._here(given)
        for task, (made, failure) in answers:
            yield list(zip(task, made))
            if failure:
                raise DilocoError(failure)

    def _here(self, given: Iterator[Task]) -> Iterator[tuple[Task, Answer]]:
        encoder = self.orders.opener()
        for task in given:
            yield task, _answer(task, encoder, self.orders)

    def _in_processes(self, given: Iterator[Task]) -> Iterator[tuple[Task, Answer]]:
        line: deque[tuple[Task, list[Answer]]] = deque()  # in order, each with what came of it
        busy: dict[Connection, list[Answer]] = {}
        idle = list(self.pipes)
        failure = None
        more = True
        while more or line:
            while more and idle and len(line) < AHEAD * len(self.pipes):
                try:
                    task = next(given, None)
                except DilocoError as error:
                    task, failure = None, error
                more = task is not None
                if task is not None:
                    pipe = idle.pop()
                    self._send(pipe, task)
                    busy[pipe] = []
                    line.append((task, busy[pipe]))
            there = wait(list(busy), 0 if line and line[0][1] else TICK_S)
            for pipe in [pipe for pipe in self.pipes if pipe in there]:
                busy.pop(pipe).append(self._receive(pipe))
                idle.append(pipe)
            if line and line[0][1]:
                done, came = line.popleft()
                yield done, came[0]
            else:
                yield [], ([], "")
        if failure is not None:
            raise failure

    def _send(self, pipe: Connection, task: Task) -> None:
        try:
            pipe.send(task)
        except OSError:
            _, said = self._receive(pipe)  # what it may have said before it ended
            raise (DilocoError(said) if said else self._died(pipe)) from None

    def _receive(self, pipe: Connection) -> Answer:
        try:
            said: Answer = pipe.recv()
        except (EOFError, OSError):
            raise self._died(pipe) from None
        return said

    def _died(self, pipe: Connection) -> DilocoError:
        process = self.processes[self.pipes.index(pipe)]
        process.join(1)
        code = process.exitcode
        how = f"by signal {-code}" if code is not None and code < 0 else f"with status {code}"
        hint = " (out of memory? give fewer --workers)" if code == -signal.SIGKILL else ""
        return DilocoError(f"a process that makes tokens ended {how}{hint}; the same command goes on from there")

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join()
        for pipe in self.pipes:
            pipe.close()
        self.processes, self.pipes = [], []
