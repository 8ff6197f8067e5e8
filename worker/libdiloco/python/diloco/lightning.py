# SPDX-License-Identifier: Apache-2.0
"""A callback for Lightning: `Trainer(..., callbacks=[DilocoCallback(tokens_per_step=n)])`.

Lightning's checkpoints keep what the island needs, so that `fit(..., ckpt_path=...)` goes on where it was.
"""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from .island import Island, attach


class DilocoCallback(Callback):
    """Attaches when training begins; ends training when the run's steps are done.

    tokens_per_step: tokens, or samples where there are none, of an optimizer step, in all ranks.
    """

    def __init__(self, tokens_per_step: int, **options: Any):
        self.tokens_per_step, self.options = tokens_per_step, options
        self.island: Island | None = None
        self._steps = 0
        self._state: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        return self.island.state_dict() if self.island is not None and self.island.held else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._state = state_dict or None

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self.options.setdefault("trainer", "lightning")
        options: dict[str, Any] = {"state": self._state} | self.options
        self.island = attach(module, **options)
        self._state = None
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
