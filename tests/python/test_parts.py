# SPDX-License-Identifier: Apache-2.0
"""diloco.attach(parts=): what is refused, by name; and a checkpoint of parts."""

import unittest
from functools import partial

import torch

from beside import PARTS, SPEC, BesideOne, alone, ranks
from islands import Run, main

import diloco
from diloco._parts import _read, holders


def said(*of_ranks):
    return [{name: (shape, part, "torch.float32") for name, (shape, part) in one.items()} for one in of_ranks]


class Refused(unittest.TestCase):
    def refuses(self, words, call):
        with self.assertRaisesRegex(diloco.DilocoError, words):
            call()

    def test_entries_that_are_none(self):
        good = (torch.zeros(6), (4, 3), 0, 3, 0, 6)
        self.assertEqual(_read("w", good)[1:], ((4, 3), (0, 3, 0, 6)))
        for given, words in (
            (good[:5], r"parts: w is no tensor and no \(tensor, shape, column0, columns, first, count\)"),
            (7, "parts: w is no tensor and no "),
            ((*good[:2], "a", *good[3:]), "parts: w is no tensor and no "),
            (([0.0] * 6, *good[1:]), "parts: w is no tensor"),
            ((good[0], (), *good[2:]), "parts: w is no tensor, or of shape"),
            ((good[0], (4, 0), *good[2:]), "or of shape .4, 0., which is none"),
            ((*good[:2], 1, 3, 0, 6), "parts: w has 3 columns, and 3 from 1 do not lie in it"),
            ((*good[:2], 0, 0, 0, 6), "parts: w has 3 columns, and 0 from 0"),
            ((*good[:2], -1, 3, 0, 6), "parts: w has 3 columns, and 3 from -1"),
            ((*good[:2], 0, 3, 7, 6), "4 rows, 12 values in 3 columns, and 6 from 7 do not lie in them"),
            ((torch.zeros(2, 3).t(), *good[1:]), "parts: w is not contiguous"),
            (torch.zeros(2, 3).t(), "parts: w is not contiguous"),
            (torch.zeros(2, 0), "parts: w is of shape .2, 0., which is none"),
            ((*good[:2], 0, 3, 0, 5), "parts: w has 6 values in its tensor, and its count is 5"),
        ):
            with self.subTest(words):
                self.refuses(words, partial(_read, "w", given))

    def test_a_tensor_alone_is_all_of_it(self):
        for tensor, shape, part in ((torch.zeros(4, 3), (4, 3), (0, 3, 0, 12)), (torch.zeros(5), (5,), (0, 5, 0, 5)),
                                    (torch.tensor(1.0), (1,), (0, 1, 0, 1)),
                                    (torch.zeros(2, 3, 4), (2, 3, 4), (0, 12, 0, 24))):
            self.assertEqual(_read("w", tensor)[1:], (shape, part))

    def test_parts_of_all_ranks_that_do_not_make_the_tensor(self):
        shape = (4, 4)
        whole, half, rest = (0, 4, 0, 16), (0, 4, 0, 8), (0, 4, 8, 8)
        self.assertEqual(holders(said({"w": (shape, half)}, {"w": (shape, rest)}, {"w": (shape, half)}), int),
                         {"w": {half: [0, 2], rest: [1]}})
        left, right, below = (0, 2, 0, 8), (2, 2, 0, 4), (2, 2, 4, 4)
        holders(said({"w": (shape, left)}, {"w": (shape, right)}, {"w": (shape, below)}), int)
        for ranks_said, words in (
            (said({"w": (shape, half)}, {"v": (shape, whole)}), "w has 16 values, and all ranks together have 8"),
            (said({"w": (shape, whole)}, {"w": (shape, half)}), "rank 11 has .* of it, rank 10 .*; these overlap"),
            (said({"w": (shape, half)}, {"w": (shape, (0, 4, 7, 9))}), "parts: w: rank 10 has .* rank 11 .* overlap"),
            (said({"w": (shape, left)}, {"w": (shape, (1, 2, 0, 8))}), "parts: w: rank 10 has .* rank 11 .* overlap"),
            (said({"w": (shape, whole)}, {"w": ((2, 8), (0, 8, 0, 16))}),
             r"parts: w \(rank 10, 11\): torch.float32 of shape \(4, 4\) in the one, torch.float32 of shape \(2, 8\)"),
        ):
            with self.subTest(words):
                self.refuses(words, partial(holders, ranks_said, lambda rank: 10 + rank))

    def test_a_model_and_parts(self):
        model = torch.nn.Linear(2, 2)
        for call in (partial(diloco.attach), partial(diloco.attach, model, parts={"w": ()})):
            self.refuses("takes a model, or parts= and no model", call)

    def test_names_that_are_one(self):
        twice = {"w": torch.zeros(2), "module.w": torch.zeros(2)}
        self.refuses("two names differ in a wrapper's prefix alone", partial(diloco.attach, parts=twice))


class Islands(BesideOne):
    def test_stages_that_give_one_name_to_two_tensors_are_refused(self):
        with Run(SPEC) as run:
            paris = run.found("paris", ranks(2, "--as", "pipe", "--names", "local", "--out", f"{run.place}/paris.pt",
                                             trainer=PARTS))
            for number in (0, 1):
                paris.await_log(f"rank {number} is refused: parts: layers.0.")
            paris.await_log("(rank 0, 1): they have the same part of it, and other values")

    def test_what_one_rank_says_wrongly_all_are_told(self):
        with Run(SPEC) as run:
            paris = run.found("paris", ranks(2, "--as", "pipe", "--names", "short", "--out", f"{run.place}/paris.pt",
                                             trainer=PARTS))
            for number in (0, 1):
                paris.await_log(f"rank {number} is refused: parts: gain is no tensor and no (tensor, shape, column0, ")

    def test_of_a_checkpoint_of_parts_training_goes_on(self):
        self.goes_on(3, "cut")

    def test_of_a_checkpoint_of_stages_of_shards_training_goes_on(self):
        self.goes_on(4, "pipe-fsdp")

    def goes_on(self, count, how):
        with Run(SPEC) as run:
            out = f"{run.place}/paris.pt"
            paris = run.found("paris", ranks(count, "--as", how, "--leave-at", "100", "--out", out, trainer=PARTS))
            oslo = run.join("oslo", alone("--out", f"{run.place}/oslo.pt"))
            self.end_as_one(run, [paris, oslo])
            self.assertRegex(paris.log(), "goes on from step 1[0-9][0-9] of its own state")


if __name__ == "__main__":
    main()
