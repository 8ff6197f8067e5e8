# SPDX-License-Identifier: Apache-2.0
"""Text to the token shards that diloco-worker reads:

    python3 -m diloco.tokenize corpus/ --tokenizer tokenizer.json --out tokens

Stopped, by Ctrl-C or worse, it goes on when it is called again in the same way, and ends with the same bytes.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Callable, Iterator, NoReturn, Sequence

from . import _corpus, _crew, _shards
from ._errors import DilocoError
from ._progress import Progress

VOCAB_MAX = 1 << 20  # of [model] vocab
SPLIT_MAX = 1000
WORKERS_MAX = 1024
STOPPED = 130  # exit status after Ctrl-C, as a shell has it
# What tokenizers call the end of a document, or of a text; the first one that a tokenizer has is taken.
ENDS = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "[EOS]",
    "<|eos|>",
    "<EOS>",
    "<|end▁of▁sentence|>",
    "<｜end▁of▁sentence｜>",
    "<|eod|>",
    "<|endofdocument|>",
)
UNITS = {"k": 10**3, "m": 10**6, "g": 10**9}


@dataclass(frozen=True)
class Vocabulary:
    """What is to be known of a tokenizer."""

    package: str  # with its version, on which tokens may depend
    ids: dict[str, int]


@dataclass(frozen=True)
class HuggingFace:
    """The tokenizers package; called where it is to encode."""

    text: str
    path: str

    def _open(self) -> Any:
        try:
            import tokenizers
        except ImportError:
            raise DilocoError("the package tokenizers is not installed: pip install tokenizers") from None
        try:
            tokenizer = tokenizers.Tokenizer.from_str(self.text)
        except Exception as error:  # it has no class of its own
            raise DilocoError(f"{self.path}: no tokenizer that tokenizers can read ({error})") from None
        tokenizer.no_truncation()  # a file may say so; text would be lost
        tokenizer.no_padding()
        return tokenizer

    def vocabulary(self) -> Vocabulary:
        tokenizer = self._open()
        import tokenizers

        return Vocabulary(f"tokenizers {tokenizers.__version__}", tokenizer.get_vocab(with_added_tokens=True))

    def __call__(self) -> _crew.Encoder:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each process is one of many
        return _Encoder(self._open())


class _Encoder:
    def __init__(self, tokenizer: Any):
        self._encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)

    def encode(self, texts: list[str]) -> Sequence[Sequence[int]]:
        return [encoding.ids for encoding in self._encode(texts, add_special_tokens=False)]


# ---- arguments ----


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise DilocoError(f"{message}; see --help")


def _count(text: str) -> int:
    number, unit = (text[:-1], UNITS[text[-1].lower()]) if text[-1:].lower() in UNITS else (text, 1)
    if not number.isascii() or not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text}: not a number such as 1000000, 1000k or 1M")
    return int(number) * unit


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="diloco.tokenize",
        description="Turns text into the token shards that diloco-worker reads. Stopped and called again, it goes on.",
    )
    add = parser.add_argument
    add("inputs", nargs="+", metavar="FILE|FOLDER", help=f"text: {_corpus.NAMES}; of a folder all such files in it")
    add("--tokenizer", required=True, metavar="FILE|FOLDER", help="a tokenizer.json, or a folder that has one")
    add("--out", required=True, metavar="FOLDER", help="where the shards go; new, or begun by the same command")
    add("--field", default="text", metavar="NAME", help="what holds the text in JSON and Parquet (text)")
    add("--split", metavar="LINE", help="of .txt: such a line stands between documents (a file is one document)")
    add("--as", dest="others", choices=(_corpus.TEXT, _corpus.LINES), help="what files of other names are")
    add("--eot", metavar="TOKEN", help="what ends each document, or none (a token of the usual names)")
    add("--vocab", type=_count, metavar="N", help="[model] vocab of the run: a tokenizer with more tokens is refused")
    add("--shard-tokens", type=_count, default=10**8, metavar="N", help="tokens of a shard, as 500k or 100M (100M)")
    add("--format", default="tokens", choices=("tokens", "uint16", "uint32"), help="[data] format of the run (tokens)")
    add("--workers", type=_count, metavar="N", help="processes that make tokens (one for each processor)")
    return parser


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _check(a: argparse.Namespace) -> None:
    if not 1 <= a.shard_tokens <= _shards.SHARD_TOKENS_MAX:
        raise DilocoError(f"--shard-tokens {a.shard_tokens}: from 1 to {_shards.SHARD_TOKENS_MAX}")
    if a.split is not None and ("\n" in a.split or "\r" in a.split or len(a.split) > SPLIT_MAX):
        raise DilocoError(f"--split: one line, of up to {SPLIT_MAX} characters")
    a.workers = _processors() if a.workers is None else a.workers
    if a.workers > WORKERS_MAX:
        raise DilocoError(f"--workers {a.workers}: at most {WORKERS_MAX}")


# ---- the tokenizer ----


def _read_tokenizer(given: str) -> tuple[str, bytes]:
    path = os.path.join(given, "tokenizer.json") if os.path.isdir(given) else given
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        remedy = "; save_pretrained() of transformers' AutoTokenizer writes one" if path != given else ""
        raise DilocoError(f"{path}: no such file{remedy}") from None
    except OSError as error:
        raise DilocoError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        data.decode()
    except UnicodeDecodeError:
        raise DilocoError(f"{path}: no tokenizer.json: it is not text") from None
    return path, data


def _end_of(ids: dict[str, int], wanted: str | None, path: str) -> str | None:
    if wanted == "none":
        return None
    if wanted is not None:
        if wanted not in ids:
            raise DilocoError(f"{path}: has no token {wanted}; give another one as --eot, or --eot none")
        return wanted
    for name in ENDS:
        if name in ids:
            return name
    raise DilocoError(
        f"{path}: has no token of the usual names for the end of a document ({', '.join(ENDS[:4])}, …); "
        "give it as --eot TOKEN, or --eot none for no mark between documents"
    )


def _check_vocab(vocab: int, a: argparse.Namespace, path: str) -> None:
    if vocab > VOCAB_MAX:
        raise DilocoError(f"{path}: {vocab} tokens; a model here has at most {VOCAB_MAX}: use another tokenizer")
    if a.vocab is not None and vocab > a.vocab:
        raise DilocoError(f"{path}: {vocab} tokens, over --vocab {a.vocab}; set [model] vocab to {vocab} or more")
    if a.format == "uint16" and vocab > 1 << 16:
        raise DilocoError(f"{path}: {vocab} tokens; 16 bits hold {1 << 16}: give --format tokens or uint32")


def _job(a: argparse.Namespace, path: str, tokenizer: bytes, known: Vocabulary) -> tuple[dict[str, Any], int | None]:
    """All that the shards depend on but the inputs; and the number of the token that ends a document."""
    vocab = max(known.ids.values(), default=-1) + 1
    if vocab == 0:
        raise DilocoError(f"{path}: a tokenizer without tokens")
    _check_vocab(vocab, a, path)
    eot = _end_of(known.ids, a.eot, path)
    bits = {"uint16": 16, "uint32": 32}.get(a.format) or (16 if vocab <= 1 << 16 else 32)
    job = {
        "tokenizer": blake2b(tokenizer, digest_size=32).hexdigest(),
        "package": known.package,
        "vocab": vocab,
        "eot": eot,
        "field": a.field,
        "split": a.split,
        "as": a.others,
        "shard_tokens": a.shard_tokens,
        "format": a.format,
        "token_bits": bits,
    }
    return job, None if eot is None else known.ids[eot]


# ---- the work ----


class _Stop:
    """Ctrl-C is answered between two pieces; a second one at once, which loses no more than kill -9 would."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def _rest(inputs: list[_corpus.Input], rules: _corpus.Rules, place: _shards.Place) -> Iterator[_corpus.Piece]:
    first = place.input
    for number in range(first, len(inputs)):
        begin, line = (place.offset, place.line) if number == first else (0, 1)
        yield from _corpus.pieces(number, inputs[number], rules, begin, line)


