#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A trainer of several ranks: what it trains is what one process trains, whatever their number, also across a stop; and
# an island of 2 x 2 ranks and one of a single process end with one truth, however contributions travel, and though ranks
# are killed on the way.
set -eu
: "${BUILD:?is not set: the folder of the programs, as in BUILD=build/gcc}"
BUILD=$(cd "$BUILD" && pwd)
tests=$(cd "$(dirname "$0")/.." && pwd)
text=$tests/demo/shakespeare.txt
patience_s=120
long=6000 # steps of a run in which an island comes back three times
case ${SAN:-} in
*thread*) patience_s=300 long=1500 ;;
?*) patience_s=300 ;; # what it takes is two to three times as much there
esac

. "$tests/gpu/two_islands.sh"

# ---- alone ----

spec() { # steps, more lines of [sync]
    cat <<INI
[run]
name = ranks
steps = $1
[model]
vocab = 256
width = 64
layers = 2
heads = 4
kv_heads = 2
ff = 96
context = 32
[train]
batch = 4
optimizer = adamw
lr = 3e-3
warmup = 10
[sync]
interval = 20
layers_per_fragment = 1
pace = lockstep
late = wait
$2
INI
}
spec 50 '' >"$place/run.ini"
before= # exec: the shell that trains becomes the trainer
train() { # folder, options
    folder=$place/$1; shift
    $before "$BUILD/diloco-worker" train --run "$place/run.ini" --data "$text" --out "$folder" --checkpoint-every 10 "$@" >"$folder.log" 2>&1
}
losses() { sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$place/$1/train.jsonl"; }
near() { # folder: its losses are those of one rank
    losses "$1" >"$place/got"
    [ "$(wc -l <"$place/got")" -eq 50 ] || fail "$1: $(wc -l <"$place/got") steps, not 50"
    paste "$place/want" "$place/got" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4 * $1) { print "step " NR ": " $2 ", alone " $1; exit 1 } }' ||
        fail "$1: does not train as one process does"
}
train one
losses one >"$place/want"
for ranks in 2 4; do
    train many$ranks --ranks $ranks || { cat "$place/many$ranks.log"; fail "$ranks ranks fail"; }
    near many$ranks
    train layers$ranks --ranks $ranks --tensor-parallel 2 || { cat "$place/layers$ranks.log"; fail "$ranks ranks that share layers fail"; }
    near layers$ranks
done
train again --ranks 2
cmp "$place/many2/worker-000000050.safetensors" "$place/again/worker-000000050.safetensors" || fail "two ranks train otherwise the second time"
# Stopped and gone on with: in the same shape to the bit, in others nearly.
steps_of() { if [ -f "$place/$1/train.jsonl" ]; then grep -c '"loss"' "$place/$1/train.jsonl" || true; else echo 0; fi; }
# Fails where it was done before anybody looked, as on a busy machine: then it is begun anew.
stop_after() { # folder, steps
    for _ in $(seq 600); do
        [ "$(steps_of "$1")" -lt "$2" ] || break
        sleep 0.02
    done
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" || fail "$1: an end that was asked for is no failure: $(cat "$place/$1.log")"
    [ "$(steps_of "$1")" -lt 50 ]
}
for shape in '2' '4 --tensor-parallel 2'; do
    name=${shape%% *}
    [ $name = 2 ] && whole=many2 || whole=layers4
    until { (before=exec; train halves$name --ranks $shape) & pid=$!; stop_after halves$name 20; }; do
        rm -rf "$place/halves$name"
    done
    train halves$name --ranks $shape || { cat "$place/halves$name.log"; fail "$shape ranks do not go on"; }
    grep -q 'resuming after step' "$place/halves$name.log" || fail "$shape ranks began anew"
    cmp "$place/$whole/worker-000000050.safetensors" "$place/halves$name/worker-000000050.safetensors" ||
        fail "$shape ranks that were stopped end otherwise"
done
# The first rank alone is told: all stop behind the same step.
told_one() {
    (before=exec; train alone --ranks 2) & pid=$!
    for _ in $(seq 600); do
        [ "$(steps_of alone)" -lt 20 ] || break
        sleep 0.02
    done
    kill -TERM "$(pgrep -P "$pid" | head -n 1)" 2>/dev/null || true
    wait "$pid" || fail "alone: an end that one rank was asked for is no failure: $(cat "$place/alone.log")"
    [ "$(steps_of alone)" -lt 50 ]
}
tries=0
until told_one; do
    rm -rf "$place/alone"
    tries=$((tries + 1))
    [ $tries -lt 50 ] || fail "two ranks train on though the first of them is told to stop"
