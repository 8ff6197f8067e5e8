# SPDX-License-Identifier: Apache-2.0
"""What can be seen of the documents without running them: tests/lint/docs.sh.

Every block says what it is; Python compiles, C compiles against diloco.h, run specs are taken by their parser, keys of
other configurations exist; links and #anchors lead somewhere; tests that are named are there, with their cases;
versions of what goes over a wire or to disk are those of the code; every option that a command of the documents or of a
man page has is one of that program's, and every command is one."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from blocks import ROOT, Wrong, blocks, documents, man_blocks  # noqa: E402

BUILD = ROOT / os.environ.get("BUILD", "build/gcc")
PROGRAMS = ("dilocod", "dilococtl", "diloco-worker", "diloco-gateway")
MODULE = "diloco.tokenize"
MANUALS = {
    "dilocod": "docs/dilocod.8",
    "dilococtl": "docs/dilococtl.1",
    "diloco-worker": "docs/diloco-worker.1",
    "diloco-gateway": "docs/diloco-gateway.8",
}
faults = []
counts = {}


def fault(text):
    faults.append(text)


def count(what):
    counts[what] = counts.get(what, 0) + 1


def output(*words):
    done = subprocess.run([str(BUILD / words[0]), *words[1:]], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


# ---- what the programs know ----


def known():
    """{program: {command or "": options}}, by their own help."""
    table = {}
    for program in PROGRAMS:
        text = output(program, "--help")[1]
        table[program] = {"": set(re.findall(r"--[a-z][a-z-]*", text)) | {"--version", "--help"}}
        if program in ("dilocod", "diloco-gateway"):
            continue
        for command in re.findall(r"(?m)^  ([a-z]+)(?: |$)", text):
            status, told = output(program, command, "--help")
            if status == 0:
                table[program][command] = set(re.findall(r"--[a-z][a-z-]*", told)) | {"--help"}
    table[MODULE] = {"": module_options()}
    return table


def module_options():
    paths = os.environ | {"PYTHONPATH": str(ROOT / "worker/libdiloco/python"), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-m", MODULE, "--help"]
    told = subprocess.run(words, capture_output=True, text=True, env=paths, check=True).stdout
    return set(re.findall(r"--[a-z][a-z-]*", told))


def goals():
    """What `make` takes of a user: the others do not look whether all is there that they need."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    return {goal for row in re.findall(r"(?m)^(?:PLAIN_)?GOALS := (.*)$", text) for goal in row.split()}


def check_make(place, words):
    for word in words:
        if word.startswith("-") or re.match(r"[A-Za-z_]+=", word):
            continue
        if not re.fullmatch(r"[a-z-]+", word):
            break
        if word not in goals():
            fault(f"{place}: make has no goal {word}")
        count("goals")


def check_words(place, words, table):
    """One command as it is typed: program, command, options."""
    while words and (words[0] in ("sudo", "timeout") or re.fullmatch(r"[A-Z_]+=\S*", words[0])):
        words = words[1:]
        if words[:1] == ["-u"]:
            words = words[2:]
    if words[:1] == ["make"]:
        check_make(place, words[1:])
        return
    if words[1:3] == ["-m", MODULE]:
        words = words[2:]
    if not words or words[0].rsplit("/")[-1] not in (*PROGRAMS, MODULE):
        return
    program = words[0].rsplit("/")[-1]
    options = table[program]
    command = next((word for word in words[1:] if word in options), "") if program != "dilocod" else ""
    own = [word for before, word in zip(words, words[1:]) if not word.startswith("-") and not before.startswith("--")]
    first = own[0] if own else "help"
    if program in PROGRAMS[1:3] and not command and first != "help" and re.fullmatch(r"[a-z]+", first):
        fault(f"{place}: {program} has no command {first}")
    taken = options[command] | (options[""] if program != "diloco-worker" else set())
    for word in words[1:]:
        option = re.match(r"--[a-z][a-z-]*", word)
        if option and option[0] not in taken:
            fault(f"{place}: {program} {command} has no option {option[0]}")
        if option:
            count("options")
    count("commands")


def check_command(place, text, table):
    for part in re.split(r"\|\||&&|[|;&\n]|\$\(", re.sub(r"\\\n", " ", text)):
        try:
            words = shlex.split(re.sub(r"[)`]+\s*$", "", part), comments=True)
        except ValueError:
            words = part.split()
        check_words(place, words, table)


# Options in prose that are not our programs'.
OTHERS = {"--list", "--tests", "--programs", "--nproc-per-node", "--ddp", "--lora", "--data", "--namespaces"}
OTHERS |= {"--width", "--layers", "--heads", "--batch", "--lr", "--warmup"}  # of docs/examples/gpt.py


