# SPDX-License-Identifier: Apache-2.0
"""Which samples of a dataset that all islands have this one draws: the run deals them, by step."""

from __future__ import annotations

import logging
import sys
from typing import Any, Iterator

from ._dealing import Dealing, Known, window
from ._errors import DilocoError

_log = logging.getLogger("diloco")


class Sampler:
    """Numbers of samples without an end, `per_step` for each optimizer step, of which each of `ranks` draws its part:
    for a DataLoader's sampler=. No other island draws the same one in a pass, whoever comes or goes. It may be drawn
    ahead, as loaders with workers do: what was drawn stays right. An iterator begins with the step after the one that
    is under way; it ends the one before, whose samples that were drawn ahead and not trained on come again."""

    def __init__(self, dealing: Dealing, samples: int, per_step: int, seed: int, rank: int = 0, ranks: int = 1):
        self.dealing, self.samples, self.per_step, self.seed = dealing, samples, per_step, seed
        self.units = range(per_step * rank // ranks, per_step * (rank + 1) // ranks)
        self._life = self._drawn = 0  # the furthest step that anything was drawn of, in which life
        self._iterators = 0
        self._said = False

    def __iter__(self) -> Iterator[int]:
        known = self.dealing.read()
        begun = self._life == known.life and self._drawn > known.run_step
        return self.numbers(known.run_step + 1 if begun else known.run_step)

    def numbers(self, after: int) -> Iterator[int]:
        """Those of the steps beyond it."""
        self._iterators += 1
        self._life = self.dealing.read().life
        return self._numbers(self._iterators, after)

    def _numbers(self, iterator: int, step: int) -> Iterator[int]:
        while True:
            known = self.dealing.read()
            if known.life != self._life:  # of load_state_dict(): the run may be at an earlier step now
                self._life, step = known.life, known.run_step
            self._drawn = step = max(step, known.run_step) + 1  # an island slower than others leaves steps out
            for unit in self.units:
                if iterator != self._iterators:
                    raise DilocoError("a sampler is drawn from by one loader: another iterator of it has begun since")
                known = self.dealing.read()
                if known.life != self._life:
                    break
                yield self._draw(known, step, unit)

    def _draw(self, known: Known, step: int, unit: int) -> int:
        drawn = known.draw(step, unit, self.per_step)
        if not drawn.dealt and not self._said:
            self._say_own(known, step, unit)
        return window(drawn, self.samples, self.seed)

    def _say_own(self, known: Known, step: int, unit: int) -> None:
        """Where it need not be so."""
        next_step = known.run_step + 1
        if known.draw(next_step, unit, self.per_step).dealt:
            if 2 * (step - next_step) < known.horizon:
                return  # results are late, for once
            self._said = True
            _log.warning(
                "samples are drawn %d steps ahead of the one that is trained, further than they are dealt: those are "
                "drawn from a part of the dataset that is this island's own. Draw fewer ahead (num_workers, "
                "prefetch_factor), unless per_step=%d is less than what an optimizer step takes in its micro-batches",
                step - next_step,
                self.per_step,
            )
        elif unit > 0 and known.draw(next_step, 0, self.per_step).dealt:
            self._said = True
            _log.warning(
                "sampler(per_step=%d): fewer samples a step are dealt to this island, and the others are drawn from a "
                "part of the dataset that is its own: say units = %d in [worker] of its dilocod.conf",
                self.per_step,
                self.per_step,
            )

    def state_dict(self) -> dict[str, Any]:
        """For loaders that keep what their sampler says: nothing, as the run knows its step, and attach(state=) or
        load_state_dict() of the island goes on from there."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The same: nothing is passed over."""


class Shard:
    """What Sampler draws of a dataset, as items without an end: for loaders that take no sampler. One process goes
    through it: which steps were trained, of those drawn in several, none of these could know. `alike`: so many ranks
    draw the same, so they have to draw at the same moments, by what is known then."""

    def __init__(self, dataset: Any, sampler: Sampler, alike: int = 1):
        self.dataset, self.sampler, self.alike = dataset, sampler, alike

    def __iter__(self) -> Iterator[Any]:
        return map(self.dataset.__getitem__, self._numbers())

    def _numbers(self) -> Iterator[int]:
        data = sys.modules.get("torch.utils.data")
        worker = data.get_worker_info() if data is not None else None
        if worker is None:
            return iter(self.sampler)
        if worker.num_workers > 1:
            raise DilocoError(
                f"shard() in a loader with {worker.num_workers} workers: one process goes through it. Give the loader "
                "num_workers=1, or island.sampler() beside the dataset, which goes with any number"
            )
        if self.alike > 1:
            raise DilocoError(
                f"shard() in a loader's worker, and {self.alike} ranks draw the same by group=: each worker draws "
                "ahead at moments of its own, so these ranks would drift apart. Give the loader num_workers=0, or "
                "island.sampler() beside the dataset, which goes with any number"
            )
        # It was made anew, and does not know whether those before it have drawn of the step that is under way.
        return self.sampler.numbers(self.sampler.dealing.read().run_step + 1)


def shard_of(dataset: Any, sampler: Sampler, alike: int) -> Any:
    """A torch IterableDataset where there is torch."""
    if "torch" not in sys.modules:
        return Shard(dataset, sampler, alike)
    from ._torch_shard import TorchShard

    return TorchShard(dataset, sampler, alike)


def check(call: str, samples: Any, per_step: Any, ranks: int = 1) -> str | None:
    """What is wrong with them; None: nothing is."""
    data = sys.modules.get("torch.utils.data")
    passes = data is not None and isinstance(samples, data.IterableDataset)
    if passes or not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__"):
        return (
            f"{call} of a {type(samples).__name__}, which can only be gone through: samples are dealt by number, so it "
            "takes a dataset with __len__ and __getitem__. What has neither is split by island.index of island.count, "
            "which are as they were when this island attached"
        )
    if len(samples) == 0:
        return f"{call} of an empty dataset"
    if not isinstance(per_step, int) or per_step < 1:
        return f"{call}, per_step={per_step!r}: how many samples one optimizer step draws, at least 1"
    if per_step % ranks != 0:
        return f"{call}, per_step={per_step}: that many samples cannot be shared out evenly to {ranks} ranks"
    return None
