# SPDX-License-Identifier: Apache-2.0
"""The training loop that attached.py and nodes.py time: docs/examples/gpt.py, larger, on one thread."""

import time

import torch
import torch.nn.functional as F

import gpt

INTERVAL = 30  # the run spec's own default
BEGIN = 5  # of a piece, in steps after a fragment was due: by then its round is over
WARM_STEPS = 5
SIZE, BATCH = gpt.Size(width=192, layers=6, heads=6, context=128), 4
TOKENS = BATCH * SIZE.context  # a step


class GptLoop:
    """spread(model): does with it what is to be done before its optimizer is made."""

    def __init__(self, path, seed, spread=lambda model: None):
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.data = gpt.text(path)
        self.windows = range(0, len(self.data) - SIZE.context - 1, SIZE.context)
        self.generator = torch.Generator().manual_seed(seed)
        self.model = gpt.GPT(SIZE)
        spread(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)

    def step(self, island):
        """Seconds of one step, and of them in island.step(); None: not attached."""
        begin = time.perf_counter()
        tokens, targets = gpt.draw(self.data, self.windows, BATCH, self.generator)
        loss = F.cross_entropy(self.model(tokens).flatten(0, 1), targets.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        middle = time.perf_counter()
        if island is not None:
            island.step(tokens=TOKENS, loss=loss)
        else:
            loss.item()  # as a loop that shows it does
        end = time.perf_counter()
        return end - begin, end - middle