def check_span(place, text, table, every):
    """What stands between backquotes: a command, whole or without its program, or an option alone."""
    first = text.split()[0] if text.split() else ""
    if re.match(r"(sudo )?(dilocod|dilococtl|diloco-worker|diloco-gateway) ", text):
        check_command(place, text, table)
    elif first == "make":
        check_words(place, text.split(), table)
    elif first in table["dilococtl"] and "--" in text:
        check_words(place, ["dilococtl", *text.split()], table)
    elif first in table["diloco-worker"] and "--" in text:
        check_words(place, ["diloco-worker", *text.split()], table)
    elif re.match(r"--[a-z]", text) and re.match(r"--[a-z-]+", text)[0] not in every | OTHERS:
        fault(f"{place}: none of the programs has an option {first}")


# ---- blocks ----


def check_python(block):
    try:
        compile(block.text, block.place, "exec")
        count("Python blocks")
    except SyntaxError as error:
        fault(f"{block.place}: no Python: {error.msg} in its line {error.lineno}")


C_FRAME = """
static void body(void)
{
    struct diloco *d = NULL;
    struct diloco_options options = {.size = sizeof options};
    struct diloco_tensor tensor = {.size = sizeof tensor};
    struct diloco_start start = {.size = sizeof start};
    struct diloco_report report = {.size = sizeof report};
%s}
int main(void)
{
    body();
    return 0;
}
"""