done
train alone --ranks 2 || { cat "$place/alone.log"; fail "two ranks do not go on where one was told to stop"; }
cmp "$place/many2/worker-000000050.safetensors" "$place/alone/worker-000000050.safetensors" ||
    fail "two ranks of which one was told to stop end otherwise"
in_pieces() {
    for shape in '4 --tensor-parallel 2' 4 '2 --tensor-parallel 2'; do
        so_far=$(steps_of changing)
        (before=exec; train changing --ranks $shape) & pid=$!
        stop_after changing $((so_far + 5)) || return 1
    done
}
until in_pieces; do
    rm -rf "$place/changing"
done
train changing || fail "one process does not go on where ranks have stopped"
near changing
refused() { # words to find, options
    words=$1; shift
    status=0
    train refused "$@" || status=$?
    [ $status -eq 2 ] && grep -q "$words" "$place/refused.log" || { cat "$place/refused.log"; fail "$*: status $status, or it does not say: $words"; }
    [ "$(grep -c error "$place/refused.log")" -eq 1 ] || fail "$*: more than one line of error"
}
refused 'cannot be shared out evenly among 3 ranks' --ranks 3
refused 'at most 64' --ranks 65
refused 'ranks 0: at least 1' --ranks 0
refused 'tensor-parallel 3 does not divide 4 ranks' --ranks 4 --tensor-parallel 3
refused 'tensor-parallel 0 does not divide 4 ranks' --ranks 4 --tensor-parallel 0
refused 'heads 4 cannot be shared out evenly among 3' --ranks 3 --tensor-parallel 3
refused 'kv_heads 2 cannot be shared out evenly among 4' --ranks 4 --tensor-parallel 4
refused 'batch 4 cannot be shared out evenly among 8 ranks of each column' --ranks 16 --tensor-parallel 2
sed -i 's/^ff = .*/ff = 95/' "$place/run.ini"
refused 'ff 95 cannot be shared out evenly among 2' --ranks 2 --tensor-parallel 2
refused 'device 1 is there twice' --device cuda --devices 0-2,1
refused 'names GPUs; add --device cuda' --devices 0,1
refused 'expected numbers' --device cuda --devices 0-x
refused 'vocab 2 is less than 4 tensor-parallel ranks' --ranks 4 --tensor-parallel 4 --set model.vocab=2 --set data.format=tokens --set model.kv_heads=4 --set model.ff=96
[ -e /dev/nvidiactl ] || refused 'device cuda' --device cuda
[ -e /dev/nvidiactl ] || refused 'rank . (cuda' --device cuda --devices 0,1
[ -e /dev/nvidiactl ] || refused 'rank . (cuda' --device auto --devices 0,1 # no ranks on the CPU in their place
[ ! -e "$place/refused" ] || fail "what is refused leaves a folder"

# ---- two islands ----

at_step() { [ "$(value paris step || echo 0)" -ge "$1" ] 2>/dev/null; }

# The ranks of paris, or their launcher.
launcher() { pgrep -o -f "out $place/paris/state/worker" || true; }
rank() { # its place in the list: 1p, $p
    first=$(launcher)
    [ -z "$first" ] || pgrep -P "$first" | sed -n "$1"
}
# A rank that is killed, rank 0, the launcher; one that stands still for a while. Each time all are back by themselves.
trouble() { # what it is called
    for who in 'rank $p' 'rank 1p' launcher 'rank 2p'; do
        so_far=$(($(value paris step || echo 0) + 40))
        await "$1: paris trains up to step $so_far" at_step $so_far
        pid=$($who)
        [ -n "$pid" ] || fail "$1: there is no $who"
        [ "$who" != 'rank 2p' ] || { kill -STOP "$pid"; sleep 1.5; kill -CONT "$pid"; continue; }
        kill -KILL "$pid"
        await "$1: $who is gone" gone "$pid"
    done
}
# All checkpoints of paris are damaged: its ranks go on together from the run's anchor.
damage() { # what it is called
    must "$1: paris does not stop" paris stop
    so_far=$(steps_of paris/state/worker)
    for file in "$place/paris/state/worker"/worker-*.safetensors; do
        truncate -s 1000 "$file"
    done
    must "$1: paris does not start" paris start
    await "$1: paris trains on with no checkpoint that is whole" at_step $((so_far + 10))
    [ "$(grep -c 'going on from the run.s anchor' "$place/paris/dilocod.log")" -eq 1 ] ||
        fail "$1: not one line about where it goes on from"
}
gone() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:.Z' "/proc/$1/status"; }

