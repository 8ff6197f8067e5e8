# SPDX-License-Identifier: Apache-2.0
"""What the exchange does to tensors on a GPU, by the same code on the CPU, and on a GPU where there is one."""

import itertools
import math
import random
import struct
import time
import unittest

import torch

from islands import Run, anchor_of, main

import diloco
from diloco import _abi, _moves
from diloco._moves import Moves, pieces
from diloco._torch import TYPES, Module

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
COUNTED, MISSED, OUT, OFF = _abi.ASIDE_COUNTED, _abi.ASIDE_MISSED, _abi.ASIDE_OUT, _abi.ASIDE_OFF
SPEC = """[run]
name = moves
steps = {steps}
[sync]
interval = 10
layers_per_fragment = 1
late = merge
"""


def single(value):
    """As fp32 holds it."""
    return struct.unpack("f", struct.pack("f", value))[0]


def by_hand(kind, rule, live, base, host, aside, past, bad):
    """What becomes of (live, aside, past), value by value, as diloco.h and aside.h say."""
    keep, fresh, past_share, decay, eager = rule

    def ahead(moved):
        return fresh * moved - past_share * past if eager and math.isfinite(moved) else 0

    if kind == _abi.WRITE:
        return host, aside, past
    if kind == _abi.MIX:
        return keep * live + (1 - keep) * host, aside, past
    if kind == _abi.SHIFT:
        return live + host - base, aside, past
    if kind == OUT:
        moved = live - base
        kept = keep * moved if keep > 0 else 0
        return base + kept + ahead(moved), moved - kept, past
    if kind == OFF:
        return live - ahead(aside) + (0 if bad else aside), aside, past
    live -= ahead(aside)
    if kind == MISSED:
        return live + host - base + aside, aside, past
    return live + (1 - keep) * (host - base), aside, decay * past - aside


