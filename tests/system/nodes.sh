#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An island over two machines, namespaces of this one, joined by a bridge: docs/example-ranks.c by MPI, two ranks on each,
# beside an island of one process. A rank on the second machine, which alone is asked to end, ends all of them in order;
# started again they go on. In the end all hold the same values, bit for bit.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/machines.sh
. tests/lib/ranks.sh
ranks_begin 2 'paris oslo'
spec 1000
found paris "mpirun --mca plm_rsh_agent $work/agent --output-filename $work/ranks:nojobid,nocopy ${SAN:+-x ASAN_OPTIONS} -n 4 \
-H $(hostname):2,node1:2 $work/example-ranks 5" "127.0.0.1:$(port)"
join oslo "$work/example-ranks 5" "127.0.0.1:$(port)"
"$ctl" start --home "$work/oslo" >/dev/null || fail "oslo does not start"

trains() { "$ctl" status --home "$work/$1" --json | grep -qE '"step": *[1-9][0-9]{2}'; }
await 60 "a hundred steps of paris" trains paris
far=$(pgrep -o -x example-ranks --ns "$(machines_pid 1)" --nslist pid) || fail "no rank is on the second machine"
kill -TERM "$far"
await 60 "an end in order" ended paris
grep -q '^not the end: ' "$work"/ranks/rank.*/stdout || fail "no rank says why it ended"
"$ctl" stop --home "$work/paris" >/dev/null
: >"$work/paris/dilocod.log"
"$ctl" start --home "$work/paris" >/dev/null || fail "paris does not start again"

await 120 "the end of paris" ended paris
await 120 "the end of oslo" ended oslo
same() { [ -n "$(anchors paris)" ] && [ "$(anchors paris)" = "$(anchors oslo)" ]; }
await 30 "one model on both" same
cat "$work"/ranks/rank.*/stdout | sort | tee "$work/said"
[ "$(grep -c '^island paris, rank [0-9] on [^ ]* of 4' "$work/said")" -eq 4 ] || fail "not four ranks"
[ "$(grep -c ' on node1 of 4' "$work/said")" -eq 2 ] || fail "not two of them on the second machine"
assert_ranks_hold_the_anchor paris "$work/said"
