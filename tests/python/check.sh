#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What only PyTorch, transformers and Lightning can show of the Python package: make check-python. They are installed from
# PyPI into a folder of the build, build/python, some gigabytes, the first time; PYTHON=... is one that has them already.
# TEST_FILTER='ranks hf.lora' runs test_ranks.py, and of test_hf.py the cases with lora in their names.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build/gcc}
venv=$PWD/build/python
packages='torch transformers safetensors tokenizers peft accelerate lightning zstandard pyarrow kubernetes-validate'
export BUILD PYTHONPATH= PYTHONDONTWRITEBYTECODE=1
skip() { echo "skip: $1"; exit 77; }
documents() { # what they tell to type for PyTorch; one at a time, since threads of PyTorch wait for each other busily
    for document in docs/PYTORCH.md docs/tutorials/pytorch.md docs/tutorials/published-model.md; do
        PATH=$(dirname "$python"):$PATH tests/system/docs.sh "$document" || return
    done
}
complete() { "$1" -c "import $(echo $packages | tr ' -' ',_')" 2>/dev/null; }

if [ -n "${PYTHON:-}" ]; then
    python=$PYTHON
elif [ "${1:-}" != --install ] && ! complete "$venv/bin/python3"; then
    skip "PyTorch and the others are not in build/python; make check-python installs them, or PYTHON=... names a Python that has them"
else
    python=$venv/bin/python3
    command -v python3 >/dev/null 2>&1 || skip "there is no python3; apt-get install python3-venv"
    "$python" -m pip --version >/dev/null 2>&1 || python3 -m venv "$venv" >/dev/null 2>&1 ||
        skip "python3 -m venv does not work here; apt-get install python3-venv"
    if ! complete "$python"; then
        echo "installing $packages into build/python"
        "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 30 $packages >"$venv/pip.log" 2>&1 ||
            skip "PyTorch and the others cannot be installed from PyPI here: $(tail -n 1 "$venv/pip.log")"
        # It wants a newer Python than the others; without it test_titan.py is skipped, and says so.
        "$python" -m pip install --quiet --disable-pip-version-check torchtitan >>"$venv/pip.log" 2>&1 || true
    fi
fi

failed=0 passed=0 said=$(mktemp) || exit 1
trap 'rm -f "$said"' EXIT
for test in ${TEST_FILTER:-plain tokenize wheel torch moves frozen checkpoint probes ranks parts titan watch nodes manifests sampling lightning hf models tokenize_hf docs}; do
    name=${test%%.*} only=
    case $test in *.*) only="-k ${test#*.}" ;; esac
    echo "python/$name"
    begin=$(date +%s)
    case $name in
    docs) documents ;;
    models) "$python" tests/python/test_models.py "$BUILD" build/models ;;
    *) (cd tests/python && "$python" "test_$name.py" -v $only) ;;
    esac
    status=$?
    took="$(($(date +%s) - begin)) s"
    case $status in
    0) passed=$((passed + 1)) && echo "[  OK ] $test ($took)" >>"$said" ;;
    77) echo "[ SKIP ] $test: nothing of it can run here; it says why above" >>"$said" ;;
    *) failed=$((failed + 1)) && echo "[ FAIL ] $test ($took)" >>"$said" ;;
    esac
done
cat "$said"
[ $failed -eq 0 ] || exit 1
[ $passed -gt 0 ] || exit 77
