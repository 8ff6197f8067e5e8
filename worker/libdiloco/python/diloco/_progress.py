# SPDX-License-Identifier: Apache-2.0
"""How far tokenizing has come: a line that changes on a terminal, else a line now and then."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

from ._shards import Place

BAR_S, LINE_S = 0.2, 10.0
BAR_WIDTH = 20


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} TB"


def _many(count: float) -> str:
    for unit in ("", "k", "M"):
        if count < 1000:
            return f"{count:.0f}{unit}" if unit == "" else f"{count:.1f}{unit}"
        count /= 1000
    return f"{count:.1f}G"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 100 * 3600 else f"{seconds / 86400:.1f} d"


class Progress:
    """Rates are of this call alone, shares of all the inputs, as they lie on disk."""

    def __init__(self, sizes: list[int], place: Place):
        self.before = [0]
        for size in sizes:
            self.before.append(self.before[-1] + size)
        self.place = place
        self.begin = (place.documents, place.tokens, place.text_bytes)
        self.disk: int | None = None
        self.disk_begin = self.before[min(place.input, len(sizes))]
        self.bar = sys.stderr.isatty()
        self.started = time.monotonic()
        self.shown = self.started if not self.bar else 0.0

    def __enter__(self) -> Progress:
        if self.place.tokens > 0:
            self._out(f"goes on after {self.place.tokens:,} tokens", "\n")
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.disk is not None and self.bar:
            self._out(self.text(), "\n")

    def reached(self, number: int, disk_bytes: int, place: Place) -> None:
        self.disk = self.before[number] + disk_bytes

    def show(self) -> None:
        now = time.monotonic()
        if self.disk is not None and now - self.shown >= (BAR_S if self.bar else LINE_S):
            self.shown = now
            self._out(self.text(), "" if self.bar else "\n")

    def _out(self, text: str, end: str) -> None:
        if self.bar:
            width = shutil.get_terminal_size().columns
            text = f"\r{text[: width - 1]:{width - 1}}"
        print(text, end=end, file=sys.stderr, flush=True)

    def text(self) -> str:
        disk, total = self.disk or 0, max(1, self.before[-1])
        share = disk / total
        seconds = max(1e-6, time.monotonic() - self.started)
        done = disk - self.disk_begin
        documents, tokens, text = (
            (now - before) / seconds
            for now, before in zip((self.place.documents, self.place.tokens, self.place.text_bytes), self.begin)
        )
        left = _duration((total - disk) / done * seconds) if done > 0 else "?"
        full = int(share * BAR_WIDTH)
        bar = f"[{'#' * full}{'.' * (BAR_WIDTH - full)}] " if self.bar else ""
        return (
            f"{bar}{100 * share:3.0f} %, {left} left; {_many(tokens)} tokens/s, {_bytes(text)}/s, "
            f"{_many(documents)} documents/s; {self.place.documents:,} documents, {_many(self.place.tokens)} tokens "
            f"of {_bytes(total)}"
        )
