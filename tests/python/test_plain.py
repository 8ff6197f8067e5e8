# SPDX-License-Identifier: Apache-2.0
"""The Python package with nothing but Python: its view of the C interface, what it refuses, and real islands."""

import array
import contextlib
import ctypes
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

from islands import ROOT, Run, assert_one_model, main

import diloco
from diloco import _abi
from diloco._dealing import ENDED, Dealing
from diloco._sampler import Sampler, Shard, check
from diloco._tensors import Buffers

SPEC = """[run]
name = plain
steps = 300
[sync]
interval = 10
layers_per_fragment = 1
late = merge
"""
TRAINER = f"{sys.executable} -u {ROOT}/tests/python/plain_trainer.py"


class Interface(unittest.TestCase):
    def test_structs_are_those_of_the_header(self):
        lines = []
        for name, kind in _abi.STRUCTS.items():
            lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
            for field, *_ in kind._fields_:
                lines.append(f'printf("{name}.{field} %zu\\n", offsetof(struct {name}, {field}));')
        constants = ["OK", "STOP", "INTERRUPTED", "OPEN", "ERROR", "REFUSED", "UNREACHABLE", "F32", "BF16", "F16",
                     "READ", "WRITE", "LAYER_NONE", "LAYER_FROM_NAME", "ANY"]
        lines += [f'printf("{name} %d\\n", (int)DILOCO_{name});' for name in constants]
        headers = "#include <stddef.h>\n#include <stdio.h>\n#include \"worker/libdiloco/diloco.h\"\n"
        source = headers + "int main(void) {" + "\n".join(lines) + "}"
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/print.c", "w") as file:
                file.write(source)
            compiler = os.environ.get("CC", "cc").split()
            subprocess.run([*compiler, "-I", str(ROOT), folder + "/print.c", "-o", folder + "/print"], check=True)
            said = subprocess.run([folder + "/print"], capture_output=True, text=True, check=True).stdout
        want = dict(line.split() for line in said.splitlines())
        for name, kind in _abi.STRUCTS.items():
            self.assertEqual(ctypes.sizeof(kind), int(want[name]), name)
            for field, *_ in kind._fields_:
                self.assertEqual(getattr(kind, field).offset, int(want[f"{name}.{field}"]), f"{name}.{field}")
        for name in constants:
            self.assertEqual(getattr(_abi, name), int(want[name]), name)

    def test_one_version(self):
        self.assertEqual(_abi.library().diloco_version().decode(), diloco.__version__)
        project = (ROOT / "worker/libdiloco/python/pyproject.toml").read_text()
        self.assertIn('version = { attr = "diloco.__version__" }', project)

    def test_every_call_of_the_header_is_there(self):
        header = (ROOT / "worker/libdiloco/diloco.h").read_text()
        lines = [line for line in header.splitlines() if line.startswith("DILOCO_API")]
        calls = {line.split("(")[0].split()[-1].lstrip("*") for line in lines}
        self.assertEqual(calls, set(_abi._CALLS))
        manual = (ROOT / "docs/libdiloco.3").read_text()
        self.assertEqual([call for call in sorted(calls) if f"{call}(" not in manual], [])

    def test_a_library_that_does_not_fit_is_named(self):
        calls = "".join(f"int {name}(void) {{ return 0; }}" for name in _abi._CALLS if name != "diloco_version")
        version = 'const char *diloco_version(void) {{ return "{}"; }}'
        cases = {
            "lacking": (version.format("0.2.0"), "has no diloco_attach(): it is older than this package"),
            "old": (version.format("0.1.9") + calls, "is version 0.1.9, older than this package"),
            "odd": (version.format("yesterday") + calls, "is version yesterday, older than this package"),
            "new": (version.format("1.0.0") + calls, "is version 1.0.0, newer than this package"),
        }
        with tempfile.TemporaryDirectory() as folder:
            for name, (source, _) in cases.items():
                path = f"{folder}/{name}"
                with open(path + ".c", "w") as file:
                    file.write(source)
                compiler = os.environ.get("CC", "cc").split()
                subprocess.run([*compiler, "-shared", "-fPIC", path + ".c", "-o", path + ".so"], check=True)
            for name, words in [("none", "cannot be loaded"), *((name, words) for name, (_, words) in cases.items())]:
                said = subprocess.run(
                    [sys.executable, "-c", "import diloco; diloco.attach({})"],
                    env=os.environ | {"DILOCO_LIBRARY": f"{folder}/{name}.so"}, capture_output=True, text=True,
                )
                self.assertNotEqual(said.returncode, 0)
                self.assertIn(words, said.stderr.splitlines()[-1])
                self.assertIn(f"{folder}/{name}.so", said.stderr.splitlines()[-1])

    def test_the_library_of_a_build_folder_in_path_is_found_without_installation(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "worker/libdiloco/python/diloco", folder + "/diloco")
            library = os.environ["DILOCO_LIBRARY"]
            others = {name: value for name, value in os.environ.items() if name != "DILOCO_LIBRARY"}
            found = subprocess.run(
                [sys.executable, "-c", "from diloco import _abi; print(_abi.library()._name)"],
                env=others | {"PYTHONPATH": folder, "PATH": f"{os.path.dirname(library)}:{os.environ['PATH']}"},
                capture_output=True, text=True,
            )
            self.assertEqual(found.stdout.strip(), os.path.realpath(library), found.stderr)