def check_c(block, folder):
    lines = block.text.splitlines()
    includes = [line for line in lines if line.startswith("#include")]
    source = Path(folder) / "block.c"
    body = "\n".join(line for line in lines if line not in includes)
    source.write_text("#include <stddef.h>\n" + "\n".join(includes) + C_FRAME % body)
    compiler = os.environ.get("CC", "cc").split()
    done = subprocess.run(
        [*compiler, "-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", f"-I{ROOT}/worker/libdiloco", str(source)],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        fault(f"{block.place}: it does not compile:\n{done.stderr}")
    count("C blocks")


def check_ini(block, folder):
    """A run spec as a whole; of a configuration the keys alone, which --print-config documents."""
    path = Path(folder) / "block.ini"
    path.write_text(block.text)
    if re.search(r"(?m)^\[run\]", block.text) and re.search(r"(?m)^steps", block.text):
        status, said = output("diloco-worker", "spec", "--run", str(path))
        if status != 0:
            fault(f"{block.place}: {said.strip()}")
    else:
        sample = (ROOT / "conf/dilocod.conf").read_text() + (ROOT / "conf/run.ini").read_text()
        for key in re.findall(r"(?m)^#?(\w+) *=", block.text):
            if not re.search(rf"(?m)^#?{key} =", sample):
                fault(f"{block.place}: no configuration has a key {key}")
        for section in re.findall(r"(?m)^\[(\w+)", block.text):
            if f"\n[{section}" not in sample and f"\n#[{section}" not in sample:
                fault(f"{block.place}: no configuration has a section [{section}]")
    count("configurations")


# ---- links ----


def anchors(path):
    """As GitHub makes them of headings."""
    found, fenced = set(), False
    for line in path.read_text().splitlines():
        fenced ^= line.startswith("```")
        heading = re.match(r"#+ (.*)", line)
        if heading and not fenced:
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
            name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            number = sum(1 for other in found if re.fullmatch(re.escape(name) + r"(-\d+)?", other))
            found.add(f"{name}-{number}" if number else name)
    return found


def check_links(path):
    for number, line in enumerate(without_blocks(path).splitlines(), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            there = (ROOT / path).parent / file if file else ROOT / path
            if not there.exists():
                fault(f"{path}:{number}: {target}: no such file")
            elif anchor and anchor not in anchors(there):
                fault(f"{path}:{number}: {target}: no such heading")
            count("links")


TEST = r"`((?:unit|num|sim|system)/\w+)`((?:: |, )?(?:\*[^*]+\*(?:, |; )?)*)"


def check_tests(path):
    """A test that a document names, as `unit/test_x`: *a case of it*, *another one*, is there, and so are its cases."""
    text = " ".join(without_blocks(path).split())
    for name, cases in re.findall(TEST, text):
        source = ROOT / f"tests/{name}.c"
        if not source.exists() and not (ROOT / f"tests/{name}.sh").exists():
            fault(f"{path}: there is no test {name}")
        for case in re.findall(r"\*([^*]+)\*", cases) if source.exists() else []:
            count("tests")
            if re.sub(r"\W+", "_", case) + "(" not in source.read_text():
                fault(f"{path}: {name} has no case '{case}'")


# Of what goes over a wire or to disk: where a document says its version, and which constant of which file it is.
FIRST = r"` \|\n(?:\|.*\n)?\| [45] \| u8 \| version: (\d+)"
NEXT = r"`, u32 version (\d+)"
VERSIONS = [
    ("docs/PROTOCOL.md", r"protocol version: (\d+)", "net/transport/wire.h", "WIRE_VERSION"),
    ("docs/FORMATS.md", "magic `DLF1" + FIRST, "outer_opt/codec_types.h", "CODEC_FRAME_VERSION"),
    ("docs/FORMATS.md", "magic `DLO1" + FIRST, "net/transport/wire_object.h", "WIRE_OBJECT_VERSION"),
    ("docs/FORMATS.md", "magic `DLS1" + NEXT, "daemon/state/ledger.c", "LEDGER_VERSION"),
    ("docs/FORMATS.md", "magic `DLIV" + NEXT, "net/transport/invite.c", "INVITES_VERSION"),
    ("docs/FORMATS.md", "magic `DLE1" + NEXT, "daemon/membership/config_store.c", "FILE_VERSION"),
    ("docs/FORMATS.md", "magic `DLV1" + NEXT, "daemon/membership/vote.c", "VOTE_VERSION"),
    ("docs/FORMATS.md", "magic `DLM1" + NEXT, "daemon/membership/vote.c", "MARK_VERSION"),
]


def check_versions():
    for path, says, file, name in VERSIONS:
        said = re.findall(says, (ROOT / path).read_text())
        made = re.findall(rf"\b{name} = (\d+)", (ROOT / file).read_text())
        if len(said) != 1 or len(made) != 1:
            fault(f"{path}: '{says}' is there {len(said)} times, and {name} in {file} {len(made)} times")
        elif said != made:
            fault(f"{path} says version {said[0]}, where {name} of {file} is {made[0]}")
        count("versions")


def typed(block):
    lines = block.text.splitlines()
    return [line[2:] for line in lines if line[:2] in ("$ ", "> ")] if block.language == "console" else lines


def without_blocks(path):
    text = (ROOT / path).read_text()
    return re.sub(r"(?ms)^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text)


def check_document(path, table, every, folder):
    for block in blocks(path):
        count("blocks")
        if block.language in ("sh", "console"):
            check_command(block.place, "\n".join(typed(block)) + "\n", table)
        elif block.language == "python":
            check_python(block)
        elif block.language == "c":
            check_c(block, folder)
        elif block.language == "ini":
            check_ini(block, folder)
    check_links(path)
    check_tests(path)
    plain = without_blocks(path)
    for span in re.finditer(r"`([^`]+)`", plain):
        line = plain[: span.start()].count("\n") + 1
        check_span(f"{path}:{line}", span[1].replace("\n", " "), table, every)


def check_manual(program, path, table, every):
    plain = re.sub(r"\\f.", "", (ROOT / path).read_text()).replace("\\-", "-")
    for option in sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", plain))):
        count("options")
        if option not in every and not re.search(rf"train\.py *{option}", plain.replace("\n", " ")):
            fault(f"{path}: {program} has no option {option}")
    for option in sorted(set().union(*table[program].values())):
        if option not in plain:
            fault(f"{path}: {program} {option} is not in it")
    for block in man_blocks(path):
        check_command(block.place, block.text, table)


def check_help(table):
    for command in [command for command in table["dilococtl"] if command]:
        examples = output("dilococtl", command, "--help")[1].partition("\nexamples\n")[2]
        for line in examples.splitlines():
            check_command(f"dilococtl {command} --help", line, table)


def main():
    table = known()
    if any(len(commands) < 4 for program, commands in table.items() if program in PROGRAMS[1:3]):
        fault(f"only these commands were found in the programs' help: {table}")
    every = set().union(*(options for commands in table.values() for options in commands.values()))
    with tempfile.TemporaryDirectory() as folder:
        for path in documents():
            try:
                check_document(path, table, every, folder)
            except Wrong as wrong:
                fault(str(wrong))
    for program, path in MANUALS.items():
        check_manual(program, path, table, every)
    check_help(table)
    check_versions()
    least = {"blocks": 30, "commands": 60, "options": 100, "links": 40, "Python blocks": 2, "C blocks": 1}
    for what, number in least.items():
        if counts.get(what, 0) < number:
            fault(f"only {counts.get(what, 0)} {what} were found: this proves nothing")
    for text in faults:
        print(text)
    if not faults:
        print(", ".join(f"{number} {what}" for what, number in counts.items()))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
