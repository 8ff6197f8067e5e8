#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A standalone run that is stopped, or killed, and resumed ends with the same bytes as one that was not, whatever it made
# again instead of keeping it.
set -eu
case ${SAN:-} in *thread*) echo "the trainer uses OpenMP, whose runtime the thread sanitizer cannot see into"; exit 77 ;; esac
dir=$BUILD/test-data/resume-$$
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
worker=$BUILD/diloco-worker
cat >"$dir/run.ini" <<INI
[run]
name = resume
steps = 40
[model]
width = 96
layers = 3
heads = 4
kv_heads = 2
context = 64
[train]
batch = 4
accumulate = 2
warmup = 5
INI
cat common/*.c >"$dir/corpus"
options="--run $dir/run.ini --data $dir/corpus --threads 2 --eval-batches 2 --checkpoint-every 10"
train() { "$worker" train $options "$@"; }

train --out "$dir/whole"
"$worker" train $options --out "$dir/halves" &
pid=$!
# Stopped in the middle by SIGTERM: saves and ends well.
while ! grep -q '"step":7,' "$dir/halves/train.jsonl" 2>/dev/null; do kill -0 $pid 2>/dev/null || break; sleep 0.01; done
# No handler may run on a thread that multiplies matrices: some of oneDNN's kernels use the stack pointer as a number,
# and a signal frame would be written over the heap.
caught=$((0x$(sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$pid/status)))
[ $((caught & 0x4002)) = 0 ] || { echo "the trainer has a handler for SIGINT or SIGTERM"; exit 1; }
kill -TERM $pid 2>/dev/null || true
wait $pid
"$worker" train $options --recompute layer --out "$dir/halves" &
pid=$!
# Killed outright: goes on from the last checkpoint.
while ! grep -q '"step":24,' "$dir/halves/train.jsonl" 2>/dev/null; do kill -0 $pid 2>/dev/null || break; sleep 0.01; done
kill -KILL $pid 2>/dev/null || true
wait $pid || true
train --recompute norms --out "$dir/halves"
cmp "$dir/whole/worker-000000040.safetensors" "$dir/halves/worker-000000040.safetensors"

# The same with bf16 products, from a checkpoint or not; and as it is no part of the run, a run may change it on the way.
half="--set train.precision=bf16"
train $half --set run.steps=20 --set train.warmup=2 --out "$dir/bf16" 2>"$dir/log"
if grep -q 'neither AVX512-BF16 nor AMX; training in fp32' "$dir/log"; then
    echo "skip: this CPU trains in fp32"
else
    grep -q 'device cpu: .*, products in bf16' "$dir/log"
    mkdir "$dir/bf16-halves"
    cp "$dir/bf16/worker-000000010.safetensors" "$dir/bf16-halves"
    train $half --set run.steps=20 --set train.warmup=2 --out "$dir/bf16-halves"
    cmp "$dir/bf16/worker-000000020.safetensors" "$dir/bf16-halves/worker-000000020.safetensors"
    rm "$dir/bf16-halves/worker-000000020.safetensors"
    train --set run.steps=20 --set train.warmup=2 --out "$dir/bf16-halves" 2>"$dir/log"
    grep -q 'resuming after step 10' "$dir/log"
    cmp -s "$dir/bf16/worker-000000020.safetensors" "$dir/bf16-halves/worker-000000020.safetensors" && exit 1
fi
# What the CPU cannot do is said, and trained in fp32.
train --set run.steps=2 --set train.warmup=0 --out "$dir/plain" >"$dir/log" 2>&1
grep -q 'products in bf16' "$dir/log" && exit 1
ONEDNN_MAX_CPU_ISA=AVX2 train $half --set run.steps=2 --set train.warmup=0 --out "$dir/without" 2>"$dir/log"
grep -q 'warn.*\[train\] precision = bf16: this CPU has neither AVX512-BF16 nor AMX; training in fp32' "$dir/log"
[ -f "$dir/without/worker-000000002.safetensors" ]

# A damaged newest checkpoint is reported and the one before is used; another run spec is refused.
newest=$dir/halves/worker-000000040.safetensors
printf x | dd of="$newest" bs=1 seek=$(($(wc -c <"$newest") - 5001)) conv=notrunc 2>/dev/null
train --out "$dir/halves" 2>&1 | tee "$dir/log" >&2
grep -q 'checksum does not match.*trying the one before' "$dir/log"
grep -q 'resuming after step 30' "$dir/log"
cmp "$dir/whole/worker-000000040.safetensors" "$dir/halves/worker-000000040.safetensors"
status=0
train --out "$dir/halves" --set train.lr=0.5 2>"$dir/log" || status=$?
[ $status = 2 ] && grep -q 'belongs to another run spec' "$dir/log"

# What the memory does not hold is refused before any of it is taken, with what would fit; --recompute has three words.
status=0
train --out "$dir/huge" --set model.width=65536 --set model.layers=100 2>"$dir/log" || status=$?
[ $status = 1 ] && grep -q 'this model needs .* GiB on device cpu .* free; .* smaller model' "$dir/log"
status=0
huge="--run $dir/run.ini --set model.width=65536 --set model.layers=100"
"$worker" eval $huge --data "$dir/corpus" 2>"$dir/log" || status=$?
[ $status = 1 ] && grep -q 'this model needs .* GiB on device cpu (parameters [0-9.]*, activations .* free; it takes a device' "$dir/log"
status=0
"$worker" sample $huge --params "$dir/whole/worker-000000040.safetensors" 2>"$dir/log" || status=$?
[ $status = 1 ] && grep -q 'this model needs .* GiB on device cpu (parameters .* caches .*free; it takes a device' "$dir/log"
status=0
train --out "$dir/huge" --rounding up 2>"$dir/log" || status=$?
[ $status = 2 ] && grep -q 'rounding up: expected nearest or stochastic' "$dir/log"
status=0
train --out "$dir/huge" --recompute layers 2>"$dir/log" || status=$?
[ $status = 2 ] && grep -q 'recompute layers: expected none, norms or layer' "$dir/log"

# A full disk is named, ends the command with an error, and leaves what was saved.
if mkdir "$dir/small" && mount -t tmpfs -o size=256k tmpfs "$dir/small" 2>/dev/null; then
    status=0
    train --out "$dir/small" 2>"$dir/log" || status=$?
    umount "$dir/small"
    cat "$dir/log" >&2
    [ $status = 1 ] && grep -q 'free some space; nothing that was saved is lost' "$dir/log"
else
    echo "skip: no right to mount a small file system; the full disk was not tried"
fi
echo ok
