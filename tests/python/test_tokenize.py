# SPDX-License-Identifier: Apache-2.0
"""diloco.tokenize with nothing but Python, its tokenizer played by plain_tokenizer.py: what is read, how it is cut into
shards, and that it makes no difference how many processes make them or how often they are killed."""

import array
import bz2
import contextlib
import dataclasses
import gzip
import hashlib
import io
import json
import lzma
import os
import pathlib
import random
import re
import shutil
import signal
import string
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from islands import BUILD, PATIENCE_S, ROOT

import plain_tokenizer
from diloco import _corpus, _progress, _shards, tokenize

PROGRAM = [sys.executable, f"{ROOT}/tests/python/plain_tokenizer.py"]
TOKENS = ["?", "<|endoftext|>", *string.ascii_letters, *" .,:;!\n0123456789"]
EOT = 1
PACKED = ((bytes, ""), (gzip.compress, ".gz"), (lzma.compress, ".xz"), (bz2.compress, ".bz2"))
MEMORY = "/dev/shm"  # a disk that is flushed in no time
HEADERS = {20240520: ("H", 1), 20240801: ("I", 7)}


def encoded(texts, eot=EOT):
    """What is to come of texts."""
    number = {token: n for n, token in enumerate(TOKENS)}
    tokens = []
    for text in texts:
        if text:
            tokens += [number.get(letter, 0) for letter in text] + ([eot] if eot is not None else [])
    return tokens


def read_shard(path):
    """As docs/FORMATS.md 9 has it."""
    data = path.read_bytes()
    magic, version, count = struct.unpack_from("<III", data)
    kind, want = HEADERS[magic]
    assert version == want and not any(data[12:1024]), path
    tokens = array.array(kind, data[1024:])
    assert len(tokens) == count, path
    return tokens.tolist()


def shards_of(folder):
    return [read_shard(path) for path in sorted(folder.glob("tokens-*.bin"))]


def plain(piece):
    """Without how far the file was read for it."""
    return dataclasses.replace(piece, disk_bytes=0)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class Case(unittest.TestCase):
    def setUp(self):
        where = MEMORY if os.access(MEMORY, os.W_OK) else None
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="diloco-tokens-", dir=where))
        self.addCleanup(shutil.rmtree, self.place)
        slow = mock.patch.object(_progress, "LINE_S", 1e9)  # however slow the machine, a line is what is wrong
        slow.start()
        self.addCleanup(slow.stop)
        (self.place / "tokenizer.json").write_text(json.dumps(TOKENS))
        self.out = self.place / "out"
        self.random = random.Random(1)

    def text(self, letters):
        return "".join(self.random.choices("etaoin shrdlu,.", k=letters))

    def corpus(self, files=3, documents=40, letters=60):
        """A folder of JSON lines, packed and not, and of texts; and its documents in order."""
        folder = self.place / "corpus"
        folder.mkdir()
        texts = []
        for number in range(files):
            own = [self.text(self.random.randrange(letters)) for _ in range(documents)]
            texts += own
            lines = "".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(own)).encode()
            pack, ending = PACKED[number % len(PACKED)]
            (folder / f"{number:03d}.jsonl{ending}").write_bytes(pack(lines))
        (folder / "empty.txt").write_text("")
        texts.append(self.text(500))
        (folder / "last.txt").write_text(texts[-1])
        return folder, texts

    def arguments(self, *inputs, out=None, **options):
        named = {"tokenizer": self.place / "tokenizer.json", "out": out or self.out, "workers": 0, **options}
        return [str(i) for i in inputs] + [f"--{name.replace('_', '-')}={value}" for name, value in named.items()]

    def ran(self, *inputs, **options):
        """Exit status, and what was said as standard output and error."""
        said, complained = io.StringIO(), io.StringIO()
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
            status = tokenize.main(self.arguments(*inputs, **options), plain_tokenizer.PlainTokenizer)
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), handlers):
            signal.signal(number, handler)
        return status, said.getvalue(), complained.getvalue()

    def made(self, *inputs, **options):
        status, said, complained = self.ran(*inputs, **options)
        self.assertEqual((status, complained), (0, ""))
        return said

    def refused(self, words, *inputs, **options):
        status, _, complained = self.ran(*inputs, **options)
        self.assertEqual(status, 1, complained)
        self.assertEqual(len(complained.splitlines()), 1, complained)
        self.assertIn(words, complained)

    def process(self, *arguments, **env):
        return subprocess.Popen(
            [*PROGRAM, *arguments], env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )


