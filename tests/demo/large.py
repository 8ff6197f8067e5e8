# SPDX-License-Identifier: Apache-2.0
"""`make demo-large`: docs/examples/gpt.py at GPT-2's width and depth, 85 million parameters, on two islands of this
machine for some minutes; watched, with a picture and figures in build/demo-large.

It uses README's commands, each shown as it is run. How many steps fit is measured before. Exit status: 0 if both
islands end with the same anchors, 1 otherwise.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPT = ROOT / "docs/examples/gpt.py"
NAMES, COLOURS = ("paris", "oslo"), ("#1f6fb4", "#d9722b")
INTERVAL, LAYERS_PER_FRAGMENT, BATCH, CONTEXT, WARMUP = 20, 3, 4, 64, 10
SIZE = ["--width", "768", "--layers", "12", "--heads", "12", "--context", str(CONTEXT)]
LOOK_S, LINE_S, TIMED_STEPS, PATIENCE_S = 2, 10, 3, 900
SHARE = 0.85  # of the minutes that steps may take: the rest is beginning, end, and what daemons take of the processor


def timed(threads):
    """Seconds of a step without any island, in a process of its own."""
    sys.path[:0] = [str(GPT.parent), str(ROOT / "worker/libdiloco/python")]
    import torch
    import torch.nn.functional as F

    import gpt

    torch.set_num_threads(threads)
    model = gpt.GPT(gpt.Size(768, 12, 12, CONTEXT))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    tokens = torch.randint(256, (BATCH, CONTEXT))
    for step in range(TIMED_STEPS + 1):
        if step == 1:
            begin = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
    print((time.perf_counter() - begin) / TIMED_STEPS, sum(value.numel() for value in model.parameters()))


def say(begin, text):
    print(f"{time.monotonic() - begin:5.0f} s  {text}", flush=True)


def steps_in(minutes, threads):
    """As many as both islands, which work at the same time, can take; and the parameters."""
    command = [sys.executable, "-W", "ignore", __file__, "--timed", str(threads)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in NAMES]
    answers = [process.communicate()[0].split() for process in both]
    slower = max(float(answer[0]) for answer in answers)
    steps = int(SHARE * 60 * minutes / slower)
    return max(2 * INTERVAL, steps), int(answers[0][1]), slower


class Island:
    def __init__(self, place, name):
        self.name, self.home = name, place / name
        self.seen = {}
        self.points = []  # step, loss

    def ctl(self, *arguments, check=True):
        done = subprocess.run(["dilococtl", *arguments, "--home", str(self.home)], capture_output=True, text=True)
        if check and done.returncode != 0:
            raise SystemExit(f"demo-large: dilococtl {arguments[0]} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def look(self):
        said = self.ctl("status", "--json", check=False)
        if not said.startswith("{"):
            return
        self.seen = json.loads(said)
        step, loss = self.trainer("step"), self.trainer("loss")
        if step and loss and (not self.points or self.points[-1][0] < step):
            self.points.append((step, loss))

    def trainer(self, key):
        return self.seen.get("trainer", {}).get(key) or 0

    def number(self, key):
        return self.seen.get(key) or 0

    def daemon_pid(self):
        """Of the one that listens at its control socket."""
        try:
            with socket.socket(socket.AF_UNIX) as control:
                control.connect(str(next(self.home.rglob("control.sock"))))
                return struct.unpack("3i", control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        except (OSError, StopIteration):
            return 0

    def peak_bytes(self, pid):
        try:
            text = pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return 0
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", text).group(1))


def megabytes(count):
    return f"{count / 1e6:.0f} MB" if count >= 1e7 else f"{count / 1e6:.1f} MB"


def picture(islands, steps, title):
    """Loss over steps, a line for each island."""
    width, height, left, top, right, bottom = 800, 440, 60, 60, 20, 50
    losses = [loss for island in islands for _, loss in island.points] or [0.0, 1.0]
    low, high = min(losses), max(losses)
    high = high if high > low else low + 1
    at_x = lambda step: left + (width - left - right) * step / steps
    at_y = lambda loss: top + (height - top - bottom) * (high - loss) / (high - low)
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' font-family='sans-serif' "
        "font-size='13'>",
        "<rect width='100%' height='100%' fill='white'/>",
        f"<text x='{left}' y='24' font-size='16'>{title[0]}</text>",
        f"<text x='{left}' y='44' fill='#555'>{title[1]}</text>",
    ]
    for i in range(5):
        loss, step = low + (high - low) * i / 4, steps * i // 4
        lines.append(
            f"<line x1='{left}' x2='{width - right}' y1='{at_y(loss):.1f}' y2='{at_y(loss):.1f}' stroke='#ddd'/>"
            f"<text x='{left - 8}' y='{at_y(loss) + 4:.1f}' text-anchor='end'>{loss:.2f}</text>"
            f"<text x='{at_x(step):.1f}' y='{height - bottom + 20}' text-anchor='middle'>{step}</text>"
        )
    for island, colour in zip(islands, COLOURS):
        points = " ".join(f"{at_x(step):.1f},{at_y(loss):.1f}" for step, loss in island.points)
        lines.append(f"<polyline fill='none' stroke='{colour}' stroke-width='1.5' points='{points}'/>")
    for i, (island, colour) in enumerate(zip(islands, COLOURS)):
        y = top + 14 + 18 * i
        lines.append(
            f"<line x1='{width - 140}' x2='{width - 115}' y1='{y}' y2='{y}' stroke='{colour}' stroke-width='3'/>"
            f"<text x='{width - 108}' y='{y + 4}'>{island.name}</text>"
        )
    lines.append(f"<text x='{(width + left) / 2}' y='{height - 10}' text-anchor='middle'>step of the run; loss in nats "
                 "a byte, of each island's own batches</text></svg>")
    return "\n".join(lines) + "\n"


def begin_islands(islands, program, spec, begin):
    """By README's commands; seconds until the second one trained, and bytes that were sent for it."""
    (islands[0].home.parent / "run.ini").write_text(spec)
    first, second = islands
    print(f"$ dilococtl init --home {first.home} --name {first.name} --run run.ini --program '… gpt.py …'")
    first.ctl("init", "--name", first.name, "--run", str(first.home.parent / "run.ini"), "--program", program)
    token = re.search(r"dlc1\.\S+", first.ctl("invite")).group(0)
    print(f"$ dilococtl join $(dilococtl invite …) --home {second.home} --name {second.name} --program '… gpt.py …'")
    asked = time.monotonic()
    second.ctl("join", token, "--name", second.name, "--program", program + " --seed 2")
    while second.trainer("step") == 0:
        if time.monotonic() - asked > PATIENCE_S:
            log = second.ctl("logs", check=False)[-3000:]
            raise SystemExit(f"demo-large: {second.name} does not come to train:\n{log}")
        for island in islands:
            island.look()
        time.sleep(0.5)
    say(begin, f"{second.name} trains, {time.monotonic() - asked:.0f} s after it was asked to join")
    return time.monotonic() - asked, max(island.number("bytes_sent") for island in islands)


