# SPDX-License-Identifier: Apache-2.0
"""Text as it lies on disk: which files there are, and their documents, in pieces.

A piece begins and ends where a document does, and where it ends depends only on where it begins: so each can be worked
on alone, and who begins in the middle goes on with the same ones. Nothing here knows how many processes there are.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import json
import os
import re
import zlib
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, BinaryIO, Iterator

from ._errors import DilocoError

PIECE_BYTES = 1 << 19  # or a document more: enough that handing it over costs nothing, few enough for a smooth end
DOCUMENT_BYTES_MAX = 1 << 28  # encoding takes some hundred times the memory of the text
BLOCK_BYTES = 1 << 17
BOM = b"\xef\xbb\xbf"

TEXT, LINES, TABLE = "txt", "jsonl", "parquet"
KINDS = {".txt": TEXT, ".jsonl": LINES, ".json": LINES, ".parquet": TABLE}
PACKED = (".gz", ".bz2", ".xz", ".zst")
NAMES = ".txt, .jsonl, .json, each also with .gz, .bz2, .xz or .zst behind it, or .parquet"


@dataclass(frozen=True)
class Input:
    """One file."""

    name: str  # as in the manifest: what does not change when the folder is moved
    path: str
    kind: str
    packing: str  # one of PACKED, or nothing
    bytes: int
    mtime_ns: int


@dataclass(frozen=True)
class Rules:
    """How documents are found."""

    field: str
    split: str | None


@dataclass(frozen=True)
class Piece:
    """Whole documents of one file."""

    input: int  # number of the file
    path: str
    kind: str
    begin: int  # bytes of its text before this; of a table: row groups
    end: int
    line: int  # the first one's number, from 1
    data: bytes
    last: bool  # of its file
    disk_bytes: int  # of the file as it lies there, read by now


# ---- finding files ----


def _kind_of(path: str, others: str | None) -> tuple[str, str]:
    """Kind and packing; no kind: not known by its name."""
    stem, ending = os.path.splitext(path.lower())
    packing = ending if ending in PACKED else ""
    if packing:
        ending = os.path.splitext(stem)[1]
    kind = KINDS.get(ending, others or "")
    return ("", packing) if kind == TABLE and packing else (kind, packing)


def _walk(folder: str, without: set[tuple[int, int]]) -> Iterator[str]:
    """Names inside it, in no order; not what begins with a dot."""

    def stop(error: OSError) -> None:
        raise DilocoError(f"{error.filename}: {error.strerror}")

    for place, folders, files in os.walk(folder, onerror=stop):
        folders[:] = [f for f in folders if not f.startswith(".") and _identity(os.path.join(place, f)) not in without]
        for file in files:
            path = os.path.join(place, file)
            if not file.startswith(".") and _identity(path) not in without:
                yield os.path.relpath(path, folder)


def _identity(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise DilocoError(f"{path}: no such file or folder") from None
    except OSError as error:
        raise DilocoError(f"{path}: {error.strerror}") from None
    return status.st_dev, status.st_ino


def find(arguments: list[str], others: str | None, without: list[str]) -> tuple[list[Input], list[str]]:
    """The files of what was given, each folder's in order of name, less those of `without`; and those that were passed
    over, as their names say nothing. `others`: what these are."""
    left_out = {_identity(path) for path in without if os.path.exists(path)}
    found: list[tuple[str, str]] = []
    passed = []
    for argument in arguments:
        if not os.path.isdir(argument):
            found.append((os.path.basename(argument), argument))
            continue
        for name in sorted(_walk(argument, left_out), key=os.fsencode):
            path = os.path.join(argument, name)
            if _kind_of(path, others)[0]:
                found.append((name, path))
            else:
                passed.append(path)
    inputs: list[Input] = []
    seen: dict[tuple[int, int], str] = {}
    for name, path in found:
        which = _identity(path)
        kind, packing = _kind_of(path, others)
        if not kind:
            raise DilocoError(f"{path}: its name does not say what it is ({NAMES}); say it with --as txt or --as jsonl")
        if not os.path.isfile(path):
            raise DilocoError(f"{path}: neither file nor folder")
        if which in seen:
            raise DilocoError(f"{path}: given twice (also as {seen[which]}); give it once")
        seen[which] = path
        status = os.stat(path)
        inputs.append(Input(name, path, kind, packing, status.st_size, status.st_mtime_ns))
    for one in {(i.kind, i.packing): i for i in inputs}.values():
        _needed(one)
    return inputs, passed


# ---- what reads them ----

_PACKAGES = {".xz": "lzma", ".zst": "zstandard", TABLE: "pyarrow.parquet"}


def _needed(one: Input) -> Any:
    """The module that reads such a file."""
    module = _PACKAGES.get(one.packing or one.kind)
    if module is None:
        return None
    if one.packing == ".zst":
        try:
            return importlib.import_module("compression.zstd")  # with Python 3.14 and later
        except ImportError:
            pass
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.split(".")[0]
        remedy = f"pip install {package}" if package != "lzma" else "this Python was built without it; use another"
        raise DilocoError(f"{one.path}: reading it needs the package {package}: {remedy}") from None


class _Frames:
    """Zstandard's frames, one behind the other; one that is cut short is an error, as it is of the others."""

    def __init__(self, file: BinaryIO, module: Any):
        self.file, self.module = file, module
        self.frame: Any = None
        self.ready = bytearray()

    def _new(self) -> Any:
        decompressor = self.module.ZstdDecompressor()
        return decompressor.decompressobj() if hasattr(decompressor, "decompressobj") else decompressor

    def _more(self) -> bool:
        block = self.file.read(BLOCK_BYTES)
        if not block and self.frame is not None:
            raise EOFError("it ends within a frame")
        whole = bool(block)
        while block:
            self.frame = self.frame or self._new()
            self.ready += self.frame.decompress(block)
            block = self.frame.unused_data if self.frame.eof else b""
            if self.frame.eof:
                self.frame = None
        return whole

    def read(self, count: int) -> bytes:
        while len(self.ready) < count and self._more():
            pass
        taken = bytes(self.ready[:count])
        del self.ready[:count]
        return taken


