# SPDX-License-Identifier: Apache-2.0
"""A folder of token shards that is being filled: what is in it counts, whoever was stopped in between.

Tokens go into tokens-NNNNNN.bin.part. At a checkpoint they are flushed, then `progress.json` says how far they reach
and which parts are full, then those get their names. Who comes later cuts off what lies behind that. `manifest.json`,
last, says that all is there. docs/FORMATS.md 9 has the files.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
import time
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Callable

from . import _corpus
from ._errors import DilocoError

MANIFEST, PROGRESS, TOKENIZER = "manifest.json", "progress.json", "tokenizer.json"
MANIFEST_FORMAT, PROGRESS_FORMAT = "diloco token shards 1", "diloco token progress 1"
SHARDS_MAX = 10**6  # six digits: more would not be in order of name
SHARD_TOKENS_MAX = 2**32 - 1  # as the header counts them
HEADER_BYTES = 1024
HEADERS = {16: (20240520, 1), 32: (20240801, 7)}  # magic number and version, as worker/shard.c reads them
CHECKPOINT_S = 5.0
CHECKPOINT_SHARE = 0.05  # of all time, at most
HASH_BYTES = 1 << 20


@dataclass
class Place:
    """How far it has come."""

    input: int = 0
    offset: int = 0
    line: int = 1
    chain: str = ""  # digest of the input up to there
    part_tokens: int = 0  # in the shard that is not full
    documents: int = 0
    empty: int = 0
    tokens: int = 0
    text_bytes: int = 0
    shards: list[dict[str, Any]] = field(default_factory=list)


def digest_of(path: str) -> str:
    total = blake2b(digest_size=32)
    with open(path, "rb") as file:
        while True:
            block = file.read(HASH_BYTES)
            if not block:
                return total.hexdigest()
            total.update(block)


def _flush_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_whole(path: str, data: bytes) -> None:
    """The file is as it was, or as it is to be, whenever this ends."""
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        _write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(path + ".new", path)
    _flush_folder(os.path.dirname(path))


def _write_all(fd: int, data: Any) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _as_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


class Shards:
    """One folder. Its calls raise DilocoError, and OSError where the disk fails: refusal() makes one of that."""

    def __init__(self, folder: str, job: dict[str, Any], inputs: list[_corpus.Input], rules: _corpus.Rules):
        self.folder, self.job, self.inputs, self.rules = os.path.abspath(folder), job, inputs, rules
        self.shown = folder
        self.token_bytes = job["token_bits"] // 8
        self.header_bytes = HEADER_BYTES if job["format"] == "tokens" else 0
        self.place = Place()
        self.chains: list[str] = []  # of the inputs that are done
        self.fd = -1
        self.lock = -1
        self.full: list[int] = []  # parts that have no name yet
        self.saved_at = time.monotonic()
        self.save_took = 0.0
        self.unsaved = False
        self.changed_later = False

    # ---- opening ----

    def open(self, tokenizer: bytes, tell: Callable[[str], None]) -> bool:
        """Takes the folder: a new one, or goes on where another left off. False: all is there already."""
        os.makedirs(self.folder, exist_ok=True)
        self._take(tell)
        manifest, progress = self._read(MANIFEST), self._read(PROGRESS)
        if manifest is not None:
            self._check_finished(manifest)
            if progress is not None:
                os.unlink(self._path(PROGRESS))
            return False
        if progress is None:
            others = sorted(name for name in os.listdir(self.folder) if not name.endswith(".new"))
            if others:
                remedy = "give --out a new or empty folder"
                raise DilocoError(f"{self.shown}: holds {others[0]}, and no token shards; {remedy}")
            self._save()
        else:
            self._resume(progress, tell)
        _write_whole(self._path(TOKENIZER), tokenizer)
        return True

    def _take(self, tell: Callable[[str], None]) -> None:
        self.lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DilocoError(f"{self.shown}: another diloco.tokenize is at work in it; let it end") from None
        except OSError as error:
            tell(f"{self.shown}: cannot be locked ({error.strerror}); see that nothing else writes there")

    def _read(self, name: str) -> dict[str, Any] | None:
        formats = {MANIFEST: MANIFEST_FORMAT, PROGRESS: PROGRESS_FORMAT}
        try:
            with open(self._path(name), "rb") as file:
                said = json.loads(file.read())
        except FileNotFoundError:
            return None
        except ValueError:
            said = None
        if not isinstance(said, dict) or said.get("format") != formats[name]:
            raise DilocoError(f'{self._shown(name)}: is not of format "{formats[name]}"; give --out another folder')
        return said

    def _check_job(self, job: dict[str, Any]) -> None:
        if job["tokenizer"] != self.job["tokenizer"]:
            raise DilocoError(f"{self.shown}: made with another tokenizer.json; give that one, or --out another folder")
        for key, value in self.job.items():
            if job.get(key) != value:
                was = f"made with {key} = {job.get(key)}, not {value}"
                raise DilocoError(f"{self.shown}: {was}; give the same, or --out another folder")

    def _check_finished(self, manifest: dict[str, Any]) -> None:
        self._check_job(manifest["job"])
        was, now = manifest["inputs"], self._inputs_said()
        for before, after in zip(was, now):
            if before != after:
                raise DilocoError(f"{self.shown}: made from other inputs ({before['name']} has changed); {ANEW}")
        if len(was) != len(now):
            more = (was if len(was) > len(now) else now)[min(len(was), len(now))]["name"]
            raise DilocoError(f"{self.shown}: made from {len(was)} inputs, not {len(now)} ({more}); {ANEW}")
        self.place = Place(**{key: manifest[key] for key in ("documents", "empty", "tokens", "text_bytes", "shards")})
        for shard in self.place.shards:
            self._check_shard(shard, shard["name"])

    def _resume(self, progress: dict[str, Any], tell: Callable[[str], None]) -> None:
        self._check_job(progress["job"])
        self.place = Place(**progress["place"])
        self._check_inputs(progress["inputs"], tell)
        self.chains = [was["chain"] for was in progress["inputs"][: self.place.input]]
        wanted = {PROGRESS, TOKENIZER, self._name(len(self.place.shards)) + ".part"}
        for number, shard in enumerate(self.place.shards):
            wanted |= {shard["name"], shard["name"] + ".part"}
            if not os.path.exists(self._path(shard["name"])):
                self._check_shard(shard, shard["name"] + ".part")
                self.full.append(number)
            self._check_shard(shard, shard["name"] + (".part" if number in self.full else ""))
        self._name_full()
        for name in os.listdir(self.folder):
            if name not in wanted and not name.endswith((".part", ".new")):
                raise DilocoError(f"{self._shown(name)}: is none of this job's; take it away, or {ANEW}")
            if name not in wanted:
                os.unlink(self._path(name))
        if self.place.part_tokens > 0:
            self._open_part(self.place.part_tokens)
        elif os.path.exists(self._path(self._name(len(self.place.shards)) + ".part")):
            os.unlink(self._path(self._name(len(self.place.shards)) + ".part"))

    def _check_shard(self, shard: dict[str, Any], name: str) -> None:
        want = self.header_bytes + shard["tokens"] * self.token_bytes
        try:
            there = os.path.getsize(self._path(name))
        except FileNotFoundError:
            raise DilocoError(f"{self._shown(shard['name'])}: was written and is gone; {ANEW}") from None
        if there != want:
            raise DilocoError(f"{self._shown(name)}: has {there} bytes, and was written with {want}; {ANEW}")

    def _check_inputs(self, before: list[dict[str, Any]], tell: Callable[[str], None]) -> None:
        """What was read is as it was. What comes after that may be anything: it makes no difference yet."""
        reached = self.place.input + (self.place.offset > 0)
        for number, was in enumerate(before[:reached]):
            if number >= len(self.inputs) or self.inputs[number].name != was["name"]:
                now = self.inputs[number].name if number < len(self.inputs) else "nothing"
                raise DilocoError(f"{self.shown}: begun with other inputs ({was['name']}, now {now}); {ANEW}")
            one = self.inputs[number]
            if (one.bytes, one.mtime_ns) == (was["bytes"], was["mtime_ns"]):
                continue
            done = number < self.place.input
            chain = _corpus.chain_to(one, self.rules, None if done else self.place.offset)
            if chain is None or chain.hex() != (was["chain"] if done else self.place.chain):
                raise DilocoError(f"{one.path}: is not what it was when it was begun; restore it, or {ANEW}")
            tell(f"{one.path}: has another size or time than when it was begun; what was read of it is the same")

    # ---- names ----

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _shown(self, name: str) -> str:
        return os.path.join(self.shown, name)

    def _name(self, number: int) -> str:
        return f"tokens-{number:06d}.bin"

    # ---- filling ----

    def _open_part(self, tokens: int) -> None:
        number = len(self.place.shards)
        if number >= SHARDS_MAX:
            raise DilocoError(f"{self.shown}: over {SHARDS_MAX} shards; {ANEW}, and more --shard-tokens")
        name = self._name(number) + ".part"
        fd = os.open(self._path(name), os.O_RDWR | os.O_CREAT, 0o666)
        bytes_ = self.header_bytes + tokens * self.token_bytes
        if tokens > 0 and os.fstat(fd).st_size < bytes_:
            os.close(fd)
            raise DilocoError(f"{self._shown(name)}: is shorter than it was; {ANEW}")
        os.ftruncate(fd, bytes_)
        os.lseek(fd, bytes_, os.SEEK_SET)
        self.fd = fd

    def _end_part(self) -> None:
        """It keeps its name until a checkpoint has said that it is full."""
        tokens, number = self.place.part_tokens, len(self.place.shards)
        if self.header_bytes:
            magic, version = HEADERS[8 * self.token_bytes]
            os.pwrite(self.fd, struct.pack("<III", magic, version, tokens), 0)
        os.fsync(self.fd)
        os.close(self.fd)
        self.fd = -1
        name = self._name(number)
        self.place.shards.append({"name": name, "tokens": tokens, "blake2b": digest_of(self._path(name + ".part"))})
        self.full.append(number)
        self.place.part_tokens = 0

    def put(
        self, piece: _corpus.Piece, digest: bytes, tokens: bytes, documents: int, empty: int, text_bytes: int
    ) -> None:
        """What a piece has become; pieces come in their order."""
        place = self.place
        rest = memoryview(tokens)
        while rest:
            if self.fd < 0:
                self._open_part(0)
            taken = rest[: (self.job["shard_tokens"] - place.part_tokens) * self.token_bytes]
            _write_all(self.fd, taken)
            place.part_tokens += len(taken) // self.token_bytes
            rest = rest[len(taken) :]
            if place.part_tokens == self.job["shard_tokens"]:
                self._end_part()
        self._move(piece, digest)
        place.documents += documents
        place.empty += empty
        place.tokens += len(tokens) // self.token_bytes
        place.text_bytes += text_bytes
        self.unsaved = True
        if self.full or time.monotonic() - self.saved_at > max(CHECKPOINT_S, self.save_took / CHECKPOINT_SHARE):
            self.save()

    def _move(self, piece: _corpus.Piece, digest: bytes) -> None:
        place = self.place
        while place.input < piece.input:  # those between are empty
            self._next_input()
        place.chain = _corpus.chained(bytes.fromhex(place.chain), digest).hex()
        place.offset, place.line = piece.end, piece.line + piece.data.count(b"\n")
        if piece.last:
            self._next_input()

    def _next_input(self) -> None:
        self.chains.append(self.place.chain)
        self.place.input, self.place.offset, self.place.line, self.place.chain = len(self.chains), 0, 1, ""

    def save(self) -> None:
        """A checkpoint: what was put until now stays."""
        if self.unsaved:
            begin = time.monotonic()
            if self.fd >= 0:
                os.fsync(self.fd)
            self._save()
            self._name_full()
            self.saved_at = time.monotonic()
            self.save_took = self.saved_at - begin
            self.unsaved = False

    def _save(self) -> None:
        inputs = [
            {"name": one.name, "bytes": one.bytes, "mtime_ns": one.mtime_ns, "chain": chain}
            for one, chain in zip(self.inputs, self.chains + [""] * (len(self.inputs) - len(self.chains)))
        ]
        said = {"format": PROGRESS_FORMAT, "job": self.job, "place": vars(self.place), "inputs": inputs}
        _write_whole(self._path(PROGRESS), _as_json(said))

    def _name_full(self) -> None:
        for number in self.full:
            name = self._path(self._name(number))
            os.rename(name + ".part", name)
        if self.full:
            _flush_folder(self.folder)
        self.full = []

    def finish(self) -> None:
        """After the last piece."""
        place = self.place
        if place.tokens == 0:
            raise DilocoError(f"{self.shown}: there is no text in the inputs; give others, and --out another folder")
        if self.fd >= 0:
            self._end_part()
        self.unsaved = True
        self.save()
        counts = {key: getattr(place, key) for key in ("documents", "empty", "text_bytes", "tokens", "shards")}
        said = {"format": MANIFEST_FORMAT, "job": self.job, "inputs": self._inputs_said(), **counts}
        _write_whole(self._path(MANIFEST), _as_json(said))
        os.unlink(self._path(PROGRESS))

    def _inputs_said(self) -> list[dict[str, Any]]:
        return [{"name": one.name, "bytes": one.bytes} for one in self.inputs]

    def close(self) -> None:
        for fd in (self.fd, self.lock):
            if fd >= 0:
                os.close(fd)
        self.fd = self.lock = -1


ANEW = "give --out another folder"


def refusal(folder: str, error: OSError) -> DilocoError:
    where = error.filename or folder
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DilocoError(f"{folder}: the disk is full; make room, and run the same command again, which goes on")
    return DilocoError(f"{where}: {error.strerror or error}; mend that, and run the same command again")
