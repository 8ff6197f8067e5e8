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

place=$(mktemp -d /tmp/diloco-gpu-XXXXXX) # sockets have short paths
ctl() { home=$place/$1; shift; "$BUILD/dilococtl" --home "$home" "$@"; }
end() {
    for name in paris oslo; do
        [ ! -d "$place/$name" ] || ctl $name stop >/dev/null 2>&1 || true
    done
    rm -rf "$place"
}
trap end EXIT
trap 'exit 1' INT TERM
fail() {
    for name in paris oslo; do
        echo "--- the log of $name:"
        tail -n 25 "$place/$name/dilocod.log" 2>/dev/null || true
    done
    echo "$1"
    exit 1
}
# A value of the status, of the island's own or of its trainer's part.
value() { ctl "$1" status --json 2>/dev/null | tr ',{}' '\n\n\n' | sed -n "s/^ *\"$2\": *\"\{0,1\}\([^\"]*\)\"\{0,1\} *$/\1/p" | head -n 1; }
await() { # what it is called, and a command that says yes
    what=$1; shift
    begin=$(date +%s)
    until "$@"; do
        ! grep -a 'error: trainer: ' "$place/paris/dilocod.log" "$place/oslo/dilocod.log" || fail "$what: a trainer failed"
        [ $(($(date +%s) - begin)) -le $patience_s ] || fail "$what: not within $patience_s s"
        sleep 0.5
    done
}
finished() { [ "$(value "$1" state)" = finished ] && [ -n "$(value "$1" saved)" ]; }
same() {
    a=$(value paris anchors) b=$(value oslo anchors)
    [ ${#a} -eq 64 ] && [ "$a" = "$b" ] && finished paris && finished oslo
}

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
# Oslo joins the run of paris before it has come far, so that both begin at nearly the same step.
in_the_run() { ctl paris peers --json | tr -d '\n' | tr '{' '\n' | grep '"name": "oslo"' | grep -q '"role": "owner"'; }
together() {
    ctl paris start >"$place/said" 2>&1 || { cat "$place/said"; fail "paris does not start"; }
    # Until its parameters are the run's, with which oslo begins, too.
    for pause_s in 0.1 0.2 0.5 1 2 4 8 16 32; do
        [ "$(value paris anchors | wc -c)" -ne 65 ] || break
        ctl paris resume --no-wait >"$place/said" 2>&1 || true
        sleep $pause_s
        ctl paris pause --now >"$place/said" 2>&1 || { cat "$place/said"; fail "paris does not pause"; }
    done
    ctl paris invite --json >"$place/token" || fail "paris invites nobody"
    ctl oslo join "$(sed -n 's/.*"token": *"\([^"]*\)".*/\1/p' "$place/token")" --name oslo --data "$text" --listen '' --no-start >"$place/said" 2>&1 ||
        { cat "$place/said"; fail "oslo does not join"; }
    sed -i "s/^autostart = .*/autostart = no/" "$place/oslo/dilocod.conf"
    train_on oslo "$two"
    ctl oslo start >"$place/said" 2>&1 || { cat "$place/said"; fail "oslo does not start"; }
    await "oslo is in the run" in_the_run
    for name in paris oslo; do
        ctl $name resume --no-wait >"$place/said" 2>&1 || { cat "$place/said"; fail "$name does not begin"; }
    done
}

ctl paris init --name paris --data "$text" --run "$place/run.ini" --no-start >"$place/said" || { cat "$place/said"; fail "paris cannot be made"; }
port=$(sed -n 's/^listen = .*://p' "$place/paris/dilocod.conf")
sed -i "s/^autostart = .*/autostart = no/; s/^listen = .*/listen = 127.0.0.1:$port/" "$place/paris/dilocod.conf"
train_on paris "$one"
begin=$(date +%s)
together
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