def _text_of(one: Input, file: BinaryIO) -> Any:
    if one.packing == ".gz":
        return gzip.GzipFile(fileobj=file, mode="rb")
    if one.packing == ".bz2":
        return bz2.BZ2File(file)
    if one.packing == ".xz":
        return _needed(one).LZMAFile(file)
    if one.packing == ".zst":
        return _Frames(file, _needed(one))
    return file


class _Source:
    """The text of a file from some byte on."""

    def __init__(self, one: Input, begin: int):
        self.one, self.at = one, begin
        self.ends: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error)
        if one.packing in (".xz", ".zst"):
            module = _needed(one)
            self.ends += (getattr(module, "LZMAError", None) or module.ZstdError,)
        try:
            self.file = open(one.path, "rb")
        except OSError as error:
            raise DilocoError(f"{one.path}: cannot be read: {error.strerror}") from None
        self.text = _text_of(one, self.file)
        if not one.packing:
            self.file.seek(begin)
        else:
            self.at = 0
            while self.at < begin and self.read(min(begin - self.at, BLOCK_BYTES)):
                pass

    def read(self, count: int) -> bytes:
        try:
            data: bytes = self.text.read(count)
        except self.ends as error:
            what = f"damaged or cut short after {self.at} bytes of text" if self.one.packing else "cannot be read"
            raise DilocoError(f"{self.one.path}: {what} ({error}); mend it, and run the same command again") from None
        self.at += len(data)
        return data

    def disk_bytes(self) -> int:
        return self.file.tell()


# ---- cutting ----


def _separator(line: str, end: str) -> str:
    """Pattern of a whole line."""
    return r"(?<![^\n])" + re.escape(line) + r"\r?" + end


class _Cutter:
    """Where a piece may end: the first place from PIECE_BYTES on behind a document."""

    def __init__(self, kind: str, rules: Rules):
        self.pattern: re.Pattern[bytes] | None = None
        self.whole = kind == TEXT and rules.split is None
        if kind == LINES:
            self.pattern, self.overlap = re.compile(rb"\n"), 0
        elif rules.split is not None:
            self.pattern = re.compile(_separator(rules.split, r"\n").encode())
            self.overlap = len(rules.split.encode()) + 2
        self.looked = 0

    def end(self, text: bytearray) -> int:
        """0: not in what there is so far."""
        if self.pattern is None or len(text) < PIECE_BYTES:
            return 0
        for found in self.pattern.finditer(text, max(self.looked, PIECE_BYTES - 1) - self.overlap):
            if found.end() >= PIECE_BYTES:
                self.looked = 0
                return found.end()
        self.looked = len(text)
        return 0


def _rows(number: int, one: Input, begin: int) -> Iterator[Piece]:
    groups = _table(one.path).num_row_groups
    for group in range(begin, groups):
        disk = one.bytes * (group + 1) // groups
        yield Piece(number, one.path, TABLE, group, group + 1, 1, b"", group + 1 == groups, disk)


