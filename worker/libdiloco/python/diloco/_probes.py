# SPDX-License-Identifier: Apache-2.0
"""What a training loop does with the parameters between two steps of the run, seen without looking at all of them:
whether a step has changed any, and whether an optimizer writes over what the run brought."""

from __future__ import annotations

import weakref
from collections import deque
from operator import attrgetter
from typing import Any, Callable, Iterable, Sequence

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

STILL_MOST = 50  # steps in a row that change nothing, and are not counted
PROBED_MOST = 16  # parameters
VALUES = 64  # of each
FEWEST = 16  # values of a parameter that is judged by: a single stiff one may go back by itself to where it was
COUNTED = 8  # parameters at least, where there are as many

_version = attrgetter("_version")  # how often a tensor was changed in place, whoever did it


class Still:
    """Steps that change no parameter, as those that a GradScaler skips. An optimizer of torch says itself that it has
    stepped. Of others the counts of changes tell; where a loop changes parameters in a way that these do not show
    (`.data`), and where it goes on for long without changing any, all steps count."""

    def __init__(self, params: Iterable[Any]) -> None:
        """params: as an optimizer has them"""
        self.params = {id(value) for value in params}
        self._counts: list[int] = []  # of all, where no optimizer speaks; else of some
        self._hooked = self._stepped = self._refused = False
        self._shown = False
        self.in_a_row = 0

    def listen(self) -> Any:
        """From now on optimizers are heard, until what is returned is remove()d."""
        itself = weakref.ref(self)
        self._hooked = False

        def stepped(optimizer: Any, _arguments: Any, _named: Any) -> None:
            still = itself()
            if still is not None:
                still.hear(optimizer)

        return register_optimizer_step_post_hook(stepped)

    def hear(self, optimizer: Any) -> None:
        """An optimizer has stepped, maybe of other parameters. One that looks for an Inf itself (fused=True) has
        changed nothing where there was one; of a GPU that is not known yet."""
        if not any(id(value) in self.params for group in optimizer.param_groups for value in group["params"][:1]):
            return
        found = getattr(optimizer, "found_inf", None)
        self._hooked = True
        if isinstance(found, torch.Tensor) and found.is_cpu and found.item() > 0:
            self._refused = True
        else:
            self._stepped = True

    def begin(self, values: Sequence[torch.Tensor]) -> None:
        """After what has come in."""
        self._counts = self._count(values)

    def _count(self, values: Sequence[torch.Tensor]) -> list[int]:
        some = values[:: len(values) // COUNTED + 1] if self._hooked else values
        return list(map(_version, some))

    def is_one(self, values: Sequence[torch.Tensor]) -> bool:
        before, self._counts = self._counts, self._count(values)
        changed = self._stepped or (self._counts != before and not self._refused)
        self._stepped = self._refused = False
        if changed:
            self._shown, self.in_a_row = True, 0
            return False
        self.in_a_row += 1
        if self.in_a_row > STILL_MOST:
            self._shown = False
        return self._shown


class Idle:
    """Whether training changes anything at all: an optimizer may have been given other parameters than the model's."""

    def __init__(self) -> None:
        self._sample: torch.Tensor | None = None
        self._done = False

    def moved(self) -> None:
        """What has come in changed values."""
        self._sample = None

    def look(self, still: int, sample: Callable[[], torch.Tensor]) -> bool:
        """At a step after `still` that have shown no change: True, once, where values show none either."""
        if self._done or still <= STILL_MOST:
            self._sample = None
            return False
        before, self._sample = self._sample, sample()
        if before is None:
            return False
        self._done = True
        return torch.equal(before, self._sample)


class _Mix:
    """Some values of a parameter: before and after an anchor was taken in, and after the step that followed."""

    def __init__(self, before: torch.Tensor, after: torch.Tensor):
        self.before, self.after = before, after
        self.next: torch.Tensor | None = None


class Overwritten:
    """An optimizer that has fp32 masters of its own, which know nothing of an anchor that was taken in, writes these
    over it with its next step. With u the change of one step: who keeps what came in goes on from there, to after + u;
    who does not, to before + u. The step after that one shows u, but for what it differs by from step to step; where
    the distance that the anchor moved the values is much larger than that, the two can be told apart."""

    CLEAR = 16.0  # so many times, of squares

    def __init__(self, values: Sequence[torch.Tensor]):
        have = [n for n, value in enumerate(values) if value.numel() > 0]
        some = have[:: max(1, -(-len(have) // PROBED_MOST))]
        self.numbers = {n: self._places(values[n]) for n in some}
        self._judged = [n for n in some if values[n].numel() >= FEWEST]
        self._before: dict[int, torch.Tensor] = {}
        self._mixes: dict[int, _Mix] = {}
        self._said: deque[tuple[list[int], torch.Tensor, Any]] = deque()

    @staticmethod
    def _places(value: torch.Tensor) -> torch.Tensor:
        count = min(VALUES, value.numel())
        return (torch.arange(count, device=value.device) * value.numel()) // count

    def _now(self, values: Sequence[torch.Tensor], n: int) -> torch.Tensor:
        return values[n].detach().view(-1)[self.numbers[n]].float()

    def sample(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        """Copies of some."""
        return torch.cat([self._now(values, n) for n in self.numbers])

    def before(self, values: Sequence[torch.Tensor]) -> None:
        """Values may be moved now."""
        self._before = {n: self._now(values, n) for n in self._judged}

    def after(self, values: Sequence[torch.Tensor], changed: Callable[[int], Any]) -> None:
        """They were, of those that have changed."""
        for n, before in self._before.items():
            if changed(n):
                self._mixes[n] = _Mix(before, self._now(values, n))
        self._before = {}

    def look(self, values: Sequence[torch.Tensor]) -> int | None:
        """At the beginning of a step: the number of the first parameter whose optimizer wrote over what came in, where
        it was so in most of those that it came into. None: nothing is known to be wrong; of a GPU it may be known
        later."""
        if not self._mixes and not self._said:
            return None
        judged, flags = [], []
        for n in list(self._mixes):
            mix, now = self._mixes[n], self._now(values, n)
            if mix.next is None:
                mix.next = now
                continue
            del self._mixes[n]
            moved = (mix.after - mix.before).square().sum()
            left = ((mix.next - mix.before) - (now - mix.next)).square().sum()
            kept = ((mix.next - mix.after) - (now - mix.next)).square().sum()
            judged.append(n)
            flags.append((left * self.CLEAR <= moved) & (kept > left) & (moved > 0))
        if judged:
            self._say(judged, torch.stack(flags))
        return self._heard()

    def _say(self, judged: list[int], flags: torch.Tensor) -> None:
        if not flags.is_cuda:
            self._said.append((judged, flags, None))
            return
        on_host = torch.empty(flags.shape, dtype=torch.bool, device="cpu", pin_memory=True)
        on_host.copy_(flags, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._said.append((judged, on_host, event))

    def _heard(self) -> int | None:
        while self._said and (self._said[0][2] is None or self._said[0][2].query()):
            judged, flags, _ = self._said.popleft()
            wrong = [n for n, flag in zip(judged, flags.tolist()) if flag]
            if 2 * len(wrong) > len(judged):
                return wrong[0]
        return None
