#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make demo-large` says how to get PyTorch where there is none, refuses what is no time, and hands on what it was told.
set -eu
: "${BUILD:?is not set: the folder of the programs, as in BUILD=build/gcc}"
root=$PWD
dir=$root/$BUILD/test-data/demo-large-$$
trap 'rm -rf "$dir"' EXIT
fail() { echo "$1"; exit 1; }
mkdir -p "$dir/tests/demo" "$dir/bin"
cp tests/demo/large.sh "$dir/tests/demo"
cd "$dir"
unset PYTHON MINUTES DEMO_DATA
try() { # wanted status; what it says is in said
    want=$1 got=0
    shift
    PATH=$dir/bin:$PATH env "$@" tests/demo/large.sh >said 2>&1 || got=$?
    [ $got -eq "$want" ] || { cat said; fail "$*: status $got, not $want"; }
}

printf '#!/bin/sh\nexit 1\n' >bin/python3 # as one without the module
chmod +x bin/python3
try 77 BUILD=b
grep -q '^demo-large: skipped: no Python here has PyTorch' said && grep -q 'pip install torch' said || fail "it does not say how to get PyTorch"
for minutes in ten 1.2.3 -4 0 .; do
    try 2 BUILD=b MINUTES="$minutes"
    grep -q "MINUTES=$minutes: give a number of minutes" said || fail "MINUTES=$minutes is not refused"
done

printf '#!/bin/sh\n[ "$1" = -c ] || echo "$*"\n' >bin/python3
[ "$(awk '/^MemAvailable:/ { printf "%d", $2 / 1e6 }' /proc/meminfo)" -ge 10 ] || { echo "skip: less than 10 GB are free"; exit 77; }
try 0 BUILD=b MINUTES=2.5 DEMO_DATA='my book.txt'
grep -qx -- '-W ignore tests/demo/large.py --programs b --minutes 2.5 --data my book.txt' said || fail "it does not hand on what it was told"
try 0 BUILD=b
grep -q -- '--minutes 10$' said || fail "it does not take ten minutes by itself"