def dealing_of(own, units, before=0, start=1, horizon=100, counted=0):
    """What one island knows that has these units of a list which begins with that step."""
    said = _abi.sized(_abi.Dealing)
    for place, number in enumerate((3, horizon, counted, 1, start, 0, units, before, own)):
        said.words[place] = number
    return said


class Sampling(unittest.TestCase):
    """150,000 samples: 9,375 are no position's, of which 585 or 586 are this island's."""

    def setUp(self):
        self.dealing = Dealing()
        self.at(4)

    def at(self, run_step, life=1, **known):
        self.dealing.write(life, run_step, dealing_of(**{"own": 4, "units": 10, **known}))

    def places(self, numbers):
        """Step and unit of each, as this island has them."""
        known = self.dealing.read()
        where = {}
        for step in range(1, 100):
            for unit in range(4):
                where[diloco._dealing.window(known.draw(step, unit, 4), 150000, 7)] = (step, unit)
        return [where[number] for number in numbers]

    def sampler(self, *ranks):
        return Sampler(self.dealing, 150000, 4, 7, *ranks)

    def test_a_sampler_draws_each_step_s_samples_once(self):
        numbers = iter(self.sampler())
        self.assertEqual(self.places(next(numbers) for _ in range(6)), [(5, 0), (5, 1), (5, 2), (5, 3), (6, 0), (6, 1)])
        self.at(9)  # this island leaves steps out, but none that it has begun
        self.assertEqual(self.places(next(numbers) for _ in range(4)), [(6, 2), (6, 3), (10, 0), (10, 1)])

    def test_ranks_share_a_step_out(self):
        ranks = [iter(self.sampler(rank, 2)) for rank in range(2)]
        self.assertEqual(self.places(next(ranks[0]) for _ in range(4)), [(5, 0), (5, 1), (6, 0), (6, 1)])
        self.at(5)  # of which they may hear at another moment
        self.assertEqual(self.places(next(ranks[1]) for _ in range(4)), [(6, 2), (6, 3), (7, 2), (7, 3)])

    def test_who_begins_a_pass_anew_goes_on_behind_what_was_trained(self):
        sampler = self.sampler()
        numbers = iter(sampler)
        drawn = self.places(next(numbers) for _ in range(12))  # of which two steps are still to be trained
        self.assertEqual(drawn[-1], (7, 3))
        self.at(5)
        again = iter(sampler)
        self.assertEqual(self.places([next(again)]), [(7, 0)])  # of step 6 something may be
        with self.assertRaisesRegex(diloco.DilocoError, "another iterator of it has begun"):
            next(numbers)

    def test_after_load_state_dict_it_goes_on_where_the_run_is(self):
        numbers = iter(self.sampler())
        self.assertEqual(self.places(next(numbers) for _ in range(6))[-1], (6, 1))
        self.at(2, life=2)
        self.assertEqual(self.places(next(numbers) for _ in range(2)), [(3, 0), (3, 1)])
        self.dealing.write(ENDED, 0, dealing_of(own=4, units=10))
        with self.assertRaisesRegex(diloco.DilocoError, r"after detach\(\)"):
            next(numbers)

    def test_it_follows_those_who_come_and_go(self):
        numbers = iter(self.sampler())
        alone = [next(numbers) for _ in range(4)]
        self.at(5, own=2, start=6)  # its other units are somebody else's from now on
        with self.assertLogs("diloco", "WARNING") as said:
            both = [next(numbers) for _ in range(8)]
        self.assertIn("units = 4 in [worker]", said.output[0])
        self.assertEqual(len(said.output), 1)
        self.assertEqual(len(set(alone + both)), 12)

    def test_who_draws_too_far_ahead_is_told(self):
        self.at(8, horizon=10)
        late = iter(self.sampler())
        with self.assertNoLogs("diloco", "WARNING"):  # results may be late, for once
            [next(late) for _ in range(12)]
        self.at(4, horizon=10)
        numbers = iter(self.sampler())
        with self.assertNoLogs("diloco", "WARNING"):
            [next(numbers) for _ in range(24)]
        with self.assertLogs("diloco", "WARNING") as said:
            [next(numbers) for _ in range(8)]
        self.assertEqual(len(said.output), 1)
        self.assertIn("drawn 6 steps ahead of the one that is trained, further than they are dealt", said.output[0])

    def test_a_loader_that_keeps_its_sampler_s_state_passes_nothing_over(self):
        sampler = self.sampler()
        sampler.load_state_dict(sampler.state_dict())
        self.assertEqual(self.places([next(iter(sampler))]), [(5, 0)])

    def test_a_shard_has_the_samples_themselves(self):
        items = [str(number) for number in range(150000)]
        want = [str(number) for _, number in zip(range(9), self.sampler())]
        self.assertEqual([item for _, item in zip(range(9), Shard(items, self.sampler()))], want)

    def test_ranks_that_draw_the_same_draw_it_in_no_loader_s_worker(self):
        worker = types.SimpleNamespace(num_workers=1)
        for info, alike, good in ((None, 2, True), (worker, 1, True), (worker, 2, False)):
            data = types.SimpleNamespace(get_worker_info=lambda info=info: info)
            with unittest.mock.patch.dict(sys.modules, {"torch.utils.data": data}):
                shard = Shard(range(150000), self.sampler(), alike)
                if good:
                    self.assertIn(next(iter(shard)), range(150000))
                    continue
                with self.assertRaisesRegex(diloco.DilocoError, "2 ranks draw the same by group=.*num_workers=0"):
                    next(iter(shard))

    def test_a_trainer_that_stands_while_it_writes_keeps_nobody(self):
        room = diloco._dealing._ROOM
        for begin in (0, room):
            self.at(5)
            self.at(6)
            before = bytes(self.dealing._memory[begin : begin + 8])
            self.dealing._memory[begin : begin + 8] = b"torn" * 2
            self.assertIn(self.dealing.read().run_step, (5, 6))
            self.dealing._memory[begin : begin + 8] = before
            self.assertEqual(self.dealing.read().run_step, 6)
        self.dealing._memory[:] = bytes(2 * room)
        self.dealing._memory[8] = self.dealing._memory[room + 8] = 1
        with self.assertRaisesRegex(diloco.DilocoError, "its memory is damaged"):
            self.dealing.read()

    def test_another_process_sees_what_is_dealt_now(self):
        import multiprocessing

        for way in ("fork", "spawn"):
            context = multiprocessing.get_context(way)
            ours, theirs = context.Pipe()
            self.at(4)
            reader = context.Process(target=read_when_told, args=(self.dealing, theirs))
            reader.start()
            self.assertEqual(ours.recv(), 4)
            self.at(8)
            ours.send("again")
            self.assertEqual(ours.recv(), 8)
            reader.join()

    def test_what_cannot_be_sampled_is_named(self):
        self.assertIsNone(check("sampler()", [1], 1))
        self.assertIn("sampler() of a list_iterator, which can only be gone through", check("sampler()", iter([1]), 1))
        self.assertIn("empty", check("sampler()", [], 1))
        self.assertIn("per_step=0", check("shard()", [1], 0))
        self.assertIn("shared out evenly to 3 ranks", check("shard()", [1], 4, 3))


