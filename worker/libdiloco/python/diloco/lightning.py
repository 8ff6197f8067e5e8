# SPDX-License-Identifier: Apache-2.0
"""A callback for Lightning: `Trainer(..., callbacks=[DilocoCallback(tokens_per_step=n)])`.

Lightning's checkpoints keep what the island needs, so that `fit(..., ckpt_path=...)` goes on where it was.
"""

from __future__ import annotations

import os
from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from ._schedule import catch_up
from ._seeds import seed_all, seed_loader
from .island import Island, attach


class DilocoCallback(Callback):
    """Attaches when training begins; ends training when the run's steps are done. With one optimizer the trainer's
    global_step is the run's step from then on, and its max_steps the run's steps; learning rates that go by steps go by
    the run's.

    tokens_per_step: tokens, or samples where there are none, of an optimizer step, in all ranks.
    seed: what Island.seed() gets, by which the batches are this island's own, and others after each restart; True: that
    of seed_everything(); False: nothing is seeded, and islands with equal seeds draw the same batches.
    """

    def __init__(self, tokens_per_step: int, seed: int | bool = True, **options: Any):
        self.tokens_per_step, self.seed, self.options = tokens_per_step, seed, options
        self.island: Island | None = None
        self._steps = 0
        self._state: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        if self.island is None or not self.island.held:
            return {}
        return {"kept": self.island._tensors.saved(self.island.kept()), "run_step": self.island.run_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._state = state_dict or None

    @staticmethod
    def _draw_anew(trainer: Any, number: int) -> None:
        """The iterator is there by now; where it has drawn batches in advance, it begins again."""
        seed_all(number)
        loop = trainer.fit_loop
        loaders = getattr(getattr(loop, "_combined_loader", None), "flattened", [])
        for loader in loaders:
            seed_loader(loader, number)
        fetcher = getattr(loop, "_data_fetcher", None)
        ahead = bool(getattr(fetcher, "batches", None)) or any(getattr(one, "num_workers", 0) for one in loaders)
        if fetcher is not None and ahead and not any(hasattr(one, "load_state_dict") for one in loaders):
            if hasattr(fetcher, "batches"):
                fetcher.batches = []
            iter(fetcher)

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self.options.setdefault("trainer", "lightning")
        options: dict[str, Any] = {"state": self._state} | self.options
        self.island = attach(module, **options)
        if self.seed is not False:
            own = int(os.environ.get("PL_GLOBAL_SEED", 0))
            self._draw_anew(trainer, self.island.seed(own if self.seed is True else self.seed))
        self._state = None
        trainer.fit_loop.epoch_loop.max_steps = self.island.steps
        self._go_by_the_run(trainer, self.island.run_step)
        self._steps = trainer.global_step

    def _go_by_the_run(self, trainer: Any, step: int) -> None:
        """Steps are counted, and learning rates go on, up to where the run is."""
        if self.island is None:
            return
        loop = trainer.fit_loop.epoch_loop
        if len(trainer.optimizers) == 1:
            if trainer.lightning_module.automatic_optimization:
                loop.automatic_optimization.optim_progress.optimizer.step.total.completed = step
            else:
                loop.manual_optimization.optim_step_progress.total.completed = step
        for config in trainer.lr_scheduler_configs:
            if config.interval == "step" and not config.reduce_on_plateau:
                catch_up(config.scheduler, self.island.run_step // config.frequency)

    @staticmethod
    def _stop_for_checkpoints(trainer: Any, before: int, step: int) -> int:
        """Where the run's step skips one at which a checkpoint is due, that one is counted first, and the rest with the
        next step."""
        every = [getattr(one, "_every_n_train_steps", 0) for one in trainer.checkpoint_callbacks]
        due = [step // n * n for n in every if n >= 1 and step // n > before // n]
        return max(due, default=step)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.island is None or trainer.global_step == self._steps:  # gradients are still being accumulated
            return
        before, self._steps = self._steps, trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
        if not self.island.step(tokens=self.tokens_per_step, loss=loss, lr=float(max(rates, default=0.0))):
            trainer.should_stop = True
        trainer.fit_loop.epoch_loop.max_steps = self.island.steps
        self._go_by_the_run(trainer, self._stop_for_checkpoints(trainer, before, self.island.run_step))
        self._steps = trainer.global_step

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """On a SIGTERM Lightning's own handler ends training with one: what is trained is contributed."""
        if self.island is None or not self.island.held or type(exception).__name__ != "SIGTERMException":
            return
        self.island.end_soon()
        self.island.finish()
        self.island.detach()

    def on_train_end(self, trainer: Any, module: Any) -> None:
        if self.island is None:
            return
        if self.island.done:
            self.island.finish()
        self.island.detach()