def watch(islands, steps, begin, peaks):
    """Until both have finished and hold the same anchors."""
    said = stood = time.monotonic()
    before = -1
    while True:
        for island in islands:
            island.look()
            for kind, pid in (("daemon", island.daemon_pid()), ("trainer", island.trainer("pid"))):
                peaks[kind] = max(peaks[kind], island.peak_bytes(pid) if pid else 0)
        finished = all(island.trainer("state") == "finished" for island in islands)
        anchors = {island.seen.get("anchors") for island in islands}
        if finished and len(anchors) == 1:
            return True
        step = min(island.trainer("step") for island in islands)
        moved = sum(island.trainer("step") + island.number("versions") for island in islands)
        if moved != before:
            before, stood = moved, time.monotonic()
        if time.monotonic() - stood > PATIENCE_S:
            return False
        if time.monotonic() - said >= LINE_S:
            said = time.monotonic()
            losses = "  ".join(f"{island.name} {island.trainer('loss'):.3f}" for island in islands)
            sent = megabytes(islands[0].number("bytes_sent"))
            say(begin, f"step {step}/{steps}  loss {losses}  versions {islands[0].number('versions')}  sent {sent}")
        time.sleep(LOOK_S)


def mean(points):
    return sum(loss for _, loss in points) / max(1, len(points))


