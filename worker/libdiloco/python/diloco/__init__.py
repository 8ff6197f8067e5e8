# SPDX-License-Identifier: Apache-2.0
"""Train one model in several places: attach a training loop to a diloco island.

    island = diloco.attach(model)                    # the parameters are the run's now
    torch.manual_seed(island.seed())                 # and the batches this island's own
    while training:
        ...
        optimizer.step()
        if not island.step(tokens=n, loss=loss):     # after each optimizer step
            break
    island.finish()                                  # all islands hold the same parameters
"""

from ._errors import DilocoError, Interrupted, Refused, Unreachable
from . import loggers
from .island import Island, attach, schedule

__all__ = ["DilocoError", "Interrupted", "Island", "Refused", "Unreachable", "attach", "loggers", "schedule"]
__version__ = "0.2.0"