def _fill(shards: _shards.Shards, crew: _crew.Crew, progress: Progress, stop: _Stop) -> bool:
    """False: it was stopped."""
    place = shards.place
    # Where pieces begin is of the place as it is now; it moves on while they are made.
    start = _shards.Place(input=place.input, offset=place.offset, line=place.line)
    work = crew.work(_crew.tasks(_rest(shards.inputs, shards.rules, start)))
    try:
        for came in work:
            for piece, made in came:
                shards.put(piece, made.digest, made.tokens, made.documents, made.empty, made.text_bytes)
                progress.reached(piece.input, piece.disk_bytes, place)
            progress.show()
            if stop.asked:
                break
    except DilocoError:
        shards.save()
        raise
    if not stop.asked:
        shards.finish()
        return True
    shards.save()
    return False


def _say_end(a: argparse.Namespace, shards: _shards.Shards) -> None:
    place, job = shards.place, shards.job
    empty = f" ({place.empty:,} empty ones left out)" if place.empty else ""
    say(f"{place.tokens:,} tokens of {place.documents:,} documents{empty} in {len(place.shards)} shards of "
        f"{job['token_bits']} bits: {a.out}")
    say(f"run spec:   [model] vocab = {a.vocab or job['vocab']}    [data] format = {job['format']}")
    say(f"data:       --data {shlex.quote(os.path.join(os.path.abspath(a.out), 'tokens-*.bin'))}")
    say(f"text again: diloco-worker sample --tokenizer {shlex.quote(os.path.join(a.out, _shards.TOKENIZER))}")


