# SPDX-License-Identifier: Apache-2.0
"""torchtitan as one island of a run: what `python -m torchtitan.train` does, with diloco in its loop.

    torchrun --nproc-per-node 8 titan.py --module llama3 --config llama3_8b --training.steps 20000

Options are torchtitan's, and so is what spreads the model: FSDP, HSDP, tensor parallel, pipelines, several machines.
The four lines that are diloco's are marked. --training.steps is to be the run's steps, as learning rates fall to that
end; torchtitan's step is the run's, so that these, logs and checkpoints go by it. With --checkpoint.enable a restart
goes on from the last checkpoint, of which the island is a part.
"""

import itertools

import torch.distributed as dist
from torchtitan.config import ConfigManager
from torchtitan.tools.logging import init_logger, logger
from torchtitan.trainer import Trainer

import diloco


def tokens_of_a_step(trainer: Trainer) -> int:
    """Of all ranks."""
    degree = trainer.parallel_dims.get_mesh("batch").size() if trainer.parallel_dims.dp_enabled else 1
    training = trainer.config.training
    return degree * trainer.gradient_accumulation_steps * training.local_batch_size * training.seq_len


def make_island(trainer: Trainer) -> diloco.Island:
    """Attached, and in the trainer's loop."""
    trained = [one for part in trainer.model_parts for one in part.named_parameters() if one[1].requires_grad]
    island = diloco.attach(parts=dict(trained), trainer="torchtitan")  # 1: the parameters are the run's now
    if island.steps != trainer.config.training.steps:
        logger.warning(f"the run has {island.steps} steps, and --training.steps is {trainer.config.training.steps}")
    if trainer.config.checkpoint.enable:
        trainer.checkpointer.states["island"] = island
    train_step, batches, log = trainer.train_step, trainer.batch_generator, trainer.metrics_processor.log
    tokens, losses = tokens_of_a_step(trainer), [None]

    def own_batches(loader):  # 2: the batches this island's own, where all have the same dataset
        return itertools.islice(batches(loader), island.index, None, island.count)

    def step(iterator):
        train_step(iterator)
        island.step(tokens=tokens, loss=losses[0])  # 3: after every optimizer step

    def is_to_go_on() -> bool:
        trainer.step = island.run_step
        for scheduler in trainer.lr_schedulers:
            scheduler.last_epoch = island.run_step - 1
        trainer.lr_schedulers.step()
        return not island.done

    def note(number, loss, *more, **named):
        losses[0] = loss
        log(number, loss, *more, **named)

    trainer.train_step, trainer.batch_generator, trainer.metrics_processor.log = step, own_batches, note
    trainer.should_continue_training = is_to_go_on
    return island


def main() -> None:
    init_logger()
    trainer = ConfigManager().parse_args().build()
    island = make_island(trainer)
    trainer.train()
    over = island.finish()  # 4: all islands hold the same parameters
    if not over and trainer.config.checkpoint.enable:  # asked to end: all that a restart needs, no model to publish
        trainer.checkpointer.last_save_model_only = trainer.checkpointer.last_save_in_hf = False
    trainer.checkpointer.save(island.run_step, last_step=True)
    logger.info(f"over: {over}, after step {island.run_step}")
    island.detach()
    trainer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
