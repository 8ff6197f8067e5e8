#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python package with models on a GPU: those tests of make check-python that need PyTorch alone, with a Python that has
# it. Exit status 77: there is none, or it sees no GPU.
#
#   tests/gpu/python.sh ROOT     of the tree, or of what the kit has of it; BUILD is the build folder, from there or absolute
set -u
cd "$1" || exit 1
# Our programs look for their libraries where the first says, Python for its own where the second does.
DILOCO_TEST_LIBRARIES=${LD_LIBRARY_PATH:-} LD_LIBRARY_PATH=${DILOCO_GPU_LIBRARY_PATH:-}
export DILOCO_TEST_LIBRARIES LD_LIBRARY_PATH
for python in "${PYTHON:-}" build/python/bin/python3 python3; do
    [ -z "$python" ] || ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null || break
    python=
done
[ -n "$python" ] || { echo "skipped: no Python here has a PyTorch that sees a GPU; PYTHON=... names one"; exit 77; }
DILOCO_TEST_DEVICE=cuda PYTHON=$python TEST_FILTER="${PYTHON_TESTS:-moves probes frozen torch}" tests/python/check.sh