def say(text: str) -> None:
    print(text, flush=True)


def complain(text: str) -> None:
    print(f"diloco.tokenize: {text}", file=sys.stderr, flush=True)


def run(arguments: Sequence[str] | None, tokenizer_of: Callable[[str, str], Any]) -> int:
    """`tokenizer_of`: makes of text and path of a tokenizer.json what has vocabulary(), and is an opener of _crew."""
    a = _parser().parse_args(arguments)
    _check(a)
    path, data = _read_tokenizer(a.tokenizer)
    tokenizer = tokenizer_of(data.decode(), path)
    job, eot = _job(a, path, data, tokenizer.vocabulary())
    inputs, passed = _corpus.find(a.inputs, a.others, [a.out, path])
    if passed:
        complain(f"{len(passed)} files are passed over, as their names do not say what they are: {passed[0]}"
                 + (", …" if len(passed) > 1 else "") + " (--as takes them)")
    if not inputs:
        raise DilocoError(f"{a.inputs[0]}: holds no file whose name says that it is text ({_corpus.NAMES}); see --as")
    rules = _corpus.Rules(a.field, a.split)
    shards = _shards.Shards(a.out, job, inputs, rules)
    crew = None
    try:
        if not shards.open(data, complain):
            say("all is there already")
            _say_end(a, shards)
            return 0
        stop = _Stop()
        crew = _crew.Crew(a.workers, _crew.Orders(tokenizer, rules, eot, job["vocab"], job["token_bits"]))
        with Progress([one.bytes for one in inputs], shards.place) as progress:
            whole = _fill(shards, crew, progress, stop)
    except OSError as error:
        raise _shards.refusal(a.out, error) from None
    finally:
        if crew is not None:
            crew.close()
        shards.close()
    if not whole:
        complain(f"stopped after {shards.place.tokens:,} tokens; the same command goes on from there")
        return STOPPED
    _say_end(a, shards)
    return 0


def main(arguments: Sequence[str] | None = None, tokenizer_of: Callable[[str, str], Any] = HuggingFace) -> int:
    try:
        return run(arguments, tokenizer_of)
    except DilocoError as error:
        complain(" ".join(str(error).split("\n")))
        return 1
    except KeyboardInterrupt:
        complain("stopped at once; the same command goes on from the last few seconds")
        return STOPPED


if __name__ == "__main__":
    sys.exit(main())
