# SPDX-License-Identifier: Apache-2.0
"""A callback for transformers.Trainer: `Trainer(..., callbacks=[DilocoCallback(tokens_per_step=n)])`.

Each checkpoint folder gets a file `diloco.kept`, by which `train(resume_from_checkpoint=...)` goes on where it was.
"""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from ._seeds import seed_all, seed_loader
from .island import Island, attach


class DilocoCallback(TrainerCallback):
    """Attaches when training begins; ends training when the run's steps are done.

    tokens_per_step: tokens of an optimizer step, in all ranks; without it they are taken from what the trainer counts
    itself (TrainingArguments(include_num_input_tokens_seen=True)), or, last, sequences are counted instead.
    seed: what Island.seed() gets, by which the batches are this island's own, and others after each restart; True: the
    arguments' data_seed or seed; False: nothing is seeded, and islands with equal arguments draw the same batches.
    """

    def __init__(self, tokens_per_step: int | None = None, seed: int | bool = True, **options: Any):
        self.tokens_per_step, self.seed, self.options = tokens_per_step, seed, options
        self.island: Island | None = None
        self._seen = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        self.options.setdefault("trainer", "transformers")
        options: dict[str, Any] = {"state": self._kept(args, state)} | self.options
        self.island = attach(model, **options)
        if self.seed is not False:
            own = args.data_seed if getattr(args, "data_seed", None) is not None else args.seed
            number = self.island.seed(own if self.seed is True else self.seed)
            seed_all(number)
            seed_loader(others.get("train_dataloader"), number)
        self._seen = int(getattr(state, "num_input_tokens_seen", 0) or 0)

    @staticmethod
    def _path(args: Any, state: Any) -> str:
        return os.path.join(args.output_dir, f"checkpoint-{state.global_step}", "diloco.kept")

    def _kept(self, args: Any, state: Any) -> dict[str, Any] | None:
        """Of the checkpoint that training goes on from: it is the one of as many steps."""
        path = self._path(args, state)
        if not state.global_step or not os.path.exists(path):
            return None
        with open(path, "rb") as file:
            return {"kept": file.read()}

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self.island is None or not self.island.held:
            return
        kept = self.island.kept()  # every rank asks, the first one gets it
        if not kept:
            return
        path = self._path(args, state)
        with open(path + ".part", "wb") as file:
            file.write(kept)
        os.replace(path + ".part", path)

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
