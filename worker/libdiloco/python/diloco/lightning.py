"""A callback for Lightning: `Trainer(..., callbacks=[DilocoCallback(tokens_per_step=n)])`."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from .island import Island, attach


class DilocoCallback(Callback):
    """Attaches when training begins; ends training when the run's steps are done."""

    def __init__(self, tokens_per_step: int, **options: Any):
        self.tokens_per_step, self.options = tokens_per_step, options
        self.island: Island | None = None
        self._steps = 0

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self.options.setdefault("trainer", "lightning")
        self.island = attach(module, **self.options)
        self._steps = trainer.global_step

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.island is None or trainer.global_step == self._steps:  # gradients are still being accumulated
            return
        self._steps = trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if not self.island.step(tokens=self.tokens_per_step, loss=loss):
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, module: Any) -> None:
        if self.island is None:
            return
        if self.island.done:
            self.island.finish()
        self.island.detach()