def report(islands, out, facts, begin):
    first = islands[0]
    tenth = max(1, len(first.points) // 10)
    facts |= {
        "loss_begin": max(mean(island.points[:1]) for island in islands),
        "loss_end": sum(mean(island.points[-tenth:]) for island in islands) / len(islands),
        "versions": first.number("versions"),
        "fragments": first.number("fragments"),
        "bytes_sent": max(island.number("bytes_sent") for island in islands) - facts["bytes_join"],
        "bytes_data_parallel": 2 * facts["params"] * facts["steps"],
        "anchors": first.seen.get("anchors"),
        "took_s": time.monotonic() - begin,
    }
    millions, each = facts["params"] / 1e6, megabytes(facts["bytes_sent"])
    less = facts["bytes_data_parallel"] / max(1, facts["bytes_sent"])
    title = (
        f"GPT of {millions:.0f} million parameters on two islands: {facts['steps']} steps in PyTorch",
        f"{facts['fragments']} fragments, each exchanged every {INTERVAL} steps; each island sent {each}",
    )
    (out / "loss.svg").write_text(picture(islands, facts["steps"], title))
    (out / "summary.json").write_text(json.dumps(facts, indent=2) + "\n")
    print(f"\nanchors        identical on both islands, {str(facts['anchors'])[:16]}…")
    print(f"loss           {facts['loss_begin']:.2f} at the first step, {facts['loss_end']:.2f} over the last tenth")
    print(f"steps          {facts['steps']} of {BATCH * CONTEXT} tokens an island, {facts['versions']} results counted")
    parallel, daemon, trainer = (facts[key] / 1e9 for key in ("bytes_data_parallel", "daemon_bytes", "trainer_bytes"))
    print(f"sent           {each} an island; data-parallel in bf16 sends {parallel:.1f} GB, {less:.0f} times as much")
    print(f"memory         at most {daemon:.1f} GB a daemon, {trainer:.1f} GB a trainer, with what they share in both")
    print(f"joining        {facts['join_s']:.0f} s, for which {megabytes(facts['bytes_join'])} were sent")
    print(f"took           {facts['took_s']:.0f} s in all")
    print(f"picture        {(out / 'loss.svg').relative_to(ROOT)}")


def run(minutes, data, out):
    begin = time.monotonic()
    threads = max(1, min(4, (os.cpu_count() or 2) // len(NAMES)))
    say(begin, f"measuring how many steps fit into {minutes:g} minutes")
    steps, params, step_s = steps_in(minutes, threads)
    say(begin, f"{steps} steps: one takes {step_s:.1f} s with {threads} thread{'s' if threads > 1 else ''} an island")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    place = pathlib.Path(tempfile.mkdtemp(prefix="diloco-large-", dir="/tmp"))  # sockets have short paths
    islands = [Island(place, name) for name in NAMES]
    spec = (
        f"[run]\nname = large\nsteps = {steps}\n[sync]\ninterval = {INTERVAL}\n"
        f"layers_per_fragment = {LAYERS_PER_FRAGMENT}\n"
    )
    options = ["--lr", "3e-4", "--warmup", str(WARMUP), "--batch", str(BATCH), "--threads", str(threads), *SIZE]
    program = " ".join([sys.executable, "-u", "-W", "ignore", str(GPT), "--data", str(data), *options])
    facts = {"steps": steps, "params": params, "step_s": step_s, "minutes": minutes}
    peaks = {"daemon": 0, "trainer": 0}
    try:
        facts["join_s"], facts["bytes_join"] = begin_islands(islands, program, spec, begin)
        if not watch(islands, steps, begin, peaks):
            raise SystemExit("demo-large: the islands do not end with the same anchors; see build/demo-large/*.log")
        facts |= {f"{kind}_bytes": count for kind, count in peaks.items()}
        report(islands, out, facts, begin)
    finally:
        for island in islands:
            island.ctl("stop", check=False)
            log = island.home / "dilocod.log"
            if log.exists():
                shutil.copy(log, out / f"{island.name}.log")
        shutil.rmtree(place, ignore_errors=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--programs", default="build/gcc")
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--data", default=str(ROOT / "tests/demo/shakespeare.txt"))
    options.add_argument("--timed", type=int)
    a = options.parse_args()
    if a.timed:
        return timed(a.timed)
    data = pathlib.Path(a.data).resolve()
    if not data.is_file():
        raise SystemExit(f"demo-large: DATA={a.data}: not a file; give one file of text")
    programs = pathlib.Path(a.programs).resolve()
    os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
    os.environ["DILOCO_LIBRARY"] = str(programs / "libdiloco.so.0")
    os.environ["PYTHONPATH"] = str(ROOT / "worker/libdiloco/python")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    return run(a.minutes, data, ROOT / "build/demo-large")


if __name__ == "__main__":
    sys.exit(main())