def read_when_told(dealing, pipe):
    pipe.send(dealing.read().run_step)
    pipe.recv()
    pipe.send(dealing.read().run_step)


class Refusals(unittest.TestCase):
    def refused(self, words, model, **options):
        with self.assertRaises(diloco.DilocoError) as caught:
            diloco.attach(model, socket="/tmp/nobody-listens-here.sock", wait=0, **options)
        self.assertIn(words, str(caught.exception))
        self.assertEqual(len(str(caught.exception).splitlines()), 1)

    def test_what_cannot_be_registered_is_named(self):
        self.refused("tensor w is not writable, contiguous fp32 (its format is 'd')", {"w": array.array("d", [1])})
        self.refused("tensor w is not writable", {"w": memoryview(bytes(8)).cast("f")})
        self.refused("tensor w is not writable, contiguous", {"w": memoryview(array.array("f", range(9)))[::2]})
        self.refused("tensor w is a int", {"w": 5})
        self.refused("tensor w is empty", {"w": array.array("f")})
        self.refused("a list is neither", [1])

    def test_a_buffer_in_the_place_of_another_one_is_followed(self):
        given = {"v": array.array("f", [1, 2]), "w": array.array("f", [3, 4, 5])}
        buffers = Buffers(given)
        self.assertEqual(buffers.moved(), [])
        given["w"] = array.array("f", [6, 7, 8])
        self.assertEqual(buffers.moved(), [(1, given["w"].buffer_info()[0])])
        self.assertEqual(buffers.moved(), [])
        for other, words in ((array.array("f", [1]), "has shape (1,) now, and had (3,)"), (None, "is gone"),
                             (array.array("d", [1, 2, 3]), "is not writable, contiguous fp32")):
            given["w"] = other
            for _ in range(2):
                with self.assertRaises(diloco.DilocoError) as caught:
                    buffers.moved()
                self.assertIn(f"tensor w {words}", str(caught.exception))

    def test_nobody_there(self):
        self.refused("no daemon at /tmp/nobody-listens-here.sock", {"w": array.array("f", [1])})

    def test_nobody_there_is_said_while_it_waits(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(diloco.Unreachable):
            diloco.attach({"w": array.array("f", [1])}, socket="/tmp/nobody-listens-here.sock", wait=3)
        self.assertIn("no daemon answers at /tmp/nobody-listens-here.sock yet; waiting for 3 s", said.getvalue())
        self.assertEqual(said.getvalue().count("\n"), 1)


class Schedules(unittest.TestCase):
    def test_without_a_run_there_is_no_schedule(self):
        done = subprocess.run(
            [sys.executable, "-c", "import diloco; diloco.schedule(object())"], capture_output=True, text=True
        )
        self.assertIn("DilocoError: schedule() before attach()", done.stderr)


class Islands(unittest.TestCase):
    def test_two_islands_end_as_one_though_one_crashes_and_their_order_differs(self):
        with Run(SPEC) as run:
            paris = run.found("paris", f"{TRAINER} --sleep 15")
            oslo = run.join("oslo", f"{TRAINER} --sleep 15 --reverse --crash-once 120 {run.place}/crashed")
            paris.await_log("over: True")
            assert_one_model([paris, oslo])
            trainer = oslo.trainer()
            self.assertGreater(trainer["tokens_counted"], 0)
            self.assertLessEqual(trainer["tokens_counted"], trainer["tokens"])
            self.assertIn("ended with status 9", oslo.log())
            self.assertNotIn("after step 0, 0 tokens", oslo.log().split("ended with status 9")[1])
            seeds = re.findall(r"trainer: island .* seeds (\d+) (\d+)", paris.log() + oslo.log())
            self.assertEqual(len(seeds), 3)  # of oslo's second life, too
            self.assertEqual(len({number for pair in seeds for number in pair}), 6)
            self.assertTrue(all(0 < int(number) < 2**31 for pair in seeds for number in pair))

    def test_a_run_is_as_long_as_its_operator_says_and_a_trainer_that_was_done_goes_on(self):
        with Run(SPEC.replace("steps = 300", "steps = 100000")) as run:
            paris = run.found("paris", f"{TRAINER} --sleep 5")
            oslo = run.join("oslo", f"{TRAINER} --sleep 5")
            oslo.await_("it trains", lambda island: island.trainer().get("step", 0) > 50)
            paris.ctl("pause", "--run")
            oslo.await_("it has heard", lambda island: island.status().get("paused") is not None)
            time.sleep(1)
            step = oslo.trainer()["step"]
            time.sleep(1)
            self.assertEqual(oslo.trainer()["step"], step)
            paris.ctl("resume", "--run")
            steps = max(step, paris.trainer()["step"]) + 200
            for end in steps, steps + 100:  # shorter on the way; then longer, when all have ended
                paris.ctl("set", f"steps={end}")
                for island in paris, oslo:
                    island.await_("the end", lambda one: one.trainer().get("state") == "finished"
                                  and one.trainer()["step"] == end)
                    island.await_log(f", of {end}\n")
                assert_one_model([paris, oslo])

    def test_another_model_is_refused_by_its_first_tensor(self):
        with Run(SPEC) as run:
            paris = run.found("paris", f"{TRAINER} --sleep 20")
            paris.await_("training", lambda island: island.trainer().get("state") == "training")
            oslo = run.join("oslo", f"{TRAINER} --rows 41")
            oslo.await_log("refused")
            line = next(line for line in oslo.log().splitlines() if "layers.1.weight" in line)
            self.assertIn("41 x 30", line)
            self.assertIn("40 x 30", line)

    def interrupted(self, arguments, ready, **env):
        """A trainer of its own that gets a Ctrl-C when it is ready; what it said."""
        trainer = subprocess.Popen(
            [sys.executable, "-u", f"{ROOT}/tests/python/plain_trainer.py", *arguments], env=os.environ | env,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        ready()
        trainer.send_signal(signal.SIGINT)
        begin = time.monotonic()
        _, said = trainer.communicate(timeout=20)
        self.assertLess(time.monotonic() - begin, 5)
        self.assertEqual(said.splitlines()[-1], "KeyboardInterrupt")

    def test_who_joins_takes_the_founders_values(self):
        with Run(SPEC.replace("interval", "pace = lockstep\ninterval")) as run:
            program = f"{TRAINER} --sleep 10 --with 3 {run.place}"
            islands = [run.found("paris", program)]
            islands += [run.join(name, f"{program} --more 0.3") for name in ("oslo", "rome")]  # against one
            assert_one_model(islands)
            for island in islands:
                self.assertNotIn("initial tensors differ", island.log())  # nobody had asked for them
                self.assertNotIn("diverged in fragment", island.log().split("takes part")[-1])

    def test_ctrl_c_ends_any_waiting(self):
        self.interrupted([], lambda: time.sleep(1.5), DILOCO_SOCKET="/tmp/nobody-listens-here.sock")
        with Run(SPEC) as run:
            paris = run.found("paris", f"{TRAINER} --sleep 500")  # longer than all that follows
            paris.await_log("training goes on")
            oslo = run.join("oslo", "")
            here = {"DILOCO_SOCKET": oslo.socket()}
            self.interrupted(["--sleep", "20"], lambda: oslo.await_log("training goes on"), **here)
            waits = lambda island: island.trainer().get("step") == 300
            self.interrupted(["--sleep", "0"], lambda: oslo.await_("the last step", waits), **here)

    def test_a_second_attachment_of_a_process_is_refused(self):
        with Run(SPEC) as run:
            paris = run.found("paris", "")
            model = lambda: {"w": array.array("f", [1.0] * 64)}
            with diloco.attach(model(), socket=paris.socket(), wait=20) as first:
                with self.assertRaises(diloco.DilocoError) as caught:
                    diloco.attach(model(), socket=paris.socket(), wait=20)
                self.assertIn("this process is attached to", str(caught.exception))
                self.assertTrue(first.step(tokens=1))
            diloco.attach(model(), socket=paris.socket(), wait=20).detach()

    def test_what_is_lost_without_an_end_is_said(self):
        with Run(SPEC) as run:
            paris = run.found("paris", "")
            attach = lambda **o: diloco.attach({"w": array.array("f", [1.0] * 64)}, socket=paris.socket(), wait=20, **o)
            with self.assertLogs("diloco", "WARNING") as said, attach() as island:
                island.step(tokens=1)
            self.assertEqual(len(said.output), 1)
            self.assertIn("island paris detaches after step 1 without finish(): what it has trained", said.output[0])
            with self.assertNoLogs("diloco"):
                with attach():
                    pass
                with attach() as island:
                    island.step(tokens=1)
                    kept = island.state_dict()
            with self.assertRaises(diloco.DilocoError) as caught:
                attach(state={"kept": bytearray()})
            self.assertIn("attach(state=) is empty", str(caught.exception))
            with self.assertNoLogs("diloco"), attach(state=kept) as island:
                while island.step(tokens=1):
                    pass
                self.assertTrue(island.finish())

    def test_what_the_run_does_is_told_and_written(self):
        with Run(SPEC.replace("steps = 300", "steps = 100000")) as run:
            paris, values = run.found("paris", ""), array.array("f", [1.0] * 64)
            with contextlib.ExitStack() as both:
                island = both.enter_context(diloco.attach({"w": values}, socket=paris.socket(), wait=20))
                self.assertEqual(island.drift(), 0)
                values[3] += 4  # of 64 values of 1, whose norm is 8
                self.assertAlmostEqual(island.metrics(drift=True)["drift"], 0.5, places=6)
                values[3] -= 4
                island.step(tokens=5, loss=1.5)
                oslo = run.join("oslo", "")
                more = {"w": array.array("f", [1.0] * 64)}
                other = both.enter_context(diloco.attach(more, socket=oslo.socket(), wait=20))
                written = []
                log = diloco.loggers.Log(island, lambda numbers, step: written.append((step, numbers)), every=0.05)
                end = time.monotonic() + 60
                while not (written and written[-1][1].get("diloco/losses/oslo") == 2.5
                           and written[-1][1]["diloco/versions"] > 0):
                    self.assertLess(time.monotonic(), end, written[-1:])
                    island.step(tokens=5, loss=1.5)
                    other.step(tokens=5, loss=2.5)
                    log()
                    time.sleep(0.01)
                step, last = written[-1]
                self.assertEqual((last["diloco/run_step"], last["diloco/steps"]), (step, 100000))
                self.assertEqual((last["diloco/islands"], last["diloco/islands_up"]), (2, 2))
                self.assertEqual(last["diloco/losses/paris"], 1.5)
                self.assertGreater(last["diloco/bytes_sent"], 0)
                self.assertIn("anchors", island.metrics())
                rarely = diloco.loggers.Log(island, lambda numbers, step: None, every=1000)
                self.assertEqual([rarely(), rarely()], [True, False])

                class Writer(dict):
                    def add_scalar(self, name, value, step):
                        self[name] = (value, step)

                writer = Writer()
                self.assertTrue(diloco.loggers.tensorboard(island, writer)())
                self.assertEqual(writer["diloco/steps"], (100000.0, island.run_step))
                with self.assertLogs("diloco", "INFO") as said:
                    self.assertTrue(diloco.loggers.lines(island)())
                self.assertIn("diloco/islands_up 2", said.output[0])
                with self.assertRaisesRegex(diloco.DilocoError, "mlflow is not installed here: pip install mlflow"):
                    with unittest.mock.patch.dict(sys.modules, {"mlflow": None}):
                        diloco.loggers.mlflow(island)
                paris.ctl("stop")
                with self.assertRaisesRegex(diloco.DilocoError, "does not answer at .*control.sock"):
                    island.metrics()
                self.assertFalse(diloco.loggers.lines(island)())
                island.state_dict(), other.state_dict()

    def test_a_second_sigterm_ends_a_script_that_comes_to_no_step(self):
        """Unless it follows the first at once, of the daemon and of a launcher. What is at once, the script is told: a
        machine that stands between two signals makes any time between them longer."""
        script = (
            "import array, sys, time, diloco, diloco._signals as signals\n"
            "assert 0.5 <= signals.SAME_S <= 5\n"
            "signals.SAME_S = float(sys.argv[2])\n"
            "island = diloco.attach({'w': array.array('f', [1.0] * 64)}, socket=sys.argv[1], wait=20)\n"
            "print('here', flush=True)\n"
            "while not island.ending:\n"
            "    time.sleep(0.01)\n"
            "print('asked', flush=True)\n"
            "time.sleep(60)\n"
        )
        with Run(SPEC) as run:
            paris = run.found("paris", "")
            for same_s, ends in ((0, True), (600, False)):
                command = [sys.executable, "-c", script, paris.socket(), str(same_s)]
                with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as done:
                    self.assertEqual(done.stdout.readline(), "here\n")
                    done.send_signal(signal.SIGTERM)
                    self.assertEqual(done.stdout.readline(), "asked\n")
                    done.send_signal(signal.SIGTERM)
                    if not ends:
                        time.sleep(1)
                        self.assertIsNone(done.poll())
                        done.kill()
                    self.assertEqual(done.wait(20), -signal.SIGTERM if ends else -signal.SIGKILL)

    def test_a_script_that_is_asked_to_end_loses_nothing(self):
        """By whoever stops the daemon, in the middle of an interval."""
        with Run(SPEC.replace("steps = 300", "steps = 100000").replace("interval = 10", "interval = 5000")) as run:
            paris = run.found("paris", f"{TRAINER} --bare --sleep 5")
            paris.await_("some steps", lambda island: island.trainer().get("step", 0) > 60)
            paris.ctl("stop")
            self.assertIn("finished, over: False", paris.log())
            paris.ctl("start")
            paris.await_("its second life", lambda island: island.log().count("tokens trained, seeds") == 2)
            tokens = paris.trainer()
            self.assertGreaterEqual(tokens["tokens_counted"], 60 * 100)
            self.assertEqual(re.findall(r"after step \d+, (\d+) tokens trained", paris.log())[-1],
                             str(tokens["tokens_counted"]))

    def test_one_that_ended_before_is_waited_for_at_the_run_s_end(self):
        """It has said of each fragment that nothing more comes, and then it comes again: who takes the one for the
        run's end has older parameters than the run."""
        spec = SPEC.replace("steps = 300", "steps = 200").replace("late = merge", "late = merge\npace = lockstep")
        with Run(spec) as run:
            paris = run.found("paris", "")

            def train(sleep_ms):
                command = [*TRAINER.split(), "--bare", "--sleep", str(sleep_ms), "--with", "2", str(run.place)]
                environment = {**os.environ, "DILOCO_SOCKET": paris.socket()}
                return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

            with train(100) as begun:
                oslo = run.join("oslo", f"{TRAINER} --bare --sleep 0 --with 2 {run.place}")
                oslo.await_("its last step", lambda island: island.trainer().get("state") == "finishing")
                paris.await_("some steps", lambda island: island.trainer().get("step", 0) > 20)
                begun.send_signal(signal.SIGTERM)
                self.assertIn("finished, over: False", begun.communicate(timeout=30)[0])
            oslo.await_("that is heard", lambda island: "none" in
                        [one["trainer"] for one in json.loads(island.ctl("peers", "--json"))["peers"]])
            time.sleep(3)  # what is told at once is told within a tick
            self.assertNotIn("finished, over:", oslo.log())
            with train(0) as again:
                said = again.communicate(timeout=120)[0]
            oslo.await_finished()
            ends = [text.rpartition("finished, ")[2].splitlines()[0] for text in (said, oslo.log())]
            self.assertRegex(ends[0], r"over: True, norm \d")
            self.assertEqual(*ends)

    def test_a_process_that_the_script_forks_ends_as_ever(self):
        with Run(SPEC) as run:
            paris = run.found("paris", "")
            with diloco.attach({"w": array.array("f", [1.0] * 64)}, socket=paris.socket(), wait=20) as island:
                self.assertIsNot(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)
                child = os.fork()
                if child == 0:
                    while True:
                        time.sleep(1)
                time.sleep(0.2)
                os.kill(child, signal.SIGTERM)
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), -signal.SIGTERM)
                self.assertTrue(island.step(tokens=1))
                os.kill(os.getpid(), signal.SIGTERM)
                self.assertFalse(island.step(tokens=1))
                self.assertTrue(island.done and island.ending)
                self.assertFalse(island.finish())
                self.assertIn("this trainer was to end", island.why())
                self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)
            self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)

    def test_the_run_s_values_can_be_looked_at_while_training_goes_on(self):
        with Run(SPEC.replace("interval = 10", "interval = 50")) as run:
            paris = run.found("paris", "")
            values = array.array("f", [1.0] * 64)
            with diloco.attach({"w": values}, socket=paris.socket(), wait=20) as island:
                for _ in range(7):
                    for i in range(64):
                        values[i] += 1
                    island.step(tokens=1)
                with island.anchor():
                    self.assertEqual(set(values), {1.0})
                    for call in (island.step, island.finish, island.state_dict):
                        with self.assertRaisesRegex(diloco.DilocoError, r"within anchor\(\)"):
                            call()
                self.assertEqual(set(values), {8.0})
                with self.assertRaises(ZeroDivisionError), island.anchor():
                    1 // 0
                self.assertEqual(set(values), {8.0})
                while island.step(tokens=1):
                    pass
                island.finish()
                ends = list(values)
                with island.anchor():
                    self.assertEqual(list(values), ends)
            with self.assertRaisesRegex(diloco.DilocoError, "after detach"), island.anchor():
                pass

    def test_changed_says_whose_copies_are_to_be_made_anew(self):
        with Run(SPEC) as run:
            paris = run.found("paris", "")
            model = {name: array.array("f", [0.0] * 100) for name in ("layers.1.w", "layers.0.w")}
            alone = dict.fromkeys(model, 0)  # how often a tensor changed and the other one did not
            with diloco.attach(model, socket=paris.socket(), wait=20) as island:
                while not island.done:
                    for values in model.values():
                        for i in range(100):
                            values[i] += 0.01
                    before = {name: values.tobytes() for name, values in model.items()}
                    island.step(tokens=10)
                    moved = [name for name, values in model.items() if values.tobytes() != before[name]]
                    self.assertEqual([name for name in model if island.changed(name)], moved)
                    if len(moved) == 1:
                        alone[moved[0]] += 1
                    time.sleep(0.002)
                island.finish()
            self.assertGreater(min(alone.values()), 5)

    def test_a_checkpoint_goes_on_and_all_is_counted_once(self):
        def train(island, values, until):
            while island.run_step < until and not island.done:
                for i in range(100):
                    values[i] += 0.01
                island.step(tokens=10)
                time.sleep(0.002)

        with Run(SPEC) as run:
            paris = run.found("paris", "")
            values = array.array("f", [0.0] * 100)
            with diloco.attach({"w": values}, socket=paris.socket(), wait=20) as island:
                train(island, values, 55)
                state = island.state_dict()
                saved = array.array("f", values)
            cut = {"kept": state["kept"][:-3]}
            with self.assertRaisesRegex(diloco.DilocoError, "options.kept"):
                diloco.attach({"w": saved}, socket=paris.socket(), wait=20, state=cut)
            with diloco.attach({"w": saved}, socket=paris.socket(), wait=20, state=state) as island:
                self.assertEqual((island.start_step, island.tokens), (55, 550))
                train(island, saved, 300)
                self.assertTrue(island.finish())
            self.assertEqual(paris.trainer()["tokens_counted"], 3000)


if __name__ == "__main__":
    main()
