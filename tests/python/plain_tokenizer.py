# SPDX-License-Identifier: Apache-2.0
"""diloco.tokenize with a tokenizer of letters instead of Hugging Face's: for what is not about tokens.

    plain_tokenizer.py ARGUMENTS...      as of python -m diloco.tokenize

Its "tokenizer.json" is a list of tokens in JSON; a text becomes the numbers of its letters, and 0 for all others. With
PLAIN_DIES_AT=N it is killed at the n-th time that it touches the disk, with PLAIN_SLOW=S each piece takes S seconds
more, with PLAIN_UNEVEN=S up to S, with PLAIN_FULL=N the disk is full after so many bytes, with PLAIN_DEAD=1 its
processes die, and with PLAIN_PIECE=N pieces have about so many bytes.
"""

import errno
import json
import os
import signal
import sys
import time
from dataclasses import dataclass

from diloco import _corpus, tokenize


class Letters:
    def __init__(self, tokens):
        self.number = {ord(token): number for number, token in enumerate(tokens) if len(token) == 1}

    def encode(self, texts):
        if os.environ.get("PLAIN_DEAD"):
            os.kill(os.getpid(), signal.SIGKILL)
        uneven = sum(map(len, texts)) % 8 / 8 * float(os.environ.get("PLAIN_UNEVEN", "0"))
        time.sleep(float(os.environ.get("PLAIN_SLOW", "0")) + uneven)
        return [[self.number.get(ord(letter), 0) for letter in text] for text in texts]


@dataclass(frozen=True)
class PlainTokenizer:
    text: str
    path: str

    def vocabulary(self):
        return tokenize.Vocabulary("letters 1", {token: number for number, token in enumerate(json.loads(self.text))})

    def __call__(self):
        return Letters(json.loads(self.text))


def die_at(count):
    """SIGKILL instead of the n-th call that changes what is on the disk."""
    left = [count]

    def instead(call):
        def touch(*arguments, **named):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return touch

    for name in ("write", "pwrite", "fsync", "rename", "replace", "unlink", "ftruncate", "makedirs"):
        setattr(os, name, instead(getattr(os, name)))


def full_after(count):
    """A disk that holds so many bytes more; the last write that fits does so in part."""
    left, write = [count], os.write

    def limited(fd, data):
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(fd, bytes(data)[: left[0]])
        left[0] -= written
        return written

    os.write = limited


if __name__ == "__main__":
    if "PLAIN_DIES_AT" in os.environ:
        die_at(int(os.environ["PLAIN_DIES_AT"]))
    if "PLAIN_FULL" in os.environ:
        full_after(int(os.environ["PLAIN_FULL"]))
    _corpus.PIECE_BYTES = int(os.environ.get("PLAIN_PIECE", _corpus.PIECE_BYTES))
    sys.exit(tokenize.main(tokenizer_of=PlainTokenizer))