class Kinds(unittest.TestCase):
    ROWS, COLUMNS, STRIDE, FIRST, BESIDE = 5, 7, 11, 3, 2
    COUNT = ROWS * COLUMNS

    def setUp(self):
        self.piece, _moves.PIECE = _moves.PIECE, 10  # so that one move is several

    def tearDown(self):
        _moves.PIECE = self.piece

    def beside(self, moves, values):
        address = moves.struct.alloc(None, self.BESIDE + self.COUNT)
        self.assertNotIn(address, (0, None))
        memory = moves.beside[address]
        self.assertEqual(memory.abs().max().item(), 0)
        memory[self.BESIDE :] = torch.tensor(values)
        return address

    def one(self, kind, dtype, device, rule, wrong=None, bad=0):
        """A move of values drawn at random, and what is to become of each."""
        draw = random.Random(f"{kind} {dtype} {rule}")
        live, carry, base, host, aside, past = (
            [single(draw.uniform(-2, 2)) * scale for _ in range(self.COUNT)] for scale in (1, 1e-4, 1, 1, 1, 1)
        )
        if wrong is not None:
            (aside if kind in (COUNTED, MISSED, OFF) else live)[4] = wrong
        tensor = torch.zeros(self.FIRST + self.COUNT, dtype=dtype, device=device)
        tensor[self.FIRST :] = torch.tensor(live)
        live = tensor[self.FIRST :].float().tolist()
        moves = Moves([tensor])
        memory = torch.full((2, self.ROWS, self.STRIDE), 1e9)
        memory[0, :, : self.COLUMNS] = torch.tensor(host).view(self.ROWS, -1)
        memory[1, :, : self.COLUMNS] = torch.tensor(base).view(self.ROWS, -1)
        narrow = dtype != torch.float32
        addresses = {"aside": self.beside(moves, aside)}
        if rule[4]:
            addresses["past"] = self.beside(moves, past)
        if narrow:
            addresses["carry"] = self.beside(moves, carry)
        if kind in (OFF,):
            addresses["bad"] = self.beside(moves, [0.0] * self.COUNT)
            moves.beside[addresses["bad"]].view(torch.int32)[0] = bad
        move = _abi.sized(
            _abi.Move, kind=kind, type=TYPES[dtype], tensor=1, first=self.FIRST, beside=self.BESIDE,
            host=memory[0].data_ptr(), base=memory[1].data_ptr(), rows=self.ROWS, columns=self.COLUMNS,
            stride=self.STRIDE, keep=rule[0], fresh=rule[1], past_share=rule[2], decay=rule[3], **addresses,
        )
        moves._do(move)
        mark = moves.struct.mark(None)
        while not moves.struct.reached(None, mark):
            pass
        full = [value + (carry[i] if narrow else 0) for i, value in enumerate(live)]
        got = {name: moves.beside[address][self.BESIDE :].tolist() for name, address in addresses.items()}
        got["live"] = tensor[self.FIRST :].float().tolist()
        self.assertEqual(tensor[: self.FIRST].abs().sum().item(), 0)
        return full, base, host, aside, past, memory, got, addresses, moves

    def near(self, got, want, what):
        if not math.isfinite(want):
            self.assertFalse(math.isfinite(got), what)
        else:
            self.assertLess(abs(got - want), 3e-6, what)

    def test_each_kind_of_each_type_is_what_the_interface_says(self):
        rules = [(0.25, 0, 0, 0, False), (0, 0, 0, 0, False), (0, 0.7, 0.4, 0.9, True)]
        kinds = [_abi.WRITE, _abi.MIX, _abi.SHIFT, OUT, COUNTED, MISSED, OFF]
        cases = itertools.product(kinds, TYPES, DEVICES, rules, (None, math.inf, math.nan), (0, 1))
        for kind, dtype, device, rule, wrong, bad in cases:
            if (kind == _abi.MIX and rule[0] == 0) or (bad and kind != OFF):
                continue
            with self.subTest(f"{kind} {dtype} {device} {rule} {wrong} {bad}"):
                full, base, host, aside, past, memory, got, _, _ = self.one(kind, dtype, device, rule, wrong, bad)
                for i in range(self.COUNT):
                    want = by_hand(kind, rule, full[i], base[i], host[i], aside[i], past[i], bad)
                    rest = got["carry"][i] if "carry" in got else 0
                    self.near(got["live"][i] + rest, want[0], f"value {i}")
                    if dtype != torch.float32:
                        self.assertTrue(math.isfinite(rest))
                        self.assertEqual(torch.tensor(got["live"][i] + rest).to(dtype).float().item() if rest
                                         else got["live"][i], got["live"][i]) if math.isfinite(want[0]) else None
                    self.near(got["aside"][i], want[1], f"aside {i}")
                    if rule[4]:
                        self.near(got["past"][i], want[2], f"past {i}")
                self.assertEqual((memory == 1e9).sum().item(), 2 * self.ROWS * (self.STRIDE - self.COLUMNS))

    def test_what_is_read_is_what_the_tensor_stands_for(self):
        for dtype, device in itertools.product(TYPES, DEVICES):
            with self.subTest(f"{dtype} {device}"):
                full, _, _, aside, _, memory, got, addresses, moves = self.one(_abi.READ, dtype, device, (0,) * 5)
                for i, value in enumerate(memory[0, :, : self.COLUMNS].flatten().tolist()):
                    self.near(value, full[i], f"value {i}")
                moves._do(_abi.sized(
                    _abi.Move, kind=_abi.READ, tensor=addresses["aside"], first=self.BESIDE, rows=1,
                    columns=self.COUNT, stride=self.COUNT, host=memory[1].data_ptr(),
                ))
                mark = moves.struct.mark(None)
                while not moves.struct.reached(None, mark):
                    pass
                self.assertEqual(memory[1].flatten()[: self.COUNT].tolist(), got["aside"])

    def test_what_is_not_finite_is_found(self):
        for device, wrong in itertools.product(DEVICES, (0.0, math.nan, -math.inf)):
            moves = Moves([torch.zeros(1, device=device)])
            aside = self.beside(moves, [0.0] * (self.COUNT - 1) + [wrong])
            bad = moves.struct.alloc(None, 1)
            moves._do(_abi.sized(_abi.Move, kind=_abi.ASIDE_LOOK, tensor=1, aside=aside, bad=bad, beside=self.BESIDE,
                                 rows=1, columns=self.COUNT, stride=self.COUNT))
            self.assertEqual(moves.beside[bad].view(torch.int32).item(), 0 if wrong == 0 else 1)
            moves.struct.free(None, bad)
            self.assertNotIn(bad, moves.beside)

    def test_pieces_are_the_whole_in_order(self):
        for rows, columns, most in itertools.product((1, 2, 5), (1, 3, 8), (1, 2, 3, 7, 8, 100)):
            got = []
            for row, column, some, wide in pieces(rows, columns, most):
                self.assertLessEqual(some * wide, most)
                self.assertTrue(some == 1 or wide == columns)
                got += [(row + r) * columns + column + c for r in range(some) for c in range(wide)]
            self.assertEqual(got, list(range(rows * columns)))

    def test_without_memory_the_device_says_so(self):
        moves = Moves([torch.zeros(1)])
        self.assertIsNone(moves.struct.alloc(None, 1 << 60))
        self.assertIsNotNone(moves.failure)


