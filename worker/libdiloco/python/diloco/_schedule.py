# SPDX-License-Identifier: Apache-2.0
"""Learning rates by the run's step: it skips on an island slower than others, and a trainer that is started again goes
on where the run is."""

from __future__ import annotations

import warnings
from typing import Any

from ._errors import DilocoError


def own_scheduler(scheduler: Any) -> Any:
    """The scheduler inside accelerate's wrapper, whose own step() goes by its number of processes."""
    return scheduler if hasattr(scheduler, "last_epoch") else getattr(scheduler, "scheduler", scheduler)


def catch_up(scheduler: Any, run_step: int) -> None:
    """Has a scheduler of torch.optim.lr_scheduler at the run's step. One that is ahead of it stays where it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the optimizer has taken no step yet
        before = None  # one that stands still has its reasons
        while scheduler.last_epoch != before and scheduler.last_epoch < run_step:
            before = scheduler.last_epoch
            scheduler.step()


class Schedule:
    """A scheduler whose step() goes to the run's step instead of one further. All else is the scheduler's own."""

    def __init__(self, scheduler: Any, island: Any):
        if not hasattr(scheduler, "last_epoch") or hasattr(scheduler, "num_bad_epochs"):
            kind = type(scheduler).__name__
            raise DilocoError(f"a {kind} goes by no count of steps, so the run's step says nothing to it")
        self.scheduler, self.island = scheduler, island
        self.step()

    def step(self) -> None:
        """After island.step()."""
        catch_up(self.scheduler, self.island.run_step)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What a checkpoint kept; then to where the run is, which may be further. Rates that are made of the one before
        go on from the checkpoint's, whatever making the scheduler upon a loaded optimizer has done to them."""
        self.scheduler.load_state_dict(state)
        for group, rate in zip(self.scheduler.optimizer.param_groups, state.get("_last_lr", [])):
            group["lr"] = rate
        self.step()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scheduler, name)
