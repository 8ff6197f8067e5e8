#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An island whose daemon is on a machine without any rank: its program is diloco-gateway, and docs/example-ranks.c has two
# ranks on each of two other machines, beside an island of one process. In the end all hold the same values, bit for bit.
# On the way: keys that are missing, open, of another gateway, of another site; a second trainer; a rank that is killed;
# a daemon that is; a gateway that is.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/machines.sh
. tests/lib/ranks.sh
ranks_begin 3 'paris oslo'
spec 1500
port=$(port)
found paris "$PWD/$BUILD/diloco-gateway --listen *:$port" "127.0.0.1:$(port)"
gateway=tcp://$machines_base.1:$port
key=$work/paris/site.key
await 20 "a key for ranks" test -s "$key"
[ "$(stat -c %a "$key" "$work/paris/gateway.key" | sort -u)" = 600 ] || fail "others may read the keys"

ranks() { # key, file of what they say, how many, hosts
    env DILOCO_SOCKET="$gateway" DILOCO_SITE_KEY="$1" ${SAN:+ASAN_OPTIONS=detect_leaks=0} \
        mpirun --mca plm_rsh_agent "$work/agent" --output-filename "$work/$2.ranks:nojobid" -x DILOCO_SOCKET -x DILOCO_SITE_KEY \
        ${SAN:+-x ASAN_OPTIONS} -n "$3" -H "$4" "$work/example-ranks" 10 >"$work/$2" 2>&1 </dev/null
}
refused() { # what is said, key
    ranks "$2" refused 1 node1:1 && fail "it attached: $1"
    grep -q "attach: .*$1" "$work/refused" || { cat "$work/refused"; fail "it is not said: $1"; }
}
line_of() { printf '%s %s %s\n' "$@" >"$work/other.key" && chmod 600 "$work/other.key"; }
refused 'other.key: No such file' "$work/other.key"
cp "$key" "$work/open.key" && chmod 644 "$work/open.key"
refused 'others may read this key (mode 0644); chmod 600' "$work/open.key"
line_of nonsense
refused 'is no key of this kind' "$work/other.key"
"$BUILD/diloco-gateway" --listen nowhere: --socket none --key "$work/another" --site-key "$work/another.key" 2>/dev/null
read -r word public secret <"$key"
read -r _ stranger theirs <"$work/another.key"
line_of "$word" "$stranger" "$secret"
refused 'hung up before it had said a word: the key in .*other.key' "$work/other.key"
line_of "$word" "$public" "$theirs"
refused 'hung up before it had said a word: the key in .*other.key' "$work/other.key"
grep -q "somebody without this site's key at .*$machines_base.2" "$work/paris/dilocod.log" || fail "who had no key is not said"

steps() { "$ctl" status --home "$work/paris" --json | sed -n 's/.*"step": *\([0-9]*\).*/\1/p' | head -n 1; }
trained() { [ "$(steps)" -ge "$1" ] 2>/dev/null; }
ranks "$key" first 4 node1:2,node2:2 &
await 60 "four ranks" grep -q 'rank 3 on node2 of 4' "$work/first"
join oslo "$work/example-ranks 11" "127.0.0.1:$(port)"
"$ctl" start --home "$work/oslo" >/dev/null || fail "oslo does not start"
refused 'has a trainer: rank 0 on node1 and others; end it' "$key"

# One that is killed is named, and who comes then goes on.
pkill -KILL -n -f "^$work/example-ranks 10" || fail "no rank to kill"
wait
grep -q 'rank [0-3] on node[12] is gone, or the way from it' "$work/paris/dilocod.log" || fail "who was killed is not said"
before=$(steps)
ranks "$key" second 4 node1:2,node2:2 &
await 60 "steps after that" trained $((before + 50))

# Without its daemon training goes on; the gateway finds the next one.
pkill -KILL -f "dilocod.*$work/paris"
sleep 1
"$ctl" start --home "$work/paris" >/dev/null || fail "paris does not start again"
before=$(steps)
await 60 "steps after that" trained $((before + 50))
grep -c 'rank [0-3] on node. of 4' "$work/second" | grep -qx 4 || fail "the ranks did not train on"

# Without the gateway they end, with a line that says so, and the next ones go on.
pkill -KILL -f "^$PWD/$BUILD/diloco-gateway --listen \*:$port"
wait
grep -q "train: the gateway at $gateway is gone" "$work/second" || { cat "$work/second"; fail "that the gateway is gone is not said"; }
ranks "$key" third 4 node1:2,node2:2 &

await 120 "the end of paris" ended paris
await 120 "the end of oslo" ended oslo
wait
same() { [ -n "$(anchors paris)" ] && [ "$(anchors paris)" = "$(anchors oslo)" ]; }
await 30 "one model on both" same
assert_ranks_hold_the_anchor paris "$work/third"
