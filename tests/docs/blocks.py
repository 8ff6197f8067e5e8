# SPDX-License-Identifier: Apache-2.0
"""The code blocks of a document, and what the comments before them say. CONTRIBUTING.md, "Documents", has the rules."""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ("sh", "console", "python", "c", "ini", "text")
MARKS = ("not run", "long", "needs", "on", "file")


@dataclass
class Block:
    path: str
    line: int  # of the fence
    language: str
    text: str
    marks: dict = field(default_factory=dict)

    @property
    def place(self):
        return f"{self.path}:{self.line}"


@dataclass
class Command:
    place: str
    text: str
    expected: list  # lines that it prints, in a console block


class Wrong(Exception):
    pass


def documents():
    """Those that people read from the start; the others are checked for form alone."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    found += sorted((ROOT / "docs").rglob("*.md"))
    return [str(path.relative_to(ROOT)) for path in found]


def blocks(path, root=ROOT):
    """All fenced blocks of a document; raises Wrong, with every fault, where one is not as the rules say."""
    lines = (root / path).read_text().splitlines()
    found, faults, marks, fence, listed = [], [], {}, None, False
    for number, line in enumerate(lines, 1):
        if fence is not None:
            if line.strip() == "```":
                found.append(Block(path, fence[0], fence[1], "\n".join(fence[2]) + "\n", fence[3]))
                fence, marks = None, {}
            else:
                fence[2].append(line)
            continue
        if line.startswith("```"):
            language = line[3:].strip()
            if language not in LANGUAGES:
                known = ", ".join(LANGUAGES)
                faults.append(f"{path}:{number}: the block is marked {language!r}, and not as one of {known}")
            fence = (number, language, [], marks)
            continue
        mark = re.fullmatch(r"<!-- ([a-z ]+): (.+) -->", line)
        if mark:
            if mark[1] not in MARKS:
                faults.append(f"{path}:{number}: no mark is called {mark[1]!r}; there are {', '.join(MARKS)}")
            marks = marks | {mark[1]: mark[2]}
            continue
        if line.startswith("<!--") and re.match(r"<!-- *(not|long|needs|on|file)\b", line):
            faults.append(f"{path}:{number}: a mark is written <!-- NAME: TEXT -->, on a line of its own")
        if line.strip():
            if marks:
                faults.append(f"{path}:{number}: the mark before this line is of no block")
            marks = {}
            if re.match(r" *([-*]|\d+\.) ", line):
                listed = True
            elif not line.startswith(" "):
                listed = False
            if line.startswith(("    ", "\t")) and not listed and not lines[number - 2].strip():
                faults.append(f"{path}:{number}: an indented block says not what it is; fence it")
    if fence is not None:
        faults.append(f"{path}:{fence[0]}: the block has no end")
    if faults:
        raise Wrong("\n".join(faults))
    return found


def man_blocks(path, root=ROOT):
    """What stands between .nf and .fi below .SH EXAMPLE of a man page, as sh blocks."""
    found, inside, text, marks = [], False, None, {}
    for number, line in enumerate((root / path).read_text().splitlines(), 1):
        if line.startswith(".SH"):
            inside = line.startswith(".SH EXAMPLE")
        mark = re.fullmatch(r'\.\\" ([a-z ]+): (.+)', line)
        if mark and mark[1] in MARKS:
            marks = marks | {mark[1]: mark[2]}
        elif inside and line == ".nf":
            text, begin = [], number
        elif line == ".fi" and text is not None:
            found.append(Block(path, begin, "sh", "\n".join(text) + "\n", marks))
            text, marks = None, {}
        elif text is not None:
            text.append(line.replace("\\-", "-").replace("\\e", "\\"))
    return found


def commands(block, complete):
    """The commands of an sh or console block, one by one. complete(text) says whether a shell would run it as it is."""
    found, text, expected, begin = [], "", [], 0

    def end():
        if text:
            found.append(Command(f"{block.path}:{begin}", text, expected))

    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if block.language == "console" and not line.startswith("$ ") and (not text or complete(text)):
            if not text:
                raise Wrong(f"{block.path}:{number}: a console block begins with a command, after `$ `")
            expected.append(line)
            continue
        if block.language == "console" and line.startswith("$ "):
            end()
            text, expected, begin, line = "", [], number, line[2:]
        elif block.language == "console" and line.startswith("> "):
            line = line[2:]
        if block.language == "sh" and (not text or complete(text)):
            if not line.strip() or line.startswith("#"):
                continue
            end()
            text, expected, begin = "", [], number
        text += line + "\n"
    end()
    if text and not complete(text):
        raise Wrong(f"{block.path}:{begin}: the command has no end")
    return found
