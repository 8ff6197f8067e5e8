#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fuzzing is guided: a planted fault behind six comparisons (tests/lib/maze.c) is found through the counters that
# `make fuzz` builds our archives with, and is not found in as many runs without them.
set -eu
. tests/fuzz/libfuzzer.sh
why=$(libfuzzer_missing)
[ -z "$why" ] || { echo "$why"; exit 77; }
runs=2000000
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fuzz_make "$fuzz_build/tests/lib/maze.o"
fuzz_link tests/fuzz/fuzz_maze.c "$work/guided" "$fuzz_build/tests/lib/maze.o"
clang -std=gnu11 -D_GNU_SOURCE -I. -O1 -g -fsanitize=address,undefined -c tests/lib/maze.c -o "$work/blind.o"
fuzz_link tests/fuzz/fuzz_maze.c "$work/blind" "$work/blind.o"

walk() { # program: 0 if it came to the end of the maze
    ! "$work/$1" $fuzz_flags -runs=$runs -seed=1 -max_len=64 -artifact_prefix="$work/$1-" >"$work/$1.log" 2>&1 || return 1
    grep -q 'maze\|deadly signal' "$work/$1.log" || { tail -n 20 "$work/$1.log"; echo "$1: failed in another way"; exit 1; }
}
if ! walk guided; then
    tail -n 3 "$work/guided.log"
    echo "the planted fault was not found in $runs runs: our archives are not built with counters"
    exit 1
fi
echo "guided: found after $(sed -n 's/^#\([0-9]*\).*/\1/p' "$work/guided.log" | tail -n 1) runs or a few more"
if walk blind; then
    echo "the planted fault was found without guidance: it proves nothing"
    exit 1
fi
echo "blind: not found in $runs runs"
