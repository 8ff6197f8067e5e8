#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The documents are what they say: blocks are marked, Python and C in them compile, links lead somewhere, versions are
# those of the code, and every option and command named is one of the programs'. What they tell to type is run by
# tests/system/docs.sh.
set -eu
: "${BUILD:?is not set: the build folder, as in BUILD=build/gcc}"
command -v python3 >/dev/null 2>&1 || { echo "there is no python3"; exit 77; }
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || { echo "python3 is older than 3.9"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
exec python3 tests/docs/static.py
