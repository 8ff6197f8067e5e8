# SPDX-License-Identifier: Apache-2.0
"""Ranks that watch each other: who is lost is named, and who ends in order is not."""

import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from islands import ROOT, main

COUNT = 3
GONE = "is gone without a word, or the way to it is"
LEFT = "has ended its script, or detached, before finish()"
PATIENCE_S = 60


class Rank:
    def __init__(self, rank: int, store: str):
        self.process = subprocess.Popen(
            [sys.executable, f"{ROOT}/tests/python/watch_rank.py", str(rank), str(COUNT), store],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self.process.stderr as stderr:
            self.said += (line.strip() for line in iter(stderr.readline, ""))

    def tell(self, word: str) -> None:
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def ask(self, word: str) -> str:
        self.tell(word)
        return self.process.stdout.readline().strip()

    def told(self) -> list[str]:
        return [line for line in self.said if line.startswith("diloco: ")]

    def await_told(self, words: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not any(words in line for line in self.told()):
            if time.monotonic() > end:
                raise AssertionError(f"it does not say {words!r}: {self.said}")
            time.sleep(0.02)

    def end(self, word: str = "end") -> None:
        self.tell(word)
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_S) == 0
        self._reader.join()


class Watches(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.ranks = [Rank(rank, f"{self.folder.name}/store") for rank in range(COUNT)]
        for rank in self.ranks:
            self.assertEqual(rank.process.stdout.readline().strip(), "watches")

    def tearDown(self):
        for rank in self.ranks:
            rank.process.kill()
            rank.process.wait()
            for stream in (rank.process.stdin, rank.process.stdout):
                stream.close()
        self.folder.cleanup()

    def test_who_ends_in_order_is_nobodys_loss(self):
        for rank in reversed(self.ranks):  # each a moment before the others do, as it happens
            rank.tell("finish")
            rank.end()
            time.sleep(1)
        self.assertEqual([rank.told() for rank in self.ranks], [[], [], []])

    def test_who_is_killed_is_named_once(self):
        self.ranks[2].process.kill()
        self.assertEqual(self.ranks[0].ask("why"), f"rank 2 on n2 {GONE}")
        self.ranks[1].process.kill()
        time.sleep(1)
        self.assertEqual(len(self.ranks[0].told()), 1)
        self.assertIn(f"diloco: rank 0 on n0: rank 2 on n2 {GONE}", self.ranks[0].told()[0])

    def test_the_one_that_speaks_is_named_by_all_others(self):
        self.ranks[0].process.kill()
        for rank in self.ranks[1:]:
            self.assertEqual(rank.ask("why"), f"rank 0 on n0 {GONE}")

    def test_a_script_that_ends_too_early_is_told_from_a_lost_machine(self):
        self.ranks[1].end()
        self.assertEqual(self.ranks[0].ask("why"), f"rank 1 on n1 {LEFT}")

    def test_where_all_end_too_early_together_nobody_is_named(self):
        """They have all failed at one thing, say, and each has said so."""
        for rank in self.ranks:
            rank.tell("detach")
            time.sleep(0.5)
        for rank in self.ranks:
            rank.end()
        self.assertEqual([rank.told() for rank in self.ranks], [[], [], []])

    def test_one_that_is_stopped_is_said_to_be_silent_and_to_be_heard_again(self):
        self.ranks[1].process.send_signal(signal.SIGSTOP)
        self.ranks[0].await_told("nothing is heard of rank 1 on n1 for ")
        self.ranks[1].process.send_signal(signal.SIGCONT)
        self.ranks[0].await_told("rank 1 on n1 is heard again, after ")
        self.assertEqual([len(rank.told()) for rank in self.ranks], [2, 0, 0])

    def test_others_hear_that_the_one_that_speaks_is_stopped(self):
        self.ranks[0].process.send_signal(signal.SIGSTOP)
        for rank in self.ranks[1:]:
            rank.await_told("nothing is heard of rank 0 on n0 for ")
        self.ranks[0].process.send_signal(signal.SIGCONT)
        for rank in self.ranks[1:]:
            rank.await_told("rank 0 on n0 is heard again, after ")
        self.assertEqual(self.ranks[0].told(), [])

    def test_one_that_is_asked_to_end_tells_the_one_that_speaks(self):
        self.ranks[2].tell("ask")
        self.assertEqual(self.ranks[0].ask("asked"), "asked")
        self.assertEqual([rank.told() for rank in self.ranks], [[], [], []])


if __name__ == "__main__":
    main()