def pieces(number: int, one: Input, rules: Rules, begin: int = 0, line: int = 1) -> Iterator[Piece]:
    """Of one file, from `begin` on, where a piece ended and line `line` begins. An empty file has none."""
    if one.kind == TABLE:
        yield from _rows(number, one, begin)
        return
    source, cutter, text = _Source(one, begin), _Cutter(one.kind, rules), bytearray()
    more = True
    with source.file:
        while more or text:
            block = source.read(BLOCK_BYTES) if more else b""
            more = bool(block)
            text += block
            end = cutter.end(text)
            if end == 0 and more:
                if len(text) > DOCUMENT_BYTES_MAX:
                    raise DilocoError(
                        f"{one.path}: a document of over {DOCUMENT_BYTES_MAX >> 20} MiB, at or behind line {line}; "
                        "cut it up" + (", as with --split LINE" if cutter.whole else "")
                    )
                continue
            while end > 0 or (text and not more):
                data = bytes(text[: end or None])
                del text[: end or None]
                if not text and more:  # whether this was the last is known by what comes
                    text += source.read(BLOCK_BYTES)
                    more = bool(text)
                last = not text
                disk = one.bytes if last else min(source.disk_bytes(), one.bytes)
                yield Piece(number, one.path, one.kind, begin, begin + len(data), line, data, last, disk)
                begin, line = begin + len(data), line + data.count(b"\n")
                end = cutter.end(text)


# ---- documents of a piece ----


def _table(path: str) -> Any:
    try:
        return importlib.import_module("pyarrow.parquet").ParquetFile(path)
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise DilocoError(f"{path}: no whole Parquet file ({str(error).splitlines()[0]}); copy it again") from None


def _of_table(piece: Piece, rules: Rules) -> list[str]:
    table = _table(piece.path)
    names = table.schema_arrow.names
    if rules.field not in names:
        raise DilocoError(f'{piece.path}: no column "{rules.field}"; it has {_some(names)}: give --field NAME')
    values: list[Any] = table.read_row_group(piece.begin, columns=[rules.field]).column(0).to_pylist()
    for row, value in enumerate(values):
        if not isinstance(value, str):
            where = f"{piece.path}: row {row + 1} of row group {piece.begin + 1}"
            raise DilocoError(f'{where}: column "{rules.field}" is {_kind_name(value)}, not text')
    return values


def _some(names: Any) -> str:
    listed = [str(name) for name in names]
    return ", ".join(listed[:8]) + (" and more" if len(listed) > 8 else "") if listed else "none"


def _kind_name(value: Any) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object", str: "text"}
    return "null" if value is None else names.get(type(value), f"a {type(value).__name__}")


def _of_line(text: str, where: str, field: str) -> str:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DilocoError(f"{where}: no JSON ({error}); each line is to be one object") from None
    if not isinstance(said, dict):
        raise DilocoError(f"{where}: {_kind_name(said)}, not an object; each line is to be one (see jq -c '.[]')")
    if field not in said:
        raise DilocoError(f'{where}: no field "{field}"; it has {_some(said)}: give --field NAME')
    value = said[field]
    if not isinstance(value, str):
        raise DilocoError(f'{where}: field "{field}" is {_kind_name(value)}, not text')
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DilocoError(f'{where}: field "{field}" has half a surrogate pair, which no UTF-8 has; mend it') from None
    return value


def documents(piece: Piece, rules: Rules) -> list[str]:
    """Its texts, empty ones, too. Says file and place of what cannot be read."""
    if piece.kind == TABLE:
        return _of_table(piece, rules)
    data = piece.data
    marked = piece.begin == 0 and data.startswith(BOM)
    try:
        text = (data[len(BOM) :] if marked else data).decode()
    except UnicodeDecodeError as error:
        at = piece.begin + len(BOM) * marked + error.start
        raise DilocoError(f"{piece.path}: not UTF-8 at byte {at}; convert it (iconv), or take it out") from None
    if piece.kind == LINES:
        lines = enumerate(text.split("\n"), piece.line)
        return [_of_line(line, f"{piece.path}:{n}", rules.field) for n, line in lines if line and not line.isspace()]
    if rules.split is None:
        return [text]
    texts = re.split(_separator(rules.split, r"(?:\n|\Z)"), text)
    return texts if texts[-1] else texts[:-1]  # behind the last such line is no document


def digest(piece: Piece, texts: list[str]) -> bytes:
    """Of what was read: that of the bytes, and of a table that of its texts."""
    if piece.kind != TABLE:
        return blake2b(piece.data, digest_size=32).digest()
    sums = b"".join(blake2b(text.encode(), digest_size=32).digest() for text in texts)
    return blake2b(sums, digest_size=32).digest()


def chained(before: bytes, piece_digest: bytes) -> bytes:
    """Digest of a file up to the end of a piece; `before` is nothing at its beginning."""
    return blake2b(before + piece_digest, digest_size=32).digest()


def chain_to(one: Input, rules: Rules, end: int | None) -> bytes | None:
    """The same, read anew: up to `end`, or the whole file. None: no piece ends there."""
    chain, at = b"", 0
    for piece in pieces(0, one, rules):
        if end is not None and piece.end > end:
            return None
        texts = documents(piece, rules) if piece.kind == TABLE else []
        chain, at = chained(chain, digest(piece, texts)), piece.end
        if at == end:
            break
    return chain if end is None or at == end else None
