# SPDX-License-Identifier: Apache-2.0
"""docs/examples/titan.py without an accelerator, which torchtitan itself does not look for: what it asks one for has a
stand-in here, and nothing else. torchtitan's debug model; the options are titan.py's, and

    titan_on_cpu.py --assets FOLDER --out FILE [--islands 2] OPTIONS...

FILE.RANK gets the parameters of a rank as they are in the end. FOLDER has a tokenizer and a text.
"""

import argparse
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchtitan.tools.utils

torchtitan.tools.utils.device_type, torchtitan.tools.utils.device_module = "cpu", torch.cpu

import torchtitan.components.metrics
import torchtitan.distributed.utils
from torch.distributed.fsdp import FSDPModule
from torchtitan.models.common.attention import FlexAttention
from torchtitan.trainer import Trainer

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/examples"))

import titan


class Memory:
    """Of no device."""

    device_name = "cpu"

    def get_peak_stats(self):
        return torchtitan.components.metrics.DeviceMemStats(0.0, 0.0, 0.0, 0.0, 0, 0)

    def reset_peak_stats(self):
        pass


def attention(q, k, v, *, scale, enable_gqa, **_):
    """FlexAttention has no backward pass on the CPU. Documents are not told apart."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=enable_gqa), None


class OnCpu(Trainer):
    """gloo has no scaled sums."""

    def __init__(self, config):
        super().__init__(config)
        for module in (one for part in self.model_parts for one in part.modules()):
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)


def stand_in():
    torchtitan.components.metrics.build_device_memory_monitor = Memory
    torchtitan.distributed.utils.set_pg_timeouts = lambda **_: None
    FlexAttention._compiled_flex_attn = staticmethod(attention)
    Trainer.Config._owner = OnCpu


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--assets", required=True)
    options.add_argument("--out", required=True)
    options.add_argument("--islands", type=int, default=2)
    a, more = options.parse_known_args()
    torch.set_num_threads(1)
    stand_in()
    make_island, seen = titan.make_island, {}

    def make(trainer):
        with torch.no_grad():
            for value in (one for part in trainer.model_parts for one in part.parameters()):
                local = value.to_local() if hasattr(value, "to_local") else value
                local.copy_((local * 256).round() / 256)  # what every type can hold
        island = make_island(trainer)
        pathlib.Path(f"{a.out}.here").touch()
        while len(list(pathlib.Path(a.out).parent.glob("*.here"))) < a.islands:
            time.sleep(0.05)
        seen.update(trainer=trainer, island=island)
        finish = island.finish

        def finish_and_write():
            over = finish()
            parts = {}
            for name, value in (one for part in trainer.model_parts for one in part.named_parameters()):
                local, whole = value.detach(), tuple(value.shape)
                parts[name.replace("_checkpoint_wrapped_module.", "")] = (
                    local.full_tensor() if hasattr(local, "full_tensor") else local, whole)
            torch.save({name: value for name, (value, _) in parts.items()}, f"{a.out}.{dist.get_rank()}")
            return over

        island.finish = finish_and_write
        return island

    titan.make_island = make
    sys.argv[1:] = [
        "--module", "llama3", "--config", "llama3_debugmodel", "--hf_assets_path", a.assets,
        "--dataloader.dataset_path", f"{a.assets}/text", "--training.local_batch_size", "2", "--training.seq_len", "32",
        "--training.disable_cuda_graphs", "--validator.no_enable", *more,
    ]
    titan.main()


if __name__ == "__main__":
    main()
