# SPDX-License-Identifier: Apache-2.0
"""An island's own randomness in a trainer that has seeded its generators, and its samplers, before it attached."""

from __future__ import annotations

import random
import sys
from typing import Any

_DEPTH = 64  # samplers in samplers


def seed_all(number: int) -> None:
    """What draws without a generator of its own, in this process."""
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(number)


def seed_loader(loader: Any, number: int) -> None:
    """The samplers of a DataLoader, of accelerate's and of distributed ones: from their next iterator on."""
    seen: set[int] = set()
    left = [loader]
    while left and len(seen) < _DEPTH:
        item = left.pop()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        generator = getattr(item, "generator", None)
        if generator is not None and hasattr(generator, "manual_seed"):
            generator.manual_seed(number)
        for name in ("initial_seed", "seed"):
            if type(getattr(item, name, None)) is int:
                setattr(item, name, number)
        left += [getattr(item, name, None) for name in ("sampler", "batch_sampler", "base_dataloader")]
