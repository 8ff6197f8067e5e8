# SPDX-License-Identifier: Apache-2.0
"""A model of Lightning's with BatchNorm, as an island:

    lightning_trainer.py --out PLACE/ISLAND/out [--islands 2] [--accumulate 2] [--save-every 40] [--buffers]

It goes on from the newest checkpoint in that folder, and leaves the model there as it is in the end.
"""

import argparse
import pathlib
import time

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from diloco.lightning import DilocoCallback

WIDTH, BATCH = 12, 16


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        linear = torch.nn.Linear
        self.layers = torch.nn.Sequential(linear(WIDTH, 20), torch.nn.BatchNorm1d(20), linear(20, WIDTH))

    def training_step(self, batch, number):
        if number == 0 and self.trainer.global_step == 0:
            print(f"first batch {batch.sum().item():.6f}", flush=True)
        return (self.layers(batch) - batch.sin()).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Together(Callback):
    """Begins when as many islands have attached, and goes slowly, so that all take part long before the run's end."""

    def __init__(self, out, islands):
        self.out, self.islands = out, islands

    def on_train_start(self, *others):
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "here").touch()
        while len(list(self.out.parent.parent.glob("*/out/here"))) < self.islands:
            time.sleep(0.05)

    def on_train_batch_end(self, *others):
        time.sleep(0.015)


class Data(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            yield torch.randn(WIDTH)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--out", required=True)
    options.add_argument("--save-every", type=int, default=0)
    options.add_argument("--islands", type=int, default=1)
    options.add_argument("--accumulate", type=int, default=1)
    options.add_argument("--buffers", action="store_true")
    a, _ = options.parse_known_args()
    out = pathlib.Path(a.out)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    callbacks = [DilocoCallback(tokens_per_step=BATCH * a.accumulate, buffers=a.buffers), Together(out, a.islands)]
    if a.save_every:
        callbacks.append(ModelCheckpoint(out, every_n_train_steps=a.save_every, save_top_k=-1, filename="{step:06d}"))
    trainer = Trainer(
        accelerator="auto", devices=1, max_epochs=-1, callbacks=callbacks, logger=False,
        enable_checkpointing=bool(a.save_every), enable_progress_bar=False, enable_model_summary=False,
        accumulate_grad_batches=a.accumulate, default_root_dir=out,
    )
    model = Model()
    last = max(out.glob("*.ckpt"), default=None)
    print(f"going on from {last.name if last else 'nothing'}", flush=True)
    trainer.fit(model, torch.utils.data.DataLoader(Data(), batch_size=BATCH), ckpt_path=last)
    out.mkdir(exist_ok=True)
    torch.save({"values": dict(model.state_dict()), "steps": trainer.global_step}, out / "end.pt")


if __name__ == "__main__":
    main()
