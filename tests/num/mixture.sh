#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run on a mixture whose weights change, stopped and resumed, or shared out among two ranks, draws the same windows as
# one that was not: it ends with the same bytes, and in two ranks with the same loss.
set -eu
case ${SAN:-} in *thread*) echo "the trainer uses OpenMP, whose runtime the thread sanitizer cannot see into"; exit 77 ;; esac
dir=$BUILD/test-data/mixture-$$
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
worker=$BUILD/diloco-worker
cat >"$dir/run.ini" <<INI
[run]
name = mixture
steps = 30
[model]
width = 32
layers = 1
heads = 2
context = 32
[data]
held_out = 0.1
[train]
batch = 4
lr = 3e-3
INI
head -c 20000 tests/demo/shakespeare.txt >"$dir/plays"
cat common/*.c | head -c 9000 >"$dir/my code"
mixture="plays=$dir/plays:0.9@0,0.4@20 code='$dir/my code':0.1@0,0.6@20 late=README.md:0@15,0.5@25"
train() { "$worker" train --run "$dir/run.ini" --threads 1 --eval-batches 4 --checkpoint-every 10 "$@"; }
last=worker-000000030.safetensors

train --data "$mixture" --out "$dir/whole" 2>"$dir/log"
grep -q 'data source plays: .* of the run.s windows, 18000 tokens' "$dir/log"
train --data "$mixture" --out "$dir/halves" 2>/dev/null
rm "$dir/halves/$last"
train --data "$mixture" --out "$dir/halves" 2>"$dir/log"
grep -q 'resuming after step 20' "$dir/log"
cmp "$dir/whole/$last" "$dir/halves/$last"

train --data "$mixture" --out "$dir/ranks" --ranks 2 2>/dev/null
loss() { sed -n 's/.*"step":'"$2"',"loss":\([0-9.]*\).*/\1/p' "$dir/$1/train.jsonl" | head -n 1; }
for step in 1 12 30; do
    a=$(loss whole $step) b=$(loss ranks $step)
    echo "step $step: loss $a, in two ranks $b"
    awk -v a="$a" -v b="$b" 'BEGIN { d = a - b; exit !(a > 0 && d < 0.002 && d > -0.002) }'
done

# Other weights are other windows.
train --data "plays=$dir/plays:0.5 code='$dir/my code':0.5" --out "$dir/other" 2>/dev/null
[ "$(loss other 12)" != "$(loss whole 12)" ]
status=0
train --data "plays=$dir/plays:0" --out "$dir/none" 2>"$dir/log" || status=$?
[ $status = 2 ] && grep -q 'all sources have weight 0 at step 0 of the run' "$dir/log"
