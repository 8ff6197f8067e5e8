#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two islands with real daemons train one model, each trainer on the device that is named, and end with one truth: the
# same anchors, and the same exported model, byte for byte.
#
#   BUILD=FOLDER tests/gpu/islands.sh [DEVICE DEVICE]     cpu, cuda or auto; default cuda cuda
#
# cuda is GPU 0, or the one that DILOCO_GPU says.
set -eu
one=${1:-cuda} two=${2:-cuda}
: "${BUILD:?is not set: the folder of the programs, as in BUILD=build/gcc}"
BUILD=$(cd "$BUILD" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
text=$here/shakespeare.txt
[ -f "$text" ] || text=$here/../demo/shakespeare.txt
patience_s=100

. "$here/two_islands.sh"
look() { ! grep -a 'error: trainer: ' "$place/paris/dilocod.log" "$place/oslo/dilocod.log" || fail "$1: a trainer failed"; }

# Each takes every step and waits for the other, whichever is faster or begins first.
cat >"$place/run.ini" <<'INI'
[run]
name = gpu
steps = 600
[model]
vocab = 256
width = 128
layers = 4
heads = 2
kv_heads = 1
ff = 256
context = 128
[train]
batch = 8
warmup = 20
[sync]
interval = 20
layers_per_fragment = 1
overlap = 2
pace = lockstep
late = wait
quorum = 2
INI

# Of a device: the line that says it, and which GPU where that is not the first.
lines_of() {
    echo "device = $1"
    [ "$1" != cuda ] || [ "${DILOCO_GPU:-0}" = 0 ] || echo "devices = $DILOCO_GPU"
}
train_on() { # island, device
    lines_of "$2" >"$place/lines"
    sed -i -e "/^devices =/d; s/^threads = .*/threads = 2/" -e "/^device = /r $place/lines" -e "/^device = /d" "$place/$1/dilocod.conf"
}

make_paris
train_on paris "$one"
begin=$(date +%s)
together train_on oslo "$two"
await "both end with the same anchors" same
for name in paris oslo; do
    device=$one; [ $name = paris ] || device=$two
    if [ "$device" != auto ]; then
        grep -q "device $device: " "$place/$name/dilocod.log" || fail "$name did not train on $device"
    fi
    ! grep -q 'was killed by signal\|hash differs' "$place/$name/dilocod.log" || fail "$name: see its log"
    ctl $name stop >/dev/null || fail "$name does not stop"
done
cmp "$place/paris/state/anchor.safetensors" "$place/oslo/state/anchor.safetensors" || fail "the exported models differ"
echo "paris on $one, oslo on $two: $(grep -m1 -o 'device [a-z]*: .*' "$place/paris/dilocod.log")"
echo "equal anchors after $(($(date +%s) - begin)) s"
