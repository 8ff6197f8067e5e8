"""A callback for transformers.Trainer: `Trainer(..., callbacks=[DilocoCallback(tokens_per_step=n)])`."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from .island import Island, attach


class DilocoCallback(TrainerCallback):
    """Attaches when training begins; ends training when the run's steps are done.

    tokens_per_step: tokens of an optimizer step, in all ranks; without it they are taken from what the trainer counts
    itself (TrainingArguments(include_num_input_tokens_seen=True)), or, last, sequences are counted instead.
    """

    def __init__(self, tokens_per_step: int | None = None, **options: Any):
        self.tokens_per_step, self.options = tokens_per_step, options
        self.island: Island | None = None
        self._seen = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        self.options.setdefault("trainer", "transformers")
        self.island = attach(model, **self.options)
        self._seen = int(getattr(state, "num_input_tokens_seen", 0) or 0)

    def _tokens(self, args: Any, state: Any) -> int:
        if self.tokens_per_step is not None:
            return self.tokens_per_step
        seen = int(getattr(state, "num_input_tokens_seen", 0) or 0)
        if seen > self._seen:
            tokens, self._seen = seen - self._seen, seen
            return tokens
        return int(args.train_batch_size * args.gradient_accumulation_steps * max(1, args.world_size))

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
        loss = next((entry["loss"] for entry in reversed(state.log_history) if "loss" in entry), None)
        if self.island is not None and not self.island.step(tokens=self._tokens(args, state), loss=loss):
            control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self.island is None:
            return
        if self.island.done:
            self.island.finish()
        self.island.detach()