class Documents(Case):
    def test_documents_of_all_kinds_in_their_order_each_with_an_end(self):
        folder, texts = self.corpus(files=8)
        said = self.made(folder, shard_tokens=1000)
        shards = shards_of(self.out)
        self.assertEqual(sum(shards, []), encoded(texts))
        self.assertEqual([len(shard) for shard in shards[:-1]], [1000] * (len(shards) - 1))
        self.assertLessEqual(len(shards[-1]), 1000)
        self.assertEqual((self.out / "tokenizer.json").read_bytes(), (self.place / "tokenizer.json").read_bytes())
        self.assertIn(f"{len(sum(shards, [])):,} tokens of {sum(map(bool, texts))} documents", said)
        self.assertIn(f"[model] vocab = {len(TOKENS)}    [data] format = tokens", said)
        self.assertIn(f"--data '{self.out}/tokens-*.bin'", said)

    def test_the_manifest_says_what_is_there(self):
        folder, texts = self.corpus()
        self.made(folder, shard_tokens=1000)
        manifest = json.loads((self.out / "manifest.json").read_text())
        self.assertEqual(manifest["format"], "diloco token shards 1")
        files = sorted(folder.iterdir())
        self.assertEqual(manifest["inputs"], [{"name": file.name, "bytes": file.stat().st_size} for file in files])
        self.assertEqual(manifest["tokens"], len(encoded(texts)))
        self.assertEqual((manifest["documents"], manifest["empty"]), (sum(map(bool, texts)), texts.count("")))
        digest = hashlib.blake2b((self.place / "tokenizer.json").read_bytes(), digest_size=32).hexdigest()
        self.assertEqual(manifest["job"]["tokenizer"], digest)
        for shard in manifest["shards"]:
            data = (self.out / shard["name"]).read_bytes()
            self.assertEqual(shard["blake2b"], hashlib.blake2b(data, digest_size=32).hexdigest())
            self.assertEqual(shard["tokens"], len(read_shard(self.out / shard["name"])))
        self.assertEqual(len(manifest["shards"]) + 2, len(list(self.out.iterdir())))

    def test_pieces_end_where_documents_do_and_do_not_depend_on_where_one_begins(self):
        lines = "".join(json.dumps({"text": self.text(self.random.randrange(300))}) + "\n" for _ in range(300))
        file = self.place / "a.jsonl"
        file.write_text(lines + '{"text": "without an end"}')
        split = self.place / "b.txt"
        ends = ("--\n", "", "")
        split.write_text("".join(f"{self.text(self.random.randrange(90))}\n{ends[n % 3]}" for n in range(900)))
        with mock.patch.object(_corpus, "PIECE_BYTES", 700), mock.patch.object(_corpus, "BLOCK_BYTES", 97):
            for path, separator in ((file, None), (split, "--")):
                rules = _corpus.Rules("text", separator)
                one = _corpus.find([str(path)], None, [])[0][0]
                whole = list(_corpus.pieces(0, one, rules))
                self.assertGreater(len(whole), 30)
                self.assertEqual(b"".join(piece.data for piece in whole), path.read_bytes())
                self.assertEqual([piece.last for piece in whole], [False] * (len(whole) - 1) + [True])
                for number, piece in enumerate(whole):
                    self.assertEqual(piece.line, path.read_bytes()[: piece.begin].count(b"\n") + 1)
                    if number % 7 == 0:
                        again = list(_corpus.pieces(0, one, rules, piece.begin, piece.line))
                        self.assertEqual([plain(piece) for piece in again], [plain(piece) for piece in whole[number:]])
                texts = [text for piece in whole for text in _corpus.documents(piece, rules)]
                with mock.patch.object(_corpus, "PIECE_BYTES", 1 << 20):
                    (all_of_it,) = _corpus.pieces(0, one, rules)
                self.assertEqual(texts, _corpus.documents(all_of_it, rules))

    def test_lines_between_documents(self):
        file = self.place / "a.txt"
        for text, separator, want in (
            ("one\ntwo\n---\nthree\n----\nfour\n", "---", ["one\ntwo\n", "three\n----\nfour\n"]),
            ("one\r\n---\r\ntwo", "---", ["one\r\n", "two"]),
            ("one\n\n\ntwo\n", "", ["one\n", "two\n"]),
            ("---\none\n---", "---", ["one\n"]),
            ("a.c\nabc\n", "a.c", ["abc\n"]),
        ):
            shutil.rmtree(self.out, ignore_errors=True)
            file.write_bytes(text.encode())
            self.made(file, split=separator)
            self.assertEqual(sum(shards_of(self.out), []), encoded(want), text)

    def test_a_mark_of_byte_order_is_no_text_and_line_ends_of_unicode_are(self):
        file = self.place / "a.jsonl"
        text = json.dumps({"text": "one\u2028two"}, ensure_ascii=False)
        file.write_bytes(b"\xef\xbb\xbf" + f"\n  \n{text}\r\n".encode())
        self.made(file, eot="none")
        self.assertEqual(sum(shards_of(self.out), []), encoded(["one\u2028two"], None))

    def test_the_vocabulary_decides_on_16_or_32_bits(self):
        for vocab, magic, width in ((1 << 16, 20240520, 2), ((1 << 16) + 1, 20240801, 4)):
            shutil.rmtree(self.out, ignore_errors=True)
            tokens = [f"<{n}>" for n in range(vocab - len(TOKENS))] + TOKENS[::-1]
            (self.place / "tokenizer.json").write_text(json.dumps(tokens))
            (self.place / "a.txt").write_text("abc")
            self.made(self.place / "a.txt")
            data = (self.out / "tokens-000000.bin").read_bytes()
            self.assertEqual(struct.unpack_from("<I", data)[0], magic)
            want = [tokens.index(letter) for letter in ("a", "b", "c", "<|endoftext|>")]
            self.assertEqual(read_shard(self.out / "tokens-000000.bin"), want)
            self.assertEqual(len(data), 1024 + 4 * width)

    def test_shards_without_a_header(self):
        (self.place / "a.txt").write_text("abc")
        for width, kind in ((16, "H"), (32, "I")):
            shutil.rmtree(self.out, ignore_errors=True)
            self.made(self.place / "a.txt", format=f"uint{width}")
            want = array.array(kind, encoded(["abc"])).tobytes()
            self.assertEqual((self.out / "tokens-000000.bin").read_bytes(), want)

    def test_a_folder_gives_what_is_text_by_its_name_and_says_what_it_passes_over(self):
        folder, texts = self.corpus()
        (folder / "notes.md").write_text("no")
        (folder / ".hidden.txt").write_text("no")
        (folder / "zz").mkdir()
        (folder / "zz/inner.txt").write_text("yes")
        self.out = folder / "out"  # what is made is no input, and neither is the tokenizer
        shutil.move(self.place / "tokenizer.json", folder / "tokenizer.json")
        for _ in range(2):
            status, said, complained = self.ran(folder, tokenizer=folder)
            self.assertEqual(status, 0, complained)
            self.assertIn("1 files are passed over", complained)
            self.assertIn("notes.md", complained)
        self.assertEqual(sum(shards_of(self.out), []), encoded([*texts, "yes"]))
        self.assertIn("all is there already", said)
        shutil.rmtree(self.out)
        self.made(folder, tokenizer=folder, **{"as": "txt"})
        self.assertEqual(sum(shards_of(self.out), []), encoded([*texts, "no", "yes"]))


