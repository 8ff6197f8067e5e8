# SPDX-License-Identifier: Apache-2.0
"""Which samples of a dataset that all islands have this one draws: the run deals them, by step."""

from __future__ import annotations

from typing import Any, Callable, Iterator

Draw = Callable[[int, int, int, int, int], int]  # step, unit, units, samples, seed: which sample


class Sampler:
    """Numbers of samples without an end, `per_step` for each optimizer step: for a DataLoader's sampler=. No other
    island draws the same one in a pass, whoever comes or goes. It may be drawn ahead, as loaders with workers do: what
    was drawn stays right."""

    def __init__(self, samples: int, per_step: int, seed: int, run_step: Callable[[], int], draw: Draw):
        self.samples, self.per_step, self.seed = samples, per_step, seed
        self._run_step, self._draw = run_step, draw
        self._step = self._unit = 0  # drawn last; all units of a step that has not begun

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self._unit % self.per_step == 0:  # an island that is slower than others leaves steps out
            self._step, self._unit = max(self._step, self._run_step()) + 1, 0
        self._unit += 1
        return self._draw(self._step, self._unit - 1, self.per_step, self.samples, self.seed)


def check(samples: Any, per_step: Any) -> str | None:
    """What is wrong with them; None: nothing is."""
    if not hasattr(samples, "__len__"):
        return "sampler() of a dataset without a length: it deals samples by number"
    if len(samples) == 0:
        return "sampler() of an empty dataset"
    if not isinstance(per_step, int) or per_step < 1:
        return f"sampler(per_step={per_step!r}): how many samples one optimizer step draws, at least 1"
    return None
