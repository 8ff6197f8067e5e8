#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python package, as far as it needs only Python. What needs PyTorch is `make check-python`.
exec "$(dirname "$0")/../python/plain.sh" test_plain.py
