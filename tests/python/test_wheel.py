# SPDX-License-Identifier: Apache-2.0
"""The wheel, as somebody gets it who has Python and nothing of ours: an environment and no library beside it."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile

from islands import BUILD, ROOT, Run, assert_one_model, main

SPEC = """[run]
name = wheel
steps = 100
[sync]
interval = 10
layers_per_fragment = 1
late = merge
"""


def clean() -> dict:
    """The environment without what leads to a library or a package of the tree."""
    ours = ("DILOCO_LIBRARY", "PYTHONPATH", "LD_LIBRARY_PATH")
    return {name: value for name, value in os.environ.items() if name not in ours}


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="diloco-wheel-")
        cls.addClassCleanup(cls.folder.cleanup)
        place = pathlib.Path(cls.folder.name)
        made = subprocess.run(
            ["conf/wheel.sh", str(BUILD / "libdiloco.so.0"), os.uname().machine, str(place / "wheel")],
            cwd=ROOT, env=clean() | {"PYTHON": sys.executable}, capture_output=True, text=True,
        )
        if made.returncode != 0 and re.search("pip could not build|has no pip", made.stderr):
            raise unittest.SkipTest(made.stderr.splitlines()[-1])
        assert made.returncode == 0, made.stderr
        cls.wheel = pathlib.Path(made.stdout.strip())
        venv.create(place / "venv", with_pip=True)
        cls.python = place / "venv/bin/python3"
        subprocess.run([cls.python, "-m", "pip", "install", "-q", "--no-index", cls.wheel], check=True, env=clean())

    def ask(self, code: str, **env: str) -> str:
        done = subprocess.run([self.python, "-c", code], cwd="/", env=clean() | env, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_its_name_says_what_it_is_for(self):
        tag = self.wheel.name.split("-", 2)[2].removesuffix(".whl")
        found = re.fullmatch(rf"py3-none-manylinux_2_(\d+)_{os.uname().machine}", tag)
        self.assertIsNotNone(found, tag)
        with zipfile.ZipFile(self.wheel) as files:
            self.assertIn(f"Tag: {tag}", files.read(next(n for n in files.namelist() if n.endswith("/WHEEL"))).decode())
            library = files.extract("diloco/libdiloco.so.0", self.folder.name)
        said = subprocess.run(["readelf", "-V", library], capture_output=True, text=True, check=True).stdout
        self.assertEqual(max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", said)), int(found.group(1)))
        refused = subprocess.run(
            [self.python, "-m", "pip", "download", "-q", "--no-index", "--no-deps", "--only-binary=:all:",
             "-f", self.wheel.parent, "--platform", f"manylinux_2_17_{os.uname().machine}",
             "-d", self.folder.name, "diloco"],
            env=clean(), capture_output=True, text=True,
        )
        self.assertNotEqual(refused.returncode, 0)

    def test_the_whole_licence_is_in_it(self):
        with zipfile.ZipFile(self.wheel) as files:
            texts = {name.rsplit("/")[-1]: files.read(name).decode() for name in files.namelist() if "LICENSE" in name}
        self.assertIn("SPDX-License-Identifier: Apache-2.0", texts["LICENSE"])
        self.assertIn("TERMS AND CONDITIONS FOR USE", texts["LICENSE.Apache-2.0.txt"])

    def test_the_library_is_its_own(self):
        code = "from diloco import _abi; print(_abi.library()._name)"
        for others in ("", str(BUILD)):  # also where the system has one
            said = self.ask(code, LD_LIBRARY_PATH=others)
            self.assertRegex(said, r"venv/lib/python.*/site-packages/diloco/libdiloco\.so\.0$")

    def test_a_library_that_needs_others_is_refused(self):
        library = f"{self.folder.name}/needy.so"
        command = [*os.environ.get("CC", "cc").split(), "-shared", "-Wl,--no-as-needed", "-lsodium", "-o", library]
        subprocess.run([*command, "-x", "c", "/dev/null"], check=True)
        made = subprocess.run(
            ["conf/wheel.sh", library, os.uname().machine, f"{self.folder.name}/needy"],
            cwd=ROOT, env=clean() | {"PYTHON": sys.executable}, capture_output=True, text=True,
        )
        self.assertNotEqual(made.returncode, 0)
        self.assertRegex(made.stderr, r"needs libsodium\.so\.\d+, which a wheel cannot count on")

    def test_a_trainer_of_that_environment_is_an_island(self):
        trainer = ROOT / "tests/python/plain_trainer.py"
        kept = {name: os.environ.pop(name, None) for name in ("DILOCO_LIBRARY", "PYTHONPATH")}
        try:
            with Run(SPEC) as run:
                paris = run.found("paris", f"{self.python} -u {trainer} --sleep 10")
                oslo = run.join("oslo", f"{self.python} -u {trainer} --sleep 10")
                assert_one_model([paris, oslo])
                self.assertIn("over: True", paris.log())
        finally:
            os.environ.update({name: value for name, value in kept.items() if value is not None})


if __name__ == "__main__":
    main()