islands() { # what it is called, lines of [sync], whether there is trouble
    rm -rf "$place/paris" "$place/oslo"
    steps=300
    [ "$3" != trouble ] || steps=$long
    spec $steps "$2" >"$place/run.ini"
    make_paris
    sed -i "s/^threads = .*/threads = 1/; s/^ranks = .*/ranks = 4/; s/^tensor_parallel = .*/tensor_parallel = 2/" "$place/paris/dilocod.conf"
    grep -q '^tensor_parallel = 2' "$place/paris/dilocod.conf" || fail "the configuration has no tensor_parallel"
    together sed -i "s/^threads = .*/threads = 1/" "$place/oslo/dilocod.conf"
    sed -i "s/^autostart = .*/autostart = yes/" "$place/paris/dilocod.conf" # when it is started again
    [ "$3" != trouble ] || { trouble "$1"; damage "$1"; }
    await "$1: both end with the same anchors" same
    for name in paris oslo; do # 4 sequences of 32 tokens a step
        counted=$(value $name tokens_counted)
        # A step that was killed may have no line yet, and each of three kills takes one.
        trained=$(($(grep -c '"loss"' "$place/$name/state/worker/train.jsonl") * 128)) killed=$((3 * 128))
        [ "$counted" -gt 0 ] && [ "$counted" -le $((trained + killed)) ] || fail "$1: $name has $counted tokens counted, and has trained $trained"
        [ "$3" = trouble ] || [ "$counted" -eq $trained ] || fail "$1: $name has $counted tokens counted, not $trained"
    done
    for name in paris oslo; do # the file that follows by itself is written a moment after the last round
        ctl $name save >/dev/null || fail "$1: $name does not save"
        ctl $name stop >/dev/null || fail "$1: $name does not stop"
    done
    cmp "$place/paris/state/anchor.safetensors" "$place/oslo/state/anchor.safetensors" || fail "$1: the exported models differ"
    [ "$3" != trouble ] || [ "$(grep -c 'was killed by signal 9' "$place/paris/dilocod.log")" -ge 2 ] || fail "$1: nobody says that ranks were killed"
    echo "$1: equal anchors"
}
# One island alone in a run: anchors come back into what it trains on, in any number of ranks as in one.
in_a_run() { # ranks, of which so many share layers
    rm -rf "$place/paris"
    spec 120 'overlap = 2
codec = fp32' >"$place/run.ini"
    must "paris cannot be made" paris init --name paris --data "$text" --run "$place/run.ini" --listen '' --no-start
    sed -i "s/^threads = .*/threads = 1/; s/^ranks = .*/ranks = $1/; s/^tensor_parallel = .*/tensor_parallel = $2/" "$place/paris/dilocod.conf"
    grep -q "^ranks = $1" "$place/paris/dilocod.conf" || fail "the configuration has no ranks"
    must "paris does not start" paris start
    await "paris with $1 ranks is done" finished paris
    ctl paris stop >/dev/null || fail "paris does not stop"
    sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$place/paris/state/worker/train.jsonl" >"$place/run$1"
    [ "$(wc -l <"$place/run$1")" -eq 120 ] || fail "paris with $1 ranks: $(wc -l <"$place/run$1") steps, not 120"
}
in_a_run 1 1
for shape in '2 1' '4 2'; do
    in_a_run $shape
    paste "$place/run1" "$place/run${shape% *}" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-3 * $1) { print "step " NR ": " $2 ", one rank " $1; exit 1 } }' ||
        fail "in a run, $shape ranks do not train as one does"
done

# With a quorum of both the other island does not come to the run's end before this one is there.
if command -v pgrep >/dev/null 2>&1; then
    islands 'streaming, ranks killed and stopped' 'overlap = 2
quorum = 2' trouble
else
    echo "skip: no ranks are killed: there is no pgrep to find them (apt-get install procps)"
    islands 'streaming' 'overlap = 2
quorum = 2' no
fi
islands 'set aside' 'overlap = 20
quorum = 2' no
islands 'eager' "overlap = 20
quorum = 2
eager = yes
mix = 0" no
