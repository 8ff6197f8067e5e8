# SPDX-License-Identifier: Apache-2.0
"""What an island of several machines costs, and carries; one line of JSON. Needs root, for namespaces are its machines.

Steps: a GPT of 2.7M parameters, spread by FSDP2 over four ranks, in turns alone and attached: on one machine, and on
two that are joined by a line of 1 Gbit/s. The four share the machine's cores with their daemon.

The line: parameters of 33.6M values that nobody trains, so that nothing but the island's pieces goes over it. How fast
is read from the interface's counters while they go: from the first sample with traffic to the last, gaps of up to
GAP_S counted as time that it took. With ranks that reach the daemon through their group, and through a gateway.
"""

import argparse
import json
import pathlib
import signal
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1] / "python"))

from islands import BUILD, TEXT, Run, free_port
from nodes import link_of

RATE, RATE_BYTES_S = "1gbit", 125e6
SAMPLE_S, GAP_S, BURST_BYTES = 0.001, 0.1, 4e6
PATIENCE_S = 900
SPEC = "[run]\nname = nodes\nsteps = 100000000\n[sync]\ninterval = 30\nlayers_per_fragment = 8\n"


def launch(run, nodes, per_node, gateway, *what):
    """The command of a trainer, whose figures are in the file that comes with it."""
    out = run.place / "figures.json"
    command = [sys.executable, "-u", HERE.parents[1] / "python/nodes.py", "--nodes", nodes, "--per-node", per_node]
    command += ["--rate", RATE, "--port", free_port()]
    if gateway:
        command += ["--gateway", BUILD / "diloco-gateway", "--gateway-port", free_port()]
    command += ["--", HERE.with_name("nodes_trainer.py"), "--data", TEXT, "--out", out, *what]
    return " ".join(map(str, command)), out


class Line:
    """Samples what an interface has carried from the other machine, and to it, until it is stopped."""

    def __init__(self, link):
        self.files = [open(f"/sys/class/net/{link}/statistics/{way}_bytes", "rb", 0) for way in ("rx", "tx")]
        self.samples = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._sample)
        self.thread.start()

    def _sample(self):
        while not self.over.wait(SAMPLE_S):
            counts = []
            for file in self.files:
                file.seek(0)
                counts.append(int(file.read()))
            self.samples.append((time.monotonic(), *counts))

    def close(self):
        self.over.set()
        self.thread.join()
        for file in self.files:
            file.close()

    def bursts(self, way):
        """Bytes a second of each time that much went from there (0) or to there (1)."""
        rates, begin, last = [], None, None
        for before, now in zip(self.samples, self.samples[1:]):
            moved = now[1 + way] - before[1 + way]
            if moved > 0.1 * RATE_BYTES_S * (now[0] - before[0]):
                begin, last = begin or before, now
            elif begin and now[0] > last[0] + GAP_S:
                rates += self._rate(begin, last, way)
                begin = None
        return rates + (self._rate(begin, last, way) if begin else [])

    @staticmethod
    def _rate(begin, last, way):
        moved = last[1 + way] - begin[1 + way]
        return [moved / (last[0] - begin[0])] if moved >= BURST_BYTES else []


def quartiles(values):
    """The first, the median and the third."""
    ordered = sorted(values)
    return [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.25, 0.5, 0.75)]


def await_figures(island, out):
    def there(island):
        if island.trainer().get("failures"):
            raise AssertionError(island.log())
        return out.exists()

    island.await_("figures", there, PATIENCE_S)
    return json.loads(out.read_text())


def turns(nodes, per_node, pairs):
    """Ratios are of attached over alone: what is above 1 is what it costs."""
    with Run(SPEC) as run:
        command, out = launch(run, nodes, per_node, False, "--do", "turns", "--pairs", pairs)
        figures = await_figures(run.found("paris", command), out)
    both = list(zip(figures["attached"], figures["alone"]))
    return {
        "parameters": figures["parameters"],
        "pairs": len(both),
        "step_s": quartiles([alone[0] for _, alone in both])[1],
        "attached_over_alone": quartiles([attached[0] / alone[0] for attached, alone in both]),
        "within": quartiles([attached[1] / attached[0] for attached, _ in both]),
    }


def carry(gateway, rounds):
    with Run(SPEC) as run:
        command, out = launch(run, 2, 2, gateway, "--do", "carry", "--rounds", rounds)
        island = run.found("paris", command)
        island.await_log("training goes on")
        line = Line(link_of(run.place))
        try:
            figures = await_figures(island, out)
        finally:
            line.close()
    ways = {"from": line.bursts(0), "to": line.bursts(1)}
    held = [held for far, held in figures["ranks"] if far or gateway]
    return {
        "values": figures["values"],
        "bursts": {way: len(rates) for way, rates in ways.items()},
        "of_line": {way: quartiles([rate / RATE_BYTES_S for rate in rates]) for way, rates in ways.items() if rates},
        "far_bytes_a_value": max(held),
    }


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--pairs", type=int, default=4)
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--only", choices=["one", "two", "group", "gateway"])
    a = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what it has started
    parts = {
        "one": lambda: turns(1, 4, a.pairs),
        "two": lambda: turns(2, 2, a.pairs),
        "group": lambda: carry(False, a.rounds),
        "gateway": lambda: carry(True, a.rounds),
    }
    print(json.dumps({name: part() for name, part in parts.items() if a.only in (None, name)}))


if __name__ == "__main__":
    main()