class Slow(Moves):
    """Has done nothing before `after` further steps are taken. It counts what it is told, and how often it is asked."""

    after = 3

    def __init__(self, values):
        self.steps, self.moves, self.asked, self.when, self.ending = 0, [], 0, {}, False
        super().__init__(values)

    def _move(self, user, move):
        self.moves.append((self.steps, move.contents.kind, move.contents.tensor))
        return super()._move(user, move)

    def _mark(self, user):
        mark = super()._mark(user)
        self.when[mark] = self.steps
        return mark

    def _reached(self, user, mark):
        self.asked += 1
        if self.asked > 1000 and not self.ending:
            self.failure = AssertionError("a step waits for the device")  # nothing is raised through C
            return -1
        if self.steps - self.when[mark] < self.after and not self.ending:
            return 0
        return super()._reached(user, mark)


class Islands(unittest.TestCase):
    """Training whose end is known, on real islands."""

    def train(self, sync, dtype, device, steps=150, width=64):
        with Run(SPEC.format(steps=steps) + sync) as run:
            paris = run.found("paris", "")
            torch.manual_seed(1)
            model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(2)))
            model.to(device, dtype)
            tensors = Module(model, as_device=True)
            tensors._moves = Slow([param.local for param in tensors.params])
            tensors.device = tensors._moves.struct
            goal = torch.randn(width, width, device=device)
            slow = tensors._moves
            slow.ending = True  # before training: the beginning is waited for
            options = dict(socket=paris.socket(), trainer="moves", wait=20, kept=None, group=None)
            with diloco.Island(tensors, **options) as island:
                slow.ending, begun = False, len(slow.moves)
                while not island.done:
                    with torch.no_grad():
                        for layer in model:
                            layer.weight += (0.05 * (goal - layer.weight.float())).to(dtype)
                    slow.steps, slow.asked = slow.steps + 1, 0
                    island.step(tokens=7)
                    time.sleep(0.005)  # for the daemon to have rounds
                told = slow.moves[begun:]
                slow.ending = True
                self.assertTrue(island.finish())
            self.assertEqual(slow.beside, {})
            paris.await_finished()
            for name, anchor in anchor_of(paris).items():
                self.assertTrue(torch.equal(model.get_parameter(name).detach().cpu(), anchor.cpu().to(dtype)), name)
            self.assertEqual(paris.trainer()["tokens_counted"], 7 * steps)
            return told, [goal.cpu() - model[i].weight.detach().float().cpu() for i in range(2)]

    def test_no_step_waits_for_the_device_and_few_moves_are_made(self):
        ways = {
            "overlap = 3\nmix = 0.5\n": {_abi.READ, _abi.MIX},
            "overlap = 10\n": {_abi.READ, OUT, COUNTED},
            "overlap = 10\nmix = 0\neager = yes\n": {_abi.READ, OUT, COUNTED},
        }
        for (sync, kinds), dtype, device in itertools.product(ways.items(), TYPES, DEVICES):
            with self.subTest(f"{sync} {dtype} {device}"):
                told, missing = self.train(sync, dtype, device)
                self.assertTrue({kind for _, kind, _ in told} <= kinds | {_abi.WRITE, _abi.SHIFT, MISSED}, told)
                self.assertTrue(kinds <= {kind for _, kind, _ in told})
                for step in {step for step, _, _ in told}:
                    for tensor in (1, 2):
                        at = [kind for s, kind, number in told if (s, number) == (step, tensor)]
                        self.assertLessEqual(len(at), 4, f"step {step}, tensor {tensor}: {at}")
                for rest in missing:
                    self.assertLess(rest.abs().mean().item(), 0.3)

    def test_of_a_large_tensor_each_move_is_one(self):
        told, _ = self.train("overlap = 3\nmix = 0.5\n", torch.bfloat16, "cpu", steps=20, width=2048)  # of 4 Mi values
        self.assertTrue({_abi.READ, _abi.MIX} <= {kind for _, kind, _ in told})
        self.assertEqual(len(told), len(set(told)))


if __name__ == "__main__":
    main()