class Resumed(Case):
    def compare(self, other):
        self.assertEqual(contents(other), contents(self.out))

    def test_any_number_of_processes_makes_the_same_bytes(self):
        with mock.patch.object(_corpus, "PIECE_BYTES", 2000):
            folder, _ = self.corpus(files=12, documents=300)
            self.made(folder, shard_tokens=5000)
            for workers in (1, 3):
                # Some pieces take longer than others, so that they come back in another order.
                other = self.place / f"out{workers}"
                with mock.patch.dict(os.environ, PLAIN_UNEVEN="0.05"):
                    self.made(folder, shard_tokens=5000, workers=workers, out=other)
                self.compare(other)

    def killed(self, folder, at, out):
        """Whether it came to its end before the n-th time that it touches the disk."""
        pid = os.fork()
        if pid == 0:
            plain_tokenizer.die_at(at)
            status = 99
            with contextlib.suppress(BaseException):
                status = self.ran(folder, out=out, shard_tokens=1500)[0]
            os._exit(status)
        status = os.waitpid(pid, 0)[1]
        self.assertIn(status, (0, signal.SIGKILL))
        return status == 0

    def test_killed_wherever_it_touches_the_disk_it_goes_on_and_ends_with_the_same_bytes(self):
        # Small pieces, and a checkpoint after each of them.
        with mock.patch.object(_corpus, "PIECE_BYTES", 900), mock.patch.object(_shards, "CHECKPOINT_S", 0), \
                mock.patch.object(_shards, "CHECKPOINT_SHARE", 1e9):
            folder, _ = self.corpus(files=3, documents=30)
            self.made(folder, shard_tokens=1500)
            at, ended = 0, False
            while not ended:
                at += 1
                other = self.place / f"killed{at}"
                ended = self.killed(folder, at, other)
                if not ended:
                    self.made_again(folder, other)
                self.compare(other)
                shutil.rmtree(other)
            self.assertGreater(at, 60)
            # Killed again and again, each time a little later.
            other, lives = self.place / "lives", 1
            while not self.killed(folder, 20 + lives % 5, other):
                lives += 1
                self.assertLess(lives, 300)
            self.compare(other)
            self.assertGreater(lives, 4)

    def made_again(self, folder, other):
        status, _, complained = self.ran(folder, out=other, shard_tokens=1500)
        self.assertEqual(status, 0, complained)

    def test_what_was_written_is_not_made_anew(self):
        with mock.patch.object(_corpus, "PIECE_BYTES", 900), mock.patch.object(_shards, "CHECKPOINT_S", 0), \
                mock.patch.object(_shards, "CHECKPOINT_SHARE", 1e9):
            folder, texts = self.corpus(files=3, documents=30)
            (folder / "002.jsonl.xz").write_bytes(b"no xz")
            self.refused("002.jsonl.xz: damaged or cut short after 0 bytes", folder)
            before = (self.out / "tokens-000000.bin.part").read_bytes()
            self.assertGreater(len(before), 3000)
            place = json.loads((self.out / "progress.json").read_text())["place"]
            self.assertEqual((place["input"], place["documents"]), (2, sum(map(bool, texts[:60]))))
            # What comes later may be mended, and may have a new name.
            (folder / "002.jsonl.xz").unlink()
            (folder / "002.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[60:90]))
            encodes = []
            with mock.patch.object(plain_tokenizer.Letters, "encode", self.counting(encodes)):
                _, _, complained = self.ran(folder)
            self.assertIn("goes on after", complained)
            self.assertEqual(encodes, [text for text in texts[60:] if text])
            self.assertEqual(sum(shards_of(self.out), []), encoded(texts))
            self.assertTrue((self.out / "tokens-000000.bin").read_bytes()[1024:].startswith(before[1024:]))

    def counting(self, encodes):
        encode = plain_tokenizer.Letters.encode

        def counted(letters, texts):
            encodes.extend(texts)
            return encode(letters, texts)

        return counted

    def test_ctrl_c_ends_it_cleanly_and_a_kill_leaves_no_process(self):
        folder, _ = self.corpus(files=40, documents=200, letters=400)
        self.made(folder, shard_tokens="50k")
        reference = contents(self.out)
        shutil.rmtree(self.out)
        arguments = self.arguments(folder, shard_tokens="50k", workers=3)
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)):
            before = self.tokens()
            process = self.process(*arguments, PLAIN_SLOW="0.1", PLAIN_PIECE="20000")
            self.await_(lambda: self.tokens() > before + 100000)
            children = self.children(process.pid)
            self.assertGreaterEqual(len(children), 3)
            process.send_signal(number)
            _, complained = process.communicate(timeout=PATIENCE_S)
            self.assertEqual(process.returncode, status)
            if number != signal.SIGKILL:
                last = complained.splitlines()[-1]
                said = re.search(r"stopped after ([\d,]+) tokens; the same command goes on", last)
                place = json.loads((self.out / "progress.json").read_text())["place"]
                self.assertEqual(place["tokens"], int(said.group(1).replace(",", "")))
                self.assertNotIn("Traceback", complained)
            self.await_(lambda: not any(os.path.exists(f"/proc/{child}") for child in children))
        process = self.process(*arguments)
        _, complained = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 0, complained)
        self.assertEqual(contents(self.out), reference)

    def tokens(self):
        total = 0
        for file in self.out.glob("tokens-*") if self.out.exists() else ():
            try:
                total += os.path.getsize(file)
            except FileNotFoundError:  # it has its final name by now
                return self.tokens()
        return total // 2

    def children(self, pid):
        return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    def await_(self, what):
        until = time.monotonic() + PATIENCE_S
        while not what():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)

    def test_other_options_another_tokenizer_and_changed_inputs_are_refused(self):
        for finished in (False, True):
            folder, _ = self.corpus()
            options = {"shard_tokens": 1000}
            if finished:
                self.made(folder, **options)
            else:
                (folder / "zz.jsonl").write_text("{\n")
                self.refused("zz.jsonl:1: no JSON", folder, **options)
                (folder / "zz.jsonl").write_text('{"text": "whole"}\n')
            before = contents(self.out)
            self.refused("made with shard_tokens = 1000, not 2000", folder, shard_tokens=2000)
            self.refused('made with field = text, not content', folder, field="content", **options)
            self.refused("made with split = None, not ---", folder, split="---", **options)
            self.refused("made with eot = <|endoftext|>, not None", folder, eot="none", **options)
            self.refused("made with format = tokens, not uint32", folder, format="uint32", **options)
            (self.place / "tokenizer.json").write_text(json.dumps([*TOKENS, "more"]))
            self.refused("made with another tokenizer.json", folder, **options)
            (self.place / "tokenizer.json").write_text(json.dumps(TOKENS))
            (folder / "last.txt").write_text("longer than it was, and another text" * 20)
            self.refused("last.txt" + (" has changed" if finished else ": is not what it was"), folder, **options)
            (folder / "last.txt").unlink()
            self.refused("last.txt", folder, **options)
            self.assertEqual(contents(self.out), before)
            shutil.rmtree(folder)
            shutil.rmtree(self.out)

    def test_an_input_that_was_touched_and_not_changed_is_the_same(self):
        folder, texts = self.corpus()
        (folder / "zz.txt").write_bytes(b"\xff")
        self.refused("zz.txt: not UTF-8 at byte 0", folder)
        for file in folder.iterdir():
            os.utime(file, (1, 1))
        (folder / "zz.txt").write_text("mended")
        status, _, complained = self.ran(folder)
        self.assertEqual(status, 0, complained)
        self.assertIn("what was read of it is the same", complained)
        self.assertEqual(sum(shards_of(self.out), []), encoded([*texts, "mended"]))

    def test_a_change_that_keeps_the_size_is_seen(self):
        folder, _ = self.corpus()
        (folder / "zz.txt").write_bytes(b"\xff")
        self.refused("zz.txt: not UTF-8", folder)
        text = (folder / "last.txt").read_text()
        (folder / "last.txt").write_text(text.swapcase())
        status, _, complained = self.ran(folder)
        self.assertEqual(status, 1)
        self.assertIn("last.txt: is not what it was when it was begun", complained.splitlines()[-1])

    def test_shards_that_were_taken_away_or_cut_are_named(self):
        folder, _ = self.corpus()
        self.made(folder, shard_tokens=1000)
        shard = self.out / "tokens-000001.bin"
        os.truncate(shard, 1500)
        self.refused("tokens-000001.bin: has 1500 bytes, and was written with 3024", folder, shard_tokens=1000)
        shard.unlink()
        self.refused("tokens-000001.bin: was written and is gone", folder, shard_tokens=1000)

    def test_a_full_disk_is_said_in_a_line_and_it_goes_on_when_there_is_room(self):
        folder, _ = self.corpus()
        self.made(folder, shard_tokens=1000)
        reference = contents(self.out)
        for room in (0, 100, 4000, 9000):
            shutil.rmtree(self.out)
            arguments = self.arguments(folder, shard_tokens=1000)
            process = self.process(*arguments, PLAIN_FULL=str(room))
            _, complained = process.communicate(timeout=PATIENCE_S)
            self.assertEqual((process.returncode, len(complained.splitlines())), (1, 1), complained)
            self.assertIn(f"{self.out}: the disk is full; make room, and run the same command again", complained)
            self.assertEqual(self.ran(folder, shard_tokens=1000)[0], 0)
            self.assertEqual(contents(self.out), reference)

    def test_two_at_once_are_refused(self):
        folder, _ = self.corpus()
        self.out.mkdir()
        lock = os.open(self.out, os.O_RDONLY)
        self.addCleanup(os.close, lock)
        _shards.fcntl.flock(lock, _shards.fcntl.LOCK_EX)
        self.refused("another diloco.tokenize is at work in it", folder)

    def test_a_process_that_dies_is_said_and_what_was_done_stays(self):
        folder, _ = self.corpus()
        process = self.process(*self.arguments(folder, workers=2), PLAIN_DEAD="1")
        _, complained = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 1)
        self.assertIn("ended by signal 9 (out of memory? give fewer --workers)", complained)
        self.assertEqual(len(complained.splitlines()), 1, complained)
        self.assertEqual(self.ran(folder)[0], 0)


