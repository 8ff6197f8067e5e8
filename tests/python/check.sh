#!/bin/sh
# What only PyTorch and transformers can show of the Python package: make check-python. They are installed from PyPI into
# a folder of the build, some gigabytes, the first time.
set -eu
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build/gcc}
venv=build/python
export BUILD PYTHONPATH= PYTHONDONTWRITEBYTECODE=1
if [ -n "${PYTHON:-}" ]; then
    python=$PYTHON # one that has them already
else
    command -v python3 >/dev/null 2>&1 || { echo "skip: there is no python3"; exit 0; }
    [ -x $venv/bin/python3 ] || python3 -m venv $venv || { echo "skip: python3 -m venv does not work here (apt-get install python3-venv)"; exit 0; }
    python=$PWD/$venv/bin/python3
    if ! "$python" -c 'import torch, transformers, safetensors, tokenizers, peft, zstandard, pyarrow' 2>/dev/null; then
        "$python" -m pip install --quiet torch transformers safetensors tokenizers peft accelerate zstandard pyarrow ||
            { echo "skip: PyTorch and the others cannot be installed from PyPI here"; exit 0; }
    fi
fi
failed=
for test in plain tokenize torch hf tokenize_hf; do
    echo "tests/python/test_$test.py"
    (cd tests/python && "$python" test_$test.py) || failed="$failed $test"
done
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
