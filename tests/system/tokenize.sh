#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# diloco.tokenize, as far as it needs only Python: with a tokenizer of letters. With real ones it is `make check-python`.
exec "$(dirname "$0")/../python/plain.sh" test_tokenize.py
