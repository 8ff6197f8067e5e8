# SPDX-License-Identifier: Apache-2.0
"""A callback for transformers.Trainer: `Trainer(..., callbacks=[DilocoCallback(tokens_per_step=n)])`.

Each checkpoint folder gets a file `diloco.kept`, by which `train(resume_from_checkpoint=...)` goes on where it was.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import torch
from transformers import TrainerCallback, get_scheduler

from ._schedule import catch_up, own_scheduler
from ._seeds import seed_all, seed_loader
from .island import Island, attach


log = logging.getLogger("diloco")


def _for_steps(scheduler: Any, args: Any, steps: int) -> None:
    """A schedule that transformers has made of its arguments is made again for as many steps as the run has."""
    lambdas = getattr(scheduler, "lr_lambdas", [])
    if not lambdas or any(getattr(one, "func", one).__module__ != "transformers.optimization" for one in lambdas):
        return
    stand_in = torch.optim.SGD([{"params": [torch.zeros(1)]} for _ in scheduler.base_lrs], lr=1.0)
    again = get_scheduler(
        args.lr_scheduler_type,
        optimizer=stand_in,
        num_warmup_steps=args.get_warmup_steps(steps),
        num_training_steps=steps,
        scheduler_specific_kwargs=dict(args.lr_scheduler_kwargs or {}),
    )
    if type(again) is type(scheduler):
        scheduler.lr_lambdas = again.lr_lambdas


class DilocoCallback(TrainerCallback):
    """Attaches when training begins; ends training when the run's steps are done. The trainer's global_step is the
    run's step from then on, and its max_steps the run's steps, so that learning rates, logs, evaluations and
    checkpoints go by these on every island and after every restart.

    tokens_per_step: tokens of an optimizer step, in all ranks; without it they are taken from what the trainer counts
    itself (TrainingArguments(include_num_input_tokens_seen=True)), or, last, sequences are counted instead.
    seed: what Island.seed() gets, by which the batches are this island's own, and others after each restart; True: the
    arguments' data_seed or seed; False: nothing is seeded, and islands with equal arguments draw the same batches.
    """

    def __init__(self, tokens_per_step: int | None = None, seed: int | bool = True, **options: Any):
        self.tokens_per_step, self.seed, self.options = tokens_per_step, seed, options
        self.island: Island | None = None
        self._seen = 0
        self._counts_sequences = False

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
        self._go_by_the_run(args, state, others.get("lr_scheduler"))

    def _go_by_the_run(self, args: Any, state: Any, scheduler: Any) -> None:
        island = self.island
        assert island is not None
        if state.max_steps < island.steps:
            log.warning(
                "this trainer's arguments end after %d steps, and the run has %d: set max_steps=%d, or this island "
                "ends before the run does",
                state.max_steps,
                island.steps,
                island.steps,
            )
        self._take_length(args, state, scheduler)
        state.global_step = island.run_step
        self._catch_up(scheduler)

    def _take_length(self, args: Any, state: Any, scheduler: Any) -> None:
        """Of the run as it is now: an operator may change it on the way."""
        assert self.island is not None
        steps = self.island.steps
        if state.max_steps == steps:
            return
        if scheduler is not None:
            _for_steps(own_scheduler(scheduler), args, steps)
        state.max_steps = steps

    def _catch_up(self, scheduler: Any) -> None:
        own = own_scheduler(scheduler)
        if self.island is not None and hasattr(own, "last_epoch") and not hasattr(own, "num_bad_epochs"):
            catch_up(own, self.island.run_step)

    @staticmethod
    def _do_what_was_skipped(args: Any, state: Any, control: Any, before: int) -> None:
        """Where the run's step skips those at which something is to be done, it is done at the one after them."""

        def skipped(every: Any) -> bool:
            return every >= 1 and state.global_step // int(every) > before // int(every)

        control.should_log |= args.logging_strategy == "steps" and skipped(state.logging_steps)
        control.should_evaluate |= (
            args.eval_strategy == "steps" and args.eval_delay <= state.global_step and skipped(state.eval_steps)
        )
        control.should_save |= args.save_strategy == "steps" and skipped(state.save_steps)

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
        if not self._counts_sequences:
            self._counts_sequences = True
            log.warning(
                "sequences are counted instead of tokens, so status shows these: give "
                "DilocoCallback(tokens_per_step=...), or TrainingArguments(include_num_input_tokens_seen=True)"
            )
        return int(args.train_batch_size * args.gradient_accumulation_steps * max(1, args.world_size))

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
        if self.island is None:
            return control
        loss = next((entry["loss"] for entry in reversed(state.log_history) if "loss" in entry), None)
        rates = [group["lr"] for group in getattr(others.get("optimizer"), "param_groups", [])]
        if not self.island.step(tokens=self._tokens(args, state), loss=loss, lr=float(max(rates, default=0.0))):
            control.should_training_stop = True
            control.should_save |= self.island.ending and args.save_strategy != "no"
        self._take_length(args, state, others.get("lr_scheduler"))
        before, state.global_step = state.global_step, self.island.run_step
        self._do_what_was_skipped(args, state, control, before)
        self._catch_up(others.get("lr_scheduler"))
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self.island is None:
            return
        if self.island.done:
            self.island.finish()
        self.island.detach()