class Refusals(Case):
    def file(self, name, data):
        path = self.place / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def test_inputs(self):
        good = self.file("good.txt", "good")
        self.refused("none.txt: no such file or folder", self.place / "none.txt")
        self.refused("a.md: its name does not say what it is", self.file("a.md", "x"))
        self.refused("good.txt: given twice", good, self.place / "." / "good.txt")
        (self.place / "void").mkdir()
        self.refused("void: holds no file whose name says that it is text", self.place / "void")
        self.refused("there is no text in the inputs", self.file("empty.txt", ""))
        self.refused("the following arguments are required", out=self.place / "o2")

    def test_lines_are_named(self):
        for number, (line, words) in enumerate((
            ('{"text": "b", }', "no JSON (Expecting property name"),
            ('["b"]', "a list, not an object"),
            ('{"id": 5, "body": "b"}', 'no field "text"; it has id, body: give --field NAME'),
            ('{"text": 5}', 'field "text" is a number, not text'),
            ('{"text": null}', 'field "text" is null, not text'),
            ('{"text": "\\ud800"}', 'field "text" has half a surrogate pair'),
            ("[" * 200000, "no JSON"),
        )):
            file = self.file("bad.jsonl", '{"text": "a"}\n\n' + line + "\n")
            self.refused(f"bad.jsonl:3: {words}", file, out=self.place / f"out{number}")

    def test_the_first_bad_line_is_the_one_that_is_named_whoever_finds_it(self):
        lines = ['{"text": "' + "a" * 400 + '"}'] * 9000
        lines[5000] = lines[7000] = "{"
        file = self.file("bad.jsonl", "\n".join(lines))
        self.refused("bad.jsonl:5001: no JSON", file, workers=3)
        lines[5000] = lines[0]
        file.write_text("\n".join(lines))
        status, _, complained = self.ran(file, workers=1)
        self.assertEqual(status, 1)
        self.assertIn("bad.jsonl:7001: no JSON", complained.splitlines()[-1])

    def test_bytes_that_are_no_utf_8_are_named(self):
        self.refused("bad.txt: not UTF-8 at byte 700003", self.file("bad.txt", b"a" * 700003 + b"\xe4"))
        lines = b'{"text": "' + b"a" * 90 + b'"}\n'
        file = self.file("bad.jsonl.gz", gzip.compress(lines * 9000 + b'{"text": "\xe4"}'))
        self.refused(f"bad.jsonl.gz: not UTF-8 at byte {len(lines) * 9000 + 10}", file, out=self.place / "out2")

    def test_packed_files_that_are_cut_short_are_named(self):
        for number, (name, pack) in enumerate((("a.txt.gz", gzip.compress), ("a.txt.xz", lzma.compress),
                                               ("a.txt.bz2", bz2.compress))):
            data = pack(self.text(50000).encode())
            for cut in (data[:-20], b"plain text"):
                file = self.file(name, cut)
                self.refused(f"{name}: damaged or cut short after", file, out=self.place / f"out{number}-{len(cut)}")

    def test_a_package_that_is_not_there_is_named(self):
        for name, package in (("a.txt.zst", "zstandard"), ("a.parquet", "pyarrow")):
            hidden = {"zstandard": None, "compression.zstd": None, "pyarrow": None, "pyarrow.parquet": None}
            with mock.patch.dict(sys.modules, hidden):
                words = f"{name}: reading it needs the package {package}: pip install {package}"
                self.refused(words, self.file(name, "x"))
        with mock.patch.dict(sys.modules, {"tokenizers": None}):
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                self.assertEqual(tokenize.main(self.arguments(self.file("a.txt", "x"))), 1)
        remedy = "the package tokenizers is not installed: pip install tokenizers"
        self.assertEqual(said.getvalue(), f"diloco.tokenize: {remedy}\n")

    def test_tokenizers(self):
        file = self.file("a.txt", "abc")
        self.refused("t.json: no such file", file, tokenizer=self.place / "t.json")
        (self.place / "void").mkdir()
        self.refused("void/tokenizer.json: no such file; save_pretrained()", file, tokenizer=self.place / "void")
        count = len(TOKENS)
        self.refused(f"{count} tokens, over --vocab 20; set [model] vocab to {count} or more", file, vocab=20)
        self.refused("has no token <end>; give another one as --eot", file, eot="<end>")
        (self.place / "t.json").write_text(json.dumps(["a", "b"]))
        self.refused("has no token of the usual names for the end of a document (<|endoftext|>, ", file,
                     tokenizer=self.place / "t.json")
        self.made(file, tokenizer=self.place / "t.json", eot="none")
        shutil.rmtree(self.out)
        (self.place / "t.json").write_text(json.dumps([f"<{n}>" for n in range((1 << 20) + 1)]))
        self.refused("1048577 tokens; a model here has at most 1048576", file, tokenizer=self.place / "t.json")
        (self.place / "t.json").write_text(json.dumps(["<|endoftext|>"] + [f"<{n}>" for n in range(1 << 16)]))
        self.refused("65537 tokens; 16 bits hold 65536", file, tokenizer=self.place / "t.json", format="uint16")
        self.assertFalse(self.out.exists())

    def test_options(self):
        file = self.file("a.txt", "abc")
        self.refused("--shard-tokens 0: from 1 to 4294967295", file, shard_tokens=0)
        self.refused("--shard-tokens: 1e6: not a number such as", file, shard_tokens="1e6")
        self.refused("--split: one line", file, split="a\nb")
        self.refused("--workers 5000: at most", file, workers=5000)

    def test_a_folder_of_others_is_left_alone(self):
        file = self.file("a.txt", "abc")
        self.out.mkdir()
        (self.out / "thesis.doc").write_text("dear")
        self.refused("holds thesis.doc, and no token shards; give --out a new or empty folder", file)
        (self.out / "thesis.doc").unlink()
        (self.out / "manifest.json").write_text('{"format": "of others"}')
        self.refused('manifest.json: is not of format "diloco token shards 1"', file)
        self.assertEqual(os.listdir(self.out), ["manifest.json"])

    def test_a_document_without_end_is_refused(self):
        with mock.patch.object(_corpus, "DOCUMENT_BYTES_MAX", 1 << 18):
            self.refused("a.txt: a document of over 0 MiB, at or behind line 1; cut it up, as with --split LINE",
                         self.file("a.txt", "a" * (1 << 20)))


class Trained(Case):
    @unittest.skipUnless((BUILD / "diloco-worker").exists(), "diloco-worker is not built")
    def test_the_worker_trains_on_it(self):
        folder, _ = self.corpus(files=4, documents=100)
        for form, tokens in (("tokens", 5000), ("uint16", 5000), ("uint32", 20000)):
            shutil.rmtree(self.out, ignore_errors=True)
            self.made(folder, shard_tokens=tokens, format=form)
            spec = self.place / "run.ini"
            model = f"vocab = {len(TOKENS)}\nwidth = 32\nlayers = 1\nheads = 2\nkv_heads = 1\nff = 32\ncontext = 16\n"
            rest = f"[data]\nformat = {form}\n[train]\nbatch = 2\n"
            spec.write_text(f"[run]\nname = tokens\nsteps = 3\n[model]\n{model}{rest}")
            trained = subprocess.run(
                [BUILD / "diloco-worker", "train", "--run", spec, "--data", f"{self.out}/tokens-*.bin",
                 "--out", self.place / f"trained-{form}", "--threads", "1"], capture_output=True, text=True)
            self.assertEqual(trained.returncode, 0, trained.stderr)
            self.assertTrue((self.place / f"trained-{form}/worker-000000003.safetensors").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
