# SPDX-License-Identifier: Apache-2.0
"""Shard as torch's loaders know such datasets."""

from __future__ import annotations

from typing import Any

from torch.utils.data import IterableDataset

from ._sampler import Shard


class TorchShard(Shard, IterableDataset[Any]):
    pass
