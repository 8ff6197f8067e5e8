# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of documents as they stand, in order: tests/docs/run.py [DOCUMENT]..., all without one.

Each document gets machines of its own, as many as it names (<!-- on: NAME -->): namespaces with a network between them,
and folders over this machine's. What a mark keeps from running is printed as skipped; DOCS_LONG=1 runs what only takes
long, DOCS_VERBOSE=1 prints what every command says, DOCS_ALL=1 goes on after a fault."""

import base64
import concurrent.futures
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from blocks import ROOT, Command, Wrong, blocks, commands, documents, man_blocks  # noqa: E402

TOOLS = Path(__file__).parent / "bin"
HOME = "here"  # the machine of a block that names none
MANUALS = ["docs/dilococtl.1", "docs/diloco-worker.1", "docs/dilocod.8", "docs/diloco-gateway.8"]
# What who reads a man page has: the programs, a text, which every machine has, and a run spec.
MANUAL_READERS = """make install >/dev/null
printf '[run]\\nname = x\\nsteps = 1000\\n[train]\\nbatch = 1\\n' >run.ini
printf '[model]\\nwidth = 16\\nlayers = 1\\nheads = 1\\ncontext = 16\\n' >>run.ini
"""
TOGETHER = 3  # documents
LIMIT_S = 300  # for one command
PATIENCE_S = int(os.environ.get("DOCS_PATIENCE", "45"))  # until what is asked for again shows what the document says

# What goes on until Ctrl-C is pressed: for some seconds.
FOREVER = r"^(sudo )?(\S*dilococtl (.* )?(watch|logs -f)\b|journalctl .*-f\b)"
# What changes nothing may be asked again until it says what the document says; and a save, which says itself to ask
# again where the trainer has only begun.
ASKED_AGAIN = (
    r"^(sudo (-u \w+ )?)?\S*dilococtl (.* )?((status|peers|fragments|logs|invite --list|save)\b|rekey \w+$)"
    r"|^journalctl|^cat |^ls "
)
# A run of hours becomes one of a minute: a model whose steps take milliseconds. It is to end when all of the document
# is read to the end, and not under somebody's hands on a machine that is fast or slow.
SHORTER = [
    (r"(?m)^steps = 20000$", "steps = 20000" if os.environ.get("DOCS_LONG") else "steps = 1000000"),
    (r"(?m)^width = \d{3,}$", "width = 32"),
    (r"(?m)^layers = ([4-9]|\d\d+)$", "layers = 2"),
    (r"(?m)^heads = ([4-9]|\d\d+)$", "heads = 2"),
    (r"(?m)^context = \d{3,}$", "context = 32"),
]

def say(text):
    print(text, flush=True)


def complete(text):
    done = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True)
    return done.returncode == 0 and "here-document" not in done.stderr and not text.rstrip("\n").endswith("\\")


class Machine:
    def __init__(self, name, number, clone):
        self.name = name
        self.shell = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "-mnupf", "--mount-proc", "--kill-child", "bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            bufsize=1,
        )
        pid, link = self.shell.pid, f"m{number}"
        self.link = link
        deadline = time.monotonic() + 20
        while os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net") and time.monotonic() < deadline:
            time.sleep(0.02)
        for words in (f"ip link add {link} type veth peer name eth0 netns {pid}", f"ip link set {link} master line up"):
            subprocess.run(words.split(), check=True)
        told = (str(clone), name, f"10.77.0.{number}", str(TOOLS))
        setup = " ".join(shlex.quote(word) for word in told)
        self.lines, self.ended = [], threading.Event()
        threading.Thread(target=self.read, daemon=True).start()
        status, said = self.run(f". {shlex.quote(str(clone / 'tests/docs/machine.sh'))} {setup}\n")
        if status != 0:
            raise Wrong(f"machine {name} cannot be made: {' / '.join(said)}")
        self.run("echo '10.77.0.1 paris.example.org' >>/etc/hosts\n")

    def read(self):
        for line in self.shell.stdout:
            self.lines.append(line.rstrip("\n"))
        self.ended.set()

    def run(self, text):
        """Exit status, and the lines that came."""
        begin = len(self.lines)
        end = f"@@{time.monotonic_ns()}"
        typed = base64.b64encode(text.encode()).decode()
        self.shell.stdin.write(f'eval "$(echo {typed} | base64 -d)" </dev/null; set -- $?; echo; echo {end} $1\n')
        self.shell.stdin.flush()
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline and not self.ended.is_set():
            for line in self.lines[begin:]:
                if line.startswith(end + " "):
                    said = self.lines[begin : self.lines.index(line)]
                    return int(line.split()[1]), [line for line in said if line.strip()]
            time.sleep(0.02)
        raise Wrong(f"it did not end within {LIMIT_S} s: {text.strip()}\n" + "\n".join(self.lines[begin:]))

    def end(self):
        self.shell.kill()
        self.shell.wait()
        # The kernel takes its time to clear a network away, and the next machine may be of the same number.
        subprocess.run(["ip", "link", "delete", self.link], stderr=subprocess.DEVNULL)


def pattern(line):
    """What a document shows, but for what varies: figures, times, keys, tokens; `…` stands for anything."""
    line = re.sub(r"dlc1\S+", "…", line.strip())
    line = re.sub(r"\b[0-9a-f]{12,}\b", "…", line)
    line = re.sub(r"\d[\d,.:]*", "0", line)
    units = "ms|s|min|h|d|B|kB|MB|GB|KiB|MiB|GiB|bit|kbit|Mbit|Gbit"
    line = re.sub(rf"(?<![\w])0( ({units})(/s)?\b)+", "0 unit", line)
    line = re.sub(r"0 unit( 0 unit)+", "0 unit", line)
    line = re.sub(r"(?<!\w)0[kM]\b", "0 unit", line)  # a busy machine does no thousand a second
    line = re.escape(line).replace("…", ".*").replace(r"0\ unit", r"[\d.,]+(?: ?\w+(?:/s)?)?(?: \d+ \w+)?")
    line = line.replace("0", r"\d[\d,.:]*")
    return re.compile(re.sub(r"(\\ )+", r"\\s+", line))


def missing(expected, said):
    """The first line expected that does not come in its turn, or None."""
    at = 0
    for line in expected:
        if not line.strip() or line.strip() in ("...", "…"):
            continue
        wanted = pattern(line)
        while at < len(said) and not wanted.fullmatch(said[at].strip()):
            at += 1
        if at == len(said):
            return line
        at += 1
    return None


class Reader:
    """Does what one document says, with machines of its own."""

    def __init__(self, path, clone):
        self.path, self.clone = path, clone
        self.machines, self.token, self.ran, self.skipped, self.bad = {}, None, 0, [], []

    def on(self, name):
        if name not in self.machines:
            number = 1 if name == "paris" else len(self.machines) + 2  # paris.example.org in all documents
            self.machines[name] = Machine(name, number, self.clone)
        return self.machines[name]

    def lacks(self, block):
        if "not run" in block.marks:
            return block.marks["not run"]
        if "long" in block.marks and not os.environ.get("DOCS_LONG"):
            return block.marks["long"]
        for need in block.marks.get("needs", "").split():
            if subprocess.run(["python3", "-c", f"import {need}"], capture_output=True).returncode != 0:
                return f"python3 has no {need} here"
        return None

    def do(self, block):
        lack = self.lacks(block)
        machine = block.marks.get("on", HOME)
        if "file" in block.marks and not lack:
            text = block.text
            for old, new in SHORTER:
                text = re.sub(old, new, text)
            typed = f"cat >{block.marks['file']} <<'END OF FILE'\n{text}END OF FILE\n"
            self.must(machine, Command(block.place, typed, []))
            return
        if block.language not in ("sh", "console"):
            return
        for command in commands(block, complete):
            if lack:
                self.skipped.append(f"skip: {command.place}: {command.text.splitlines()[0]} ({lack})")
                continue
            self.must(machine, command)
            self.ran += 1

    def must(self, name, command):
        text = command.text
        if self.token:
            text = re.sub(r"(?<![\w$-])TOKEN(?![\w=-])", self.token, text)
        forever = re.search(FOREVER, text)
        if forever:
            text = f"timeout --foreground -s INT 4 {text}"
        deadline = time.monotonic() + PATIENCE_S
        machine = self.on(name)
        begin = time.monotonic()
        while True:
            status, said = machine.run(text)
            lacking = missing(command.expected, said)
            good = status in (0, 124, 130) and said if forever else status == 0
            if good and lacking is None or time.monotonic() > deadline or not re.search(ASKED_AGAIN, text):
                break
            time.sleep(0.3)
        if os.environ.get("DOCS_VERBOSE"):
            took = f"{time.monotonic() - begin:.1f} s, status {status}"
            say(f"--- {command.place} on {name}, {took}\n$ {text.rstrip()}\n" + "\n".join(said))
        said_last = "\n".join("    " + line for line in said[-30:])
        shown = f"{command.place}: on {name}: {command.text.strip()}\n{said_last}"
        if not good:
            self.wrong(f"{shown}\n{command.place}: ended with status {status}")
        elif lacking is not None:
            self.wrong(f"{shown}\n{command.place}: it does not print in its turn: {lacking}")
        found = re.findall(r"dlc1\.\S+", "\n".join(said))
        if found:
            self.token = found[-1]

    def wrong(self, text):
        """The end of this document, unless who writes it wants to see all of it at once (DOCS_ALL=1)."""
        if not os.environ.get("DOCS_ALL"):
            raise Wrong(text)
        self.bad.append(text)

    def end(self):
        for machine in self.machines.values():
            machine.end()


def read(path, clone):
    """Whether all that a document says can be done."""
    begin, reader = time.monotonic(), Reader(path, clone)
    try:
        found = man_blocks(path) if path in MANUALS else blocks(path)
        if path in MANUALS:
            reader.must(HOME, Command(path, MANUAL_READERS, []))
        alone = [at for at, block in enumerate(found) if block.marks.get("on", HOME) == HOME]
        for at, block in enumerate(found):
            reader.do(block)
            if alone and at == alone[-1] and HOME in reader.machines:
                reader.machines.pop(HOME).end()  # its islands would only take others' time
    except Wrong as wrong:
        reader.bad.append(str(wrong))
    finally:
        reader.end()
    for line in reader.skipped:
        say(line)
    say(f"{path}: {reader.ran} commands ran, {len(reader.skipped)} were skipped, {time.monotonic() - begin:.0f} s")
    for text in reader.bad:
        say(f"FAIL {text}")
    return not reader.bad


def inside(path):
    """One document, in a network of its own."""
    for words in ("ip link set lo up", "ip link add line type bridge", "ip link set line up"):
        subprocess.run(words.split(), check=True)
    return 0 if read(path, ROOT) else 1


def outside(path, quiet=True):
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", "-mn", "--propagation", "private"]
    words += [sys.executable, __file__, "--inside", path]
    out = subprocess.PIPE if quiet else None
    done = subprocess.run(words, stdout=out, stderr=subprocess.STDOUT, text=True, errors="replace")
    print(done.stdout or "", end="", flush=True)
    return done.returncode


def main(words):
    if words[:1] == ["--inside"]:
        return inside(words[1])
    typed = [path for path in documents() if any(block.language in ("sh", "console") for block in blocks(path))]
    paths = words or typed + MANUALS
    if len(paths) == 1:
        return outside(paths[0], False)
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:  # most of the time they wait
        failed = [path for path, status in zip(paths, pool.map(outside, paths)) if status != 0]
    if failed:
        print(f"failed: {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
