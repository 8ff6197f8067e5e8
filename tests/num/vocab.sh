#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The largest vocabulary of a run spec, with tokens of 32 bits: trains, goes on to the same bytes, evaluates and samples.
set -eu
case ${SAN:-} in *thread*) echo "the trainer uses OpenMP, whose runtime the thread sanitizer cannot see into"; exit 77 ;; esac
dir=$BUILD/test-data/vocab-$$
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
worker=$BUILD/diloco-worker
vocab=1048576
cat >"$dir/run.ini" <<INI
[run]
name = vocab
steps = 6
[model]
vocab = $vocab
width = 4
layers = 1
heads = 2
context = 16
[data]
format = uint32
held_out = 0.2
[train]
batch = 2
lr = 0.05
INI
# Over and over the eight tokens below 2^20, as little-endian numbers.
once=$(awk -v end=$vocab 'BEGIN { for (i = 8; i > 0; i--) { t = end - i; printf "\\%03o\\%03o\\%03o\\000", t % 256, t / 256 % 256, t / 65536 } }')
i=0
while [ $i -lt 100 ]; do
    # shellcheck disable=SC2059
    printf "$once"
    i=$((i + 1))
done >"$dir/corpus.bin"
options="--data $dir/corpus.bin --threads 1 --eval-batches 1"
"$worker" train --run "$dir/run.ini" $options --out "$dir/whole"
"$worker" train --run "$dir/run.ini" $options --out "$dir/halves" --checkpoint-every 3
rm "$dir/halves/worker-000000006.safetensors"
"$worker" train --run "$dir/run.ini" $options --out "$dir/halves"
cmp "$dir/whole/worker-000000006.safetensors" "$dir/halves/worker-000000006.safetensors"
params="--params $dir/whole/worker-000000006.safetensors"
before=$("$worker" eval --run "$dir/run.ini" $options)
after=$("$worker" eval $params $options)
echo "held-out loss $before, then $after"
awk -v a="$before" -v b="$after" 'BEGIN { exit !(a > 13.8 && a < 13.9 && b < a - 0.01) }' # ln 2^20 = 13.86
"$worker" sample $params --threads 1 --prompt "1048575 1048568" --tokens 3 --temperature 0 | tee "$dir/said"
[ "$(wc -w <"$dir/said")" = 5 ]
grep -q '^1048575 1048568 ' "$dir/said"
status=0
"$worker" sample $params --threads 1 --prompt "1048576" 2>"$dir/log" || status=$?
[ $status = 2 ] && grep -q '"1048576" is not a token below 1048576' "$dir/log"
