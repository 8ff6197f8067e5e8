# SPDX-License-Identifier: Apache-2.0
"""A Llama of transformers, trained by its Trainer as one island of a run; with --lora only small adapters are trained
and exchanged (PEFT). Its parameters have the names and shapes of diloco-worker's, so both kinds can be islands of one
run.
"""

import argparse
import os

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from diloco.hf import DilocoCallback

CONTEXT, BATCH = 32, 4


class Windows(torch.utils.data.Dataset):
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)

    def __len__(self):
        return (len(self.data) - 1) // CONTEXT

    def __getitem__(self, at):
        tokens = self.data[at * CONTEXT : (at + 1) * CONTEXT].long()
        return {"input_ids": tokens, "labels": tokens}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--data", required=True)
    options.add_argument("--lora", action="store_true")
    options.add_argument("--out", default="/tmp/diloco-llama")
    options.add_argument("--save-every", type=int, default=0)  # steps; a restart goes on from the last checkpoint
    a, _ = options.parse_known_args()
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=96,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
    )
    if a.lora:
        torch.manual_seed(1)  # all islands build upon one base; from_pretrained() gives one that knows something
    model = LlamaForCausalLM(config)
    if a.lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    arguments = TrainingArguments(
        a.out,
        per_device_train_batch_size=BATCH,
        max_steps=10**6,  # the run's steps end it, and the learning rate goes by them
        learning_rate=3e-3,
        save_strategy="steps" if a.save_every else "no",
        save_steps=a.save_every or 500,
        report_to=[],
        logging_steps=20,
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    Trainer(
        model=model,
        args=arguments,
        train_dataset=Windows(a.data),
        callbacks=[DilocoCallback(tokens_per_step=BATCH * CONTEXT)],
    ).train(resume_from_checkpoint=get_last_checkpoint(a.out) if a.save_every and os.path.isdir(a.out) else None)


if __name__ == "__main__":
    main()
