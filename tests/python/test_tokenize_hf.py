# SPDX-License-Identifier: Apache-2.0
"""diloco.tokenize with Hugging Face's tokenizers: token for token what they say, and text again from diloco-worker."""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from islands import BUILD, TEXT

from test_tokenize import read_shard
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

try:
    import zstandard
except ImportError:
    zstandard = None
try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None

SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet,
                                  show_progress=False)
    tokenizer.train([str(TEXT)], trainer)
    return tokenizer


def llama():
    """As Llama 2's: blanks are underlined, and a text gets a token in front, if it is asked for."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=False, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.train([str(TEXT)], trainers.BpeTrainer(vocab_size=500, special_tokens=SPECIAL, show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    tokenizer.train([str(TEXT)], trainer)
    # Behind a hole, over the number of tokens.
    tokenizer.add_tokens([AddedToken("<more>")])
    return tokenizer


class Case(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="diloco-tokens-"))
        self.addCleanup(shutil.rmtree, self.place)
        self.out = self.place / "out"
        text = TEXT.read_text()
        paragraphs = text.split("\n\n")[:1500]
        self.texts = [*paragraphs, "Zürich, 東京 🙂 </s> <|endoftext|> and on", " ", "a" * 5000, text[:40000]]
        self.file = self.place / "a.jsonl"
        self.file.write_text("".join(json.dumps({"text": text}) + "\n" for text in self.texts))

    def tokenize(self, *arguments, status=0):
        command = [sys.executable, "-m", "diloco.tokenize", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr if status else done.stdout

    def tokens(self):
        return sum([read_shard(path) for path in sorted(self.out.glob("tokens-*.bin"))], [])


class Tokens(Case):
    def check(self, tokenizer, eot, *more):
        path = self.place / "tokenizer.json"
        tokenizer.save(str(path))
        for workers in (1, 3):
            shutil.rmtree(self.out, ignore_errors=True)
            options = ["--workers", workers, "--shard-tokens", "30k", *more]
            self.tokenize(self.file, "--tokenizer", path, "--out", self.out, *options)
            want = []
            for text in self.texts:
                want += tokenizer.encode(text, add_special_tokens=False).ids
                want.append(tokenizer.token_to_id(eot))
            self.assertEqual(self.tokens(), want)
        self.assertEqual((self.out / "tokenizer.json").read_bytes(), path.read_bytes())

    def test_they_are_those_of_the_tokenizer(self):
        self.check(byte_level(), "<|endoftext|>")
        self.check(llama(), "</s>")
        self.check(unigram(), "<pad>", "--eot", "<pad>")

    def test_what_a_file_says_of_cutting_and_filling_is_not_done(self):
        tokenizer = byte_level()
        tokenizer.enable_truncation(16)
        tokenizer.enable_padding(length=64)
        tokenizer.save(str(self.place / "tokenizer.json"))
        self.tokenize(self.file, "--tokenizer", self.place, "--out", self.out)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        want = sum([tokenizer.encode(text).ids + [0] for text in self.texts], [])
        self.assertEqual(self.tokens(), want)

    def test_what_is_no_tokenizer_is_refused(self):
        path = self.place / "tokenizer.json"
        path.write_text("{}")
        said = self.tokenize(self.file, "--tokenizer", path, "--out", self.out, status=1)
        self.assertEqual(len(said.splitlines()), 1, said)
        self.assertIn(f"{path}: no tokenizer that tokenizers can read", said)
        byte_level().save(str(path))
        said = self.tokenize(self.file, "--tokenizer", path, "--out", self.out, "--vocab", 300, status=1)
        self.assertIn("600 tokens, over --vocab 300", said)
        self.assertFalse(self.out.exists())


class Files(Case):
    def check(self, *files):
        byte_level().save(str(self.place / "tokenizer.json"))
        self.tokenize(self.file, "--tokenizer", self.place, "--out", self.out)
        want = self.tokens()
        shutil.rmtree(self.out)
        self.tokenize(*files, "--tokenizer", self.place, "--out", self.out)
        self.assertEqual(self.tokens(), want)

    def test_zstandard(self):
        if zstandard is None:
            print("skip: zstandard is not installed")
            return
        data = self.file.read_bytes()
        half = len(data) // 2
        packed = self.place / "b.jsonl.zst"
        packed.write_bytes(zstandard.compress(data[:half]) + zstandard.compress(data[half:]))
        self.check(packed)
        shutil.rmtree(self.out)
        packed.write_bytes(packed.read_bytes()[:-5])
        said = self.tokenize(packed, "--tokenizer", self.place, "--out", self.out, status=1)
        self.assertIn("b.jsonl.zst: damaged or cut short after", said)
        self.assertEqual(len(said.splitlines()), 1, said)
        packed.write_bytes(b"no such thing")
        shutil.rmtree(self.out)
        self.assertIn("damaged", self.tokenize(packed, "--tokenizer", self.place, "--out", self.out, status=1))

    def test_parquet(self):
        if pyarrow is None:
            print("skip: pyarrow is not installed")
            return
        half = len(self.texts) // 2
        files = [self.place / "b.parquet", self.place / "c.parquet"]
        for file, texts in zip(files, (self.texts[:half], self.texts[half:])):
            table = pyarrow.table({"id": list(range(len(texts))), "text": texts})
            pyarrow.parquet.write_table(table, file, row_group_size=100)
        self.check(*files)
        shutil.rmtree(self.out)
        for number, (options, table, words) in enumerate((
            (["--field", "body"], None, 'no column "body"; it has id, text'),
            ([], {"text": ["a", None]}, 'row 2 of row group 1: column "text" is null, not text'),
            ([], {"text": [1, 2]}, "is a number, not text"),
        )):
            if table is not None:
                pyarrow.parquet.write_table(pyarrow.table(table), files[0])
            out = self.place / f"out{number}"
            said = self.tokenize(*files, "--tokenizer", self.place, "--out", out, *options, status=1)
            self.assertIn(words, said)
            self.assertEqual(len(said.splitlines()), 1, said)
        files[0].write_bytes(files[1].read_bytes()[:-100])
        said = self.tokenize(*files, "--tokenizer", self.place, "--out", self.out, status=1)
        self.assertIn("b.parquet: no whole Parquet file", said)

    def test_parquet_goes_on_at_a_row_group(self):
        if pyarrow is None:
            print("skip: pyarrow is not installed")
            return
        byte_level().save(str(self.place / "tokenizer.json"))
        file = self.place / "b.parquet"
        schema = pyarrow.schema([("text", pyarrow.string())])
        texts = [*self.texts[:250], None]
        for attempt in range(2):
            table = pyarrow.table({"text": texts[: 251 - attempt]}, schema=schema)
            pyarrow.parquet.write_table(table, file, row_group_size=100)
            said = self.tokenize(file, "--tokenizer", self.place, "--out", self.out, status=1 - attempt)
            if attempt == 0:
                self.assertIn("row 51 of row group 3", said)
                place = json.loads((self.out / "progress.json").read_text())["place"]
                self.assertEqual((place["offset"], place["documents"]), (2, 200))
        encode = byte_level().encode
        self.assertEqual(self.tokens(), sum([encode(text).ids + [0] for text in texts[:250]], []))


class Worker(Case):
    def run_worker(self, *arguments):
        done = subprocess.run([BUILD / "diloco-worker", *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_it_trains_on_the_shards_evaluates_and_speaks_text(self):
        tokenizer = byte_level()
        tokenizer.save(str(self.place / "tokenizer.json"))
        options = ["--split", "", "--shard-tokens", "100k", "--vocab", 640]
        said = self.tokenize(TEXT, "--tokenizer", self.place, "--out", self.out, *options)
        self.assertIn("[model] vocab = 640    [data] format = tokens", said)
        spec = self.place / "run.ini"
        spec.write_text(
            "[run]\nname = tokens\nsteps = 8\n[data]\nformat = tokens\n[train]\nbatch = 4\nlr = 3e-3\n"
            "[model]\nvocab = 640\nwidth = 64\nlayers = 1\nheads = 2\nkv_heads = 1\nff = 64\ncontext = 32\n"
        )
        data = f"{self.out}/tokens-*.bin"
        self.run_worker("train", "--run", spec, "--data", data, "--out", self.place / "trained", "--threads", 1)
        params = self.place / "trained/worker-000000008.safetensors"
        loss = float(self.run_worker("eval", "--params", params, "--data", data, "--threads", 1))
        self.assertLess(loss, math.log(640))
        text = self.run_worker("sample", "--params", params, "--tokenizer", self.out / "tokenizer.json", "--prompt",
                               "First Citizen", "--tokens", 20, "--threads", 1)
        self.assertTrue(text.startswith("First Citizen"), text)


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    unittest.main(verbosity=2)
