# SPDX-License-Identifier: Apache-2.0
"""What attaching costs a PyTorch training loop: the same loop in pieces, in turns alone and attached; one line of JSON.

Two cores are two machines. On each is one and the same loop (docs/examples/gpt.py, larger) with one thread, and the
daemon of its island: what the daemon works is taken from the loop, as on a machine whose cores are all busy training.
Both loops are alone, or attached, at the same time, so that beside each piece the like of it runs. With one island the
other core has the loop, too, but is never attached. Nothing is exchanged while they are alone, as nobody trains for the
run then; and a piece begins and ends when no round is on its way. The daemon is there all the time, and takes about a
thousandth of a core when it is idle, which tokens a second do not show as a cost.

Beside tokens a second, which other work on the machine disturbs, stands processor time: of loop and daemon, where a
loop that is alone has no daemon; and of the loop only, which is what it costs where a core is left for the daemon.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import signal
import socket
import struct
import sys
import time


HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "python"), str(HERE.parents[2] / "docs/examples")]

from islands import TEXT, Run  # it says where diloco is

import diloco
from gpt_loop import BEGIN, INTERVAL, SIZE, TOKENS, WARM_STEPS, GptLoop

OVERLAP, PATIENCE_S = 1, 3000  # the overlap is the run spec's own default
SPEC = f"[run]\nname = attached\nsteps = 100000000\n[sync]\ninterval = {INTERVAL}\noverlap = {OVERLAP}\n"


class Loop(GptLoop):
    """A training loop, and what its calls take."""

    def __init__(self, seed, path):
        super().__init__(TEXT, seed)
        self.island = diloco.attach(self.model, socket=path) if path else None
        self.calls = {}

    def kind(self, before, offsets):
        """What the last call of island.step() had to do."""
        steps = range(before + 1, self.island.run_step + 1)
        snapshot = any(step % INTERVAL in offsets and step >= INTERVAL for step in steps)
        mix = bool(self.island.changed_numbers())
        return "mix" if mix and not snapshot else "snapshot" if snapshot and not mix else "both" if mix else "nothing"

    def piece(self, attached, offsets):
        """Tokens a second, and the share of the time in island.step()."""
        taken = within = 0.0
        steps = 0
        until = self.island.run_step + INTERVAL if attached else 0
        while self.island.run_step < until if attached else steps < INTERVAL:
            before = self.island.run_step if attached else 0
            whole, call = self.step(self.island if attached else None)
            taken, within, steps = taken + whole, within + call, steps + 1
            if attached:
                self.calls.setdefault(self.kind(before, offsets), []).append(call)
        return steps * TOKENS / taken, within / taken, steps


def daemon_pid(island):
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(next(island.home.rglob("control.sock"))))
        return struct.unpack("3i", control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def cpu_seconds(pid):
    """Of a process so far, in all its threads."""
    threads = pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def measured(loop, turn, daemon, offsets):
    """One piece: tokens a second, seconds of processor time a step of loop and daemon, the share of island.step()."""
    own, its = time.process_time(), cpu_seconds(daemon) if daemon else 0
    rate, share, steps = loop.piece(turn and daemon is not None, offsets)
    own, its = time.process_time() - own, cpu_seconds(daemon) - its if daemon else 0
    return rate, own / steps, its / steps, share


def work(number, core, path, daemon, offsets, pairs, barrier, both, results):
    """One of the two loops."""
    os.sched_setaffinity(0, {core})
    loop = Loop(number, path)
    for _ in range(WARM_STEPS):
        loop.step(None)
    if number == 1:
        both.set()
    while number == 0 and not both.is_set():  # the other island is let in while this one trains
        loop.step(loop.island)
    while path and loop.island.run_step % INTERVAL != BEGIN:
        loop.step(loop.island)
    loop.calls = {}
    pieces = {True: [], False: []}
    for turn in (False, True, True, False) * (pairs // 2):  # what only drifts is on both sides
        barrier.wait()
        pieces[turn].append(measured(loop, turn, daemon, offsets))
    barrier.wait()
    if path:
        parameters = sum(param.numel() for param in loop.model.parameters())
        results.put(dict(pieces=pieces, calls=loop.calls, parameters=parameters))
        loop.island.detach()


def quartiles(values):
    """The first, the median and the third."""
    ordered = sorted(values)
    return [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.25, 0.5, 0.75)]


def measure(count, pairs):
    """With so many islands."""
    context = multiprocessing.get_context("spawn")
    barrier, both, results = context.Barrier(2), context.Event(), context.Queue()
    cores = sorted(os.sched_getaffinity(0))
    fragments = 1 + SIZE.layers // 3
    offsets = [fragment * (INTERVAL // fragments) for fragment in range(fragments)]
    loops = []
    with Run(SPEC) as run:
        for number in range(2):
            path = pid = None
            if number < count:
                os.sched_setaffinity(0, {cores[number]})  # a daemon has it of who starts it
                island = run.join("b", "") if number else run.found("a", "")
                os.sched_setaffinity(0, cores)
                path, pid = island.socket(), daemon_pid(island)
            arguments = (number, cores[number], path, pid, offsets, pairs, barrier, both, results)
            loops.append(context.Process(target=work, args=arguments, daemon=True))
            loops[-1].start()
        parts = [results.get(timeout=PATIENCE_S) for _ in range(count)]
        for loop in loops:
            loop.join()
    return summary(parts)


def summary(parts):
    """Ratios are of attached over alone, as speeds: 1 is no cost. Three figures are quartiles."""
    pairs = [pair for part in parts for pair in zip(part["pieces"][True], part["pieces"][False])]
    attached, alone = zip(*pairs)
    calls = {}
    for kind in sorted({kind for part in parts for kind in part["calls"]}):
        calls[kind] = quartiles([1e6 * call for part in parts for call in part["calls"].get(kind, [])])
    return {
        "parameters": parts[0]["parameters"],
        "tokens_a_step": TOKENS,
        "pairs": len(pairs),
        "step_s": TOKENS / quartiles([piece[0] for piece in alone])[1],
        "rate": quartiles([a[0] / b[0] for a, b in pairs]),
        "processor": quartiles([b[1] / (a[1] + a[2]) for a, b in pairs]),
        "processor_of_loop": quartiles([b[1] / a[1] for a, b in pairs]),
        "daemon_share": quartiles([piece[2] / piece[1] for piece in attached])[1],
        "step_call_share": quartiles([piece[3] for piece in attached])[1],
        "step_call_us": calls,
    }


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--pairs", type=int, default=8)
    pairs = options.parse_args().pairs
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what it has started
    print(json.dumps({"one": measure(1, pairs), "two": measure(2, pairs)}))


if __name__ == "__main__":
    main()
