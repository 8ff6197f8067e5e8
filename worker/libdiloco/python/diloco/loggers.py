# SPDX-License-Identifier: Apache-2.0
"""An island's metrics in what draws curves: Weights & Biases, TensorBoard, MLflow, or Python's logging.

    log = diloco.loggers.wandb(island)              # tensorboard(island, "runs/paris"), mlflow(island), lines(island)
    ...
    island.step(tokens=n, loss=loss)
    log()                                           # after each step; every 30 s it writes

They are imported when they are asked for. Of ranks the first one writes.
"""

from __future__ import annotations

import importlib
import logging
import time
from typing import Any, Callable

from ._errors import DilocoError
from ._metrics import flat
from .island import Island

EVERY_S = 30.0


class Log:
    """Called after each step; gives `write` the numbers of Island.metrics() and the run's step, every `every` seconds.
    A daemon that does not answer costs nothing but a gap."""

    def __init__(self, island: Island, write: Callable[[dict[str, float], int], Any], every: float = EVERY_S):
        self.island, self.every = island, every
        self._write, self._next = write, 0.0

    def __call__(self) -> bool:
        """Whether it has written."""
        now = time.monotonic()
        if now < self._next or not self.island.leads:
            return False
        self._next = now + self.every
        try:
            numbers = flat(self.island.metrics())
        except DilocoError as error:
            logging.getLogger("diloco").debug("%s", error)
            return False
        self._write(numbers, self.island.run_step)
        return True


def _module(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DilocoError(f"{name} is not installed here: pip install {package} ({error})") from None


def wandb(island: Island, run: Any = None, every: float = EVERY_S) -> Log:
    """run: of wandb.init(); None: the one that is under way."""
    module: Any = _module("wandb", "wandb") if run is None else None

    def write(numbers: dict[str, float], step: int) -> None:
        to = run if run is not None else module.run
        if to is None:
            raise DilocoError("wandb.init() was not called: there is no run to write to")
        to.log(numbers | {"diloco/run_step": step})

    return Log(island, write, every)


def tensorboard(island: Island, to: Any, every: float = EVERY_S) -> Log:
    """to: a SummaryWriter, or the folder for one."""
    writer = to
    if not hasattr(to, "add_scalar"):
        writer = _module("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(to))

    def write(numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)

    return Log(island, write, every)


def mlflow(island: Island, every: float = EVERY_S) -> Log:
    """To the run that is under way there."""
    module = _module("mlflow", "mlflow")
    return Log(island, lambda numbers, step: module.log_metrics(numbers, step=step), every)


def lines(island: Island, to: logging.Logger | None = None, every: float = EVERY_S) -> Log:
    """A line of Python's logging each time; to: default, the logger "diloco"."""
    logger = to if to is not None else logging.getLogger("diloco")

    def write(numbers: dict[str, float], step: int) -> None:
        logger.info("step %d: %s", step, ", ".join(f"{name} {value:g}" for name, value in sorted(numbers.items())))

    return Log(island, write, every)
