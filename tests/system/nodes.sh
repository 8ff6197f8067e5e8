#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An island over two machines, namespaces of this one, joined by a bridge: docs/example-ranks.c by MPI, two ranks on each,
# beside an island of one process. In the end all hold the same values, bit for bit.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/machines.sh
skip() { echo "skip: $1"; exit 77; }
for tool in mpicc mpirun; do
    command -v $tool >/dev/null 2>&1 || skip "there is no $tool; apt-get install libopenmpi-dev openmpi-bin"
done
machines_possible || skip "$reason"

work=$(mktemp -d /tmp/diloco-nodes-XXXXXX) # sockets have short paths
ctl=$PWD/$BUILD/dilococtl
islands='paris oslo'
end() {
    for island in $islands; do "$ctl" stop --home "$work/$island" >/dev/null 2>&1; done
    machines_end
    [ -n "${KEEP:-}" ] || rm -rf "$work"
}
trap end EXIT
fail() {
    echo "FAIL: $1"
    for island in $islands; do echo "--- $island"; tail -n 30 "$work/$island/dilocod.log" 2>/dev/null; done
    exit 1
}
await() { # seconds, what, command...
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "not within its time: $what"
        sleep 0.2
    done
}

libraries=$(PKG_CONFIG_PATH='' pkg-config --libs libsodium jansson inih)
mpicc docs/example-ranks.c -o "$work/example-ranks" -O2 -Wall -Wextra -Werror -Iworker/libdiloco "$BUILD/libdiloco.a" \
    $libraries -lm ${SAN:+-fsanitize=$SAN} || fail "docs/example-ranks.c does not compile"

machines_begin 2 "$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpi="mpirun --mca plm_rsh_agent $work/agent --mca btl tcp,self --mca btl_tcp_if_include $machines_net"
mpi="$mpi --mca oob_tcp_if_include $machines_net --mca rmaps_base_oversubscribe 1 --mca hwloc_base_binding_policy none"
mpi="$mpi --output-filename $work/ranks:nojobid,nocopy -x DILOCO_SOCKET"

cat >"$work/run.ini" <<'I'
[run]
name = nodes
steps = 1000
[sync]
interval = 50
late = merge
pace = lockstep
I
port() { python3 -c 'import sys; sys.path.insert(0, "tests/python"); import islands; print(islands.free_port())'; }
program() { # island, program
    sed -i "s|^program = .*|program = $2|" "$work/$1/dilocod.conf" || fail "$1 has no program"
    "$ctl" start --home "$work/$1" >/dev/null || fail "$1 does not start"
}
at=127.0.0.1:$(port)
"$ctl" init --home "$work/paris" --name paris --run "$work/run.ini" --listen "$at" --address "$at" --data README.md \
    --no-start >/dev/null || fail "paris cannot be made"
program paris "$mpi -n 4 -H $(hostname):2,node1:2 $work/example-ranks"
token=$("$ctl" invite --home "$work/paris" | grep -o 'dlc1\.[^ ]*' | head -n 1)
"$ctl" join "$token" --home "$work/oslo" --name oslo --listen "127.0.0.1:$(port)" --data README.md --no-start >/dev/null ||
    fail "oslo cannot join"
program oslo "$work/example-ranks"

ended() { grep -q 'the trainer (pid [0-9]*) ended with status 0' "$work/$1/dilocod.log"; }
await 120 "the end of paris" ended paris
await 120 "the end of oslo" ended oslo
anchors() { "$ctl" status --home "$work/$1" --json | sed -n 's/.*"anchors": *"\([0-9a-f]*\)".*/\1/p'; }
same() { [ -n "$(anchors paris)" ] && [ "$(anchors paris)" = "$(anchors oslo)" ]; }
await 30 "one model on both" same
said=$(cat "$work"/ranks/rank.*/stdout | sort)
echo "$said"
[ "$(echo "$said" | grep -c '^island paris, rank [0-9] on [^ ]* of 4')" -eq 4 ] || fail "not four ranks"
[ "$(echo "$said" | grep -c ' on node1 of 4')" -eq 2 ] || fail "not two of them on the second machine"
# What each rank says that its first number is in the end is what the anchor holds.
echo "$said" >"$work/said"
python3 - "$work/paris/state/anchor.safetensors" "$work/said" <<'P' || fail "ranks hold other values than the anchor"
import array, json, re, sys
data = open(sys.argv[1], "rb").read()
size = int.from_bytes(data[:8], "little")
begin, end = json.loads(data[8 : 8 + size])["w"]["data_offsets"]
values = array.array("f", data[8 + size + begin : 8 + size + end])
said = dict(re.findall(r"done: w\[(\d+)\] = ([-\d.e]+),", open(sys.argv[2]).read()))
assert sorted(map(int, said)) == [0, 500, 1000, 1500], said
assert all(values[int(at)] == array.array("f", [float(text)])[0] for at, text in said.items()), said
P
