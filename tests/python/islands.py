# SPDX-License-Identifier: Apache-2.0
"""Real islands for tests of the Python package: daemons in folders of their own, on loopback, with trainers of ours."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD", "build/gcc")
PACKAGE = ROOT / "worker/libdiloco/python"
TEXT = ROOT / "tests/demo/shakespeare.txt"
PATIENCE_S = 300  # a machine may be busy, and PyTorch slow in 16 bits on its processor

sys.dont_write_bytecode = True
signal.signal(signal.SIGINT, signal.default_int_handler)  # for what we start, too: it may be ignored in the background
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
os.environ["DILOCO_LIBRARY"] = str(BUILD / "libdiloco.so.0")
os.environ["PYTHONPATH"] = f"{PACKAGE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
sys.path.insert(0, str(PACKAGE))


def device() -> str:
    """Where models are made within a Run: on a GPU where there is one, unless DILOCO_TEST_DEVICE says cpu."""
    import torch

    return os.environ.get("DILOCO_TEST_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")


def ours() -> dict:
    """The environment of our programs, whose libraries may lie where Python does not look, as in the kit for GPUs."""
    libraries = os.environ.get("DILOCO_TEST_LIBRARIES")
    return {**os.environ, "LD_LIBRARY_PATH": libraries} if libraries else dict(os.environ)


def _make_models_on(where) -> None:
    if "torch" in sys.modules and device() != "cpu":
        sys.modules["torch"].set_default_device(where)


class Run:
    """A run of islands; what it started is stopped when it ends."""

    def __init__(self, spec: str):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="diloco-py-", dir="/tmp"))  # sockets have short paths
        (self.place / "run.ini").write_text(spec)
        self.islands: list["Island"] = []

    def __enter__(self):
        _make_models_on(device() if "torch" in sys.modules else None)
        return self

    def __exit__(self, kind, error, trace):
        _make_models_on(None)
        for island in self.islands:
            if kind is not None:
                print(f"--- the log of {island.name}:\n" + "\n".join(island.log().splitlines()[-30:]), file=sys.stderr)
            island.ctl("stop", check=False)
        shutil.rmtree(self.place, ignore_errors=True)

    def found(self, name: str, program: str) -> "Island":
        """The run's first island."""
        command = ["init", "--run", str(self.place / "run.ini"), "--listen", "127.0.0.1:0"]
        return self._made(Island(self, name), program, command)

    def found_with_gateway(self, name: str) -> "Island":
        """One whose daemon has no rank beside it."""
        return self.found(name, f"{BUILD}/diloco-gateway --listen 127.0.0.1:{free_port()}")

    def join(self, name: str, program: str, *more: str) -> "Island":
        said = self.islands[0].ctl("invite", "--address", f"127.0.0.1:{self.islands[0].port}")
        token = re.search(r"dlc1\.\S+", said).group(0)
        return self._made(Island(self, name), program, ["join", token, *more, "--listen", "127.0.0.1:0"])

    def _made(self, island: "Island", program: str, command: list[str]) -> "Island":
        command[-1] = f"127.0.0.1:{island.port}"  # of each one, as all have to hear each other
        island.ctl(*command, "--name", island.name, "--data", str(TEXT), "--no-start")
        conf = island.home / "dilocod.conf"
        conf.write_text(re.sub(r"(?m)^program = .*", f"program = {program}", conf.read_text()))
        self.islands.append(island)
        island.ctl("start")
        return island


class Island:
    def __init__(self, run: Run, name: str):
        self.run, self.name = run, name
        self.home = run.place / name
        self.port = free_port()

    def ctl(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [str(BUILD / "dilococtl"), *arguments, "--home", str(self.home)],
            capture_output=True, text=True, timeout=PATIENCE_S, env=ours(),
        )
        if check and done.returncode != 0:
            raise AssertionError(f"dilococtl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def status(self) -> dict:
        done = subprocess.run(
            [str(BUILD / "dilococtl"), "status", "--json", "--home", str(self.home)],
            capture_output=True, text=True, env=ours(),
        )
        return json.loads(done.stdout) if done.stdout.strip().startswith("{") else {}

    def trainer(self) -> dict:
        return self.status().get("trainer", {})

    def log(self) -> str:
        path = self.home / "dilocod.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def pid(self) -> int:
        """Of its daemon, or of the last one."""
        return int((self.home / "dilocod.pid").read_text().split()[0])

    def socket(self) -> str:
        """Of the daemon, or of its gateway, whose key is in our environment then."""
        listens = re.search(r"(?m)^program = .*diloco-gateway --listen (\S+)", (self.home / "dilocod.conf").read_text())
        if listens is None:
            return str(next(self.home.rglob("worker.sock")))
        os.environ["DILOCO_SITE_KEY"] = str(self.home / "site.key")
        self.await_("the site's key", lambda island: (island.home / "site.key").exists())
        return f"tcp://{listens[1]}"

    def anchors(self) -> str:
        return self.status().get("anchors", "")

    def await_(self, what: str, true, seconds: float = PATIENCE_S, pause: float = 0.2) -> None:
        end = time.monotonic() + seconds
        while not true(self):
            if time.monotonic() > end:
                raise AssertionError(f"{self.name}: not within {seconds:.0f} s: {what}; trainer: {self.trainer()}")
            time.sleep(pause)

    def await_finished(self) -> None:
        self.await_("the end of training", lambda island: island.trainer().get("state") == "finished")

    def await_log(self, text: str, seconds: float = PATIENCE_S) -> None:
        self.await_(f"the log says {text!r}", lambda island: text in island.log(), seconds)


_claimed: list[socket.socket] = []


def free_port() -> int:
    """One that no other test takes while this one runs; see proc_free_port() of tests/lib."""
    for i in range(12000):
        port = 20000 + (os.getpid() * 37 + i) % 12000
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0diloco-test-port-{port}")
            with socket.socket() as tcp:
                tcp.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claimed.append(claim)
        return port
    raise AssertionError("no port is free")


def assert_one_model(islands: list[Island]) -> None:
    """All have ended with the same anchors, bit for bit."""
    for island in islands:
        island.await_finished()
    last = time.monotonic() + 30
    while len({island.anchors() for island in islands}) != 1:
        if time.monotonic() > last:
            raise AssertionError(f"anchors differ: {[(island.name, island.anchors()) for island in islands]}")
        time.sleep(0.2)
    assert len(islands[0].anchors()) == 64, islands[0].anchors()


def anchor_of(island: Island) -> dict:
    """The exported model as torch tensors, read as the format's definition says."""
    import torch

    path = island.home / "state/anchor.safetensors"
    island.await_("the exported anchor", lambda _: path.exists())
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, values = json.loads(data[8 : 8 + size]), data[8 + size :]
    return {
        name: torch.frombuffer(bytearray(values[slice(*entry["data_offsets"])]), dtype=torch.float32)
        .view(entry["shape"]).to(device())
        for name, entry in header.items()
        if name != "__metadata__"
    }


def main() -> None:
    """Runs the tests of the file that calls it; 77: each of them was skipped, and has said why."""
    done = unittest.main(exit=False).result
    if done.skipped and len(done.skipped) >= done.testsRun and done.wasSuccessful():
        for _, reason in done.skipped:
            print(f"skip: {reason}")
        sys.exit(77)
    sys.exit(0 if done.wasSuccessful() and done.testsRun > 0 else 1)
