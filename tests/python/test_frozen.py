# SPDX-License-Identifier: Apache-2.0
"""What is trained upon and not trained: its sums, alone and in ranks, and real islands that build upon the same base,
or upon another one."""

import json
import subprocess
import sys
import threading
import time
import unittest

import torch
from torch import nn

from islands import PATIENCE_S, Run, main

import diloco
from diloco._frozen import frozen_of, sum_of
from diloco._torch import Module

SPEC = """[run]
name = frozen
steps = 60
[sync]
interval = 10
layers_per_fragment = 1
late = merge
"""
MOST = 2**64


class Adapted(nn.Module):
    """A layer that is not trained, with an adapter beside it that is."""

    def __init__(self, seed=1, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(seed)
        self.base = nn.Sequential(nn.Linear(24, 40), nn.Linear(40, 16)).to(dtype).requires_grad_(False)
        self.down, self.up = nn.Linear(24, 4, bias=False), nn.Linear(4, 16, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x.to(self.base[0].weight.dtype)).to(x.dtype) + self.up(self.down(x))


def frozen(model, group=None):
    tensors = Module(model, group)
    tensors.open()
    tensors.close()
    return [(one.name, one.type, one.shape, one.sum) for one in tensors.frozen]


class Sums(unittest.TestCase):
    def test_parts_add_up_to_the_whole_wherever_it_is_cut(self):
        torch.manual_seed(1)
        for rows, columns, cut, across in ((97, 33, 40, 10), (1, 5000, 0, 4999), (5000, 1, 4999, 0), (3, 900001, 1, 7)):
            values = torch.randn(rows, columns)
            whole = sum_of(values)
            parts = sum_of(values[:cut]) + sum_of(values[cut:, :across], cut)
            parts += sum_of(values[cut:, across:], cut, across)
            self.assertEqual(parts % MOST, whole % MOST)

    def test_what_is_in_other_places_has_another_sum(self):
        torch.manual_seed(1)
        values = torch.randn(64, 48)
        values[5, 5] = 0.0
        seen = {sum_of(values) % MOST}
        for number in range(64 * 48):  # each value, by its last bit
            other = values.clone()
            other.view(torch.int32).view(-1)[number] ^= 1
            seen.add(sum_of(other) % MOST)
        for a, b in ((0, 1), (3, 60)):
            for rows in (True, False):
                order = list(range(64 if rows else 48))
                b = min(b, len(order) - 1)
                order[a], order[b] = order[b], order[a]
                seen.add(sum_of(values[order] if rows else values[:, order]) % MOST)
        seen.add(sum_of(-values) % MOST)
        seen.add(sum_of(values.view(48, 64)) % MOST)
        seen.add(sum_of(values.t().contiguous()) % MOST)
        self.assertEqual(len(seen), 1 + 64 * 48 + 4 + 3)

    def test_values_of_all_types_and_shapes_are_looked_at(self):
        shapes = ((), (7,), (4, 5), (3, 4, 5), (0, 4), (2, 1, 3, 1, 2, 1, 2))
        types = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.uint8, torch.int64,
                 torch.bool, torch.complex64, torch.float8_e4m3fn)
        for dtype in types:
            for shape in shapes:
                value = torch.ones(shape).to(dtype)
                (one,) = frozen_of([("it", value)], None, None)
                self.assertEqual((one.name, one.type), ("it", str(dtype)[6:]))
                self.assertNotEqual(one.sum, 0)
                if value.numel() > 0:
                    value.view(-1)[-1] = 0
                    (other,) = frozen_of([("it", value)], None, None)
                    self.assertNotEqual(one.sum, other.sum, (dtype, shape))
                self.assertLessEqual(one.as_struct().dims, 6)

    def test_values_that_are_elsewhere_are_said_not_to_be_known(self):
        for value in (torch.empty(4, device="meta"), torch.ones(4).to_sparse(), torch.ones(4, dtype=torch.complex128)):
            self.assertEqual(frozen_of([("it", value)], None, None)[0].sum, 0)

    def test_threads_are_as_many_afterwards_as_before(self):
        threads = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, threads)
        torch.set_num_threads(threads + 1)
        frozen(Adapted())
        with self.assertRaises(AttributeError):
            frozen_of([("it", torch.ones(4)), ("no tensor", None)], None, None)
        self.assertEqual(torch.get_num_threads(), threads + 1)

    def test_only_what_is_not_trained_is_frozen_and_tied_ones_once(self):
        model = Adapted()
        model.again = model.base[0]
        names = [name for name, *_ in frozen(model)]
        self.assertEqual(names, ["base.0.weight", "base.0.bias", "base.1.weight", "base.1.bias"])
        self.assertEqual(frozen({"w": nn.Parameter(torch.ones(3))}), [])
        self.assertEqual(frozen(nn.Linear(2, 2)), [])

    def test_ranks_that_have_parts_say_the_same(self):
        alone = frozen(Adapted())
        for how in ("copies", "parts"):
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=3"]
            command += [__file__, how]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
            said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[[")]
            self.assertEqual(len(said), 3, done.stderr[-2000:])
            for one in said:
                self.assertEqual([(name, kind, tuple(shape), total) for name, kind, shape, total in one], alone, how)


def rank(how):
    """One of several, which hold copies of the model, or parts of it."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = Adapted()
    if how == "parts":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    sys.stdout.write(json.dumps(frozen(model, dist.group.WORLD)) + "\n")  # at once: others write there too
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


def train(model, island, until=10**9):
    optimizer = torch.optim.SGD([value for value in model.parameters() if value.requires_grad], lr=0.05)
    torch.manual_seed(island.seed())
    while not island.done and island.run_step < until:
        x = torch.randn(8, 24)
        loss = (model(x) - x[:, :16]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        island.step(tokens=8, loss=loss)
        time.sleep(0.003)


class Islands(unittest.TestCase):
    def test_another_base_is_refused_by_name(self):
        with Run(SPEC) as run:
            paris = run.found("paris", "")
            with diloco.attach(Adapted(), socket=paris.socket()) as first:
                oslo, other = run.join("oslo", ""), Adapted()
                with torch.no_grad():
                    other.base[1].weight[3, 5] += 1e-6
                why = r"another base than the run: base\.1\.weight has other values; load the same one.* \[worker\] "
                with self.assertRaisesRegex(diloco.Refused, why + "allow_other_base = yes"):
                    diloco.attach(other, socket=oslo.socket())
                with self.assertRaisesRegex(diloco.Refused, r"base\.0\.bias is bfloat16 .40., the run has float32"):
                    diloco.attach(Adapted(dtype=torch.bfloat16), socket=oslo.socket())
                with diloco.attach(Adapted(), socket=oslo.socket()) as second:  # the same one may come still
                    self.assertEqual(oslo.trainer()["other_base"], "")
                    second._loose = first._loose = False

    def test_where_it_is_allowed_another_base_is_trained_upon_and_shown(self):
        with Run(SPEC) as run:
            paris = run.found("paris", "")
            model, coarse = Adapted(), Adapted(dtype=torch.bfloat16)
            first = diloco.attach(model, socket=paris.socket())
            oslo = run.join("oslo", "", "--allow-other-base")
            conf = (oslo.home / "dilocod.conf").read_text()
            self.assertRegex(conf, r"(?m)^allow_other_base = yes$")
            self.assertNotIn("allow_other_base", (paris.home / "dilocod.conf").read_text())
            second = diloco.attach(coarse, socket=oslo.socket())
            self.assertRegex(oslo.trainer()["other_base"], r"base\.0\.bias is bfloat16 .40., the run has float32 ")
            said = oslo.ctl("status", check=False)
            self.assertRegex(" ".join(said.split()), r"base another than the run's, as allow_other_base lets it: base")
            while not (first.done and second.done):
                train(model, first, first.run_step + 1)
                train(coarse, second, second.run_step + 1)
            ending = threading.Thread(target=first.finish)
            ending.start()
            second.finish()
            ending.join()
            self.assertTrue(torch.equal(model.up.weight, coarse.up.weight))
            self.assertGreater(float(model.up.weight.detach().abs().max()), 0)
            first.detach()
            second.detach()
            self.assertEqual(paris.anchors(), oslo.anchors())


if __name__ == "__main__":
    if sys.argv[1:2] in (["copies"], ["parts"]):
        rank(sys.argv[1])
    else:
        main()
