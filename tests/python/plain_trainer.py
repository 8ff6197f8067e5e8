# SPDX-License-Identifier: Apache-2.0
"""A trainer without any framework: it moves two arrays towards numbers of its own, by its island.

    plain_trainer.py [--bare] [--sleep MS] [--crash-once STEP FILE] [--reverse] [--rows N] [--more X] [--with N FOLDER]

--bare: it does nothing about SIGTERM. --more: initial values are larger by this. --with: it trains when so many have
attached, who say so in that folder.
"""

import argparse
import array
import os
import pathlib
import signal
import sys
import time

import diloco

options = argparse.ArgumentParser()
options.add_argument("--bare", action="store_true")
options.add_argument("--sleep", type=float, default=2)
options.add_argument("--crash-once", nargs=2, default=(0, ""))
options.add_argument("--reverse", action="store_true")
options.add_argument("--rows", type=int, default=40)
options.add_argument("--more", type=float, default=0)
options.add_argument("--with", dest="others", nargs=2, default=(0, ""))
a, _ = options.parse_known_args()

model = {"layers.1.weight": memoryview(array.array("f", [0.5] * 30 * a.rows)).cast("B").cast("f", (a.rows, 30)),
         "layers.0.weight": memoryview(array.array("f", [0.25] * 700)).cast("B").cast("f", (70, 10)),
         "norm": array.array("f", [1.0] * 50)}
if a.reverse:
    model = dict(reversed(model.items()))
flat = {name: memoryview(values).cast("B").cast("f") for name, values in model.items()}
for values in flat.values():
    for i in range(len(values)):
        values[i] += a.more
if not a.bare:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))

with diloco.attach(model, trainer="plain") as island:
    print(f"island {island.name}, {island.index} of {island.count}, after step {island.start_step}, "
          f"{island.tokens} tokens trained, seeds {island.seed(7)} {island.seed(8)}", flush=True)
    if a.others[1]:
        pathlib.Path(a.others[1], f"{island.name}.here").touch()
        while len(list(pathlib.Path(a.others[1]).glob("*.here"))) < int(a.others[0]):
            time.sleep(0.01)
    goal = 2.0 + island.index
    while not island.done:
        for values in flat.values():
            for i in range(len(values)):
                values[i] += 0.02 * (goal - values[i])
        island.step(tokens=100, loss=(goal - flat["norm"][0]) ** 2)
        if int(a.crash_once[0]) and island.run_step >= int(a.crash_once[0]) and not os.path.exists(a.crash_once[1]):
            open(a.crash_once[1], "w").close()
            os._exit(9)
        time.sleep(a.sleep / 1000)
    over = island.finish()
    print(f"finished, over: {over}, norm {flat['norm'][0]:.4f}, of {island.steps}", flush=True)
