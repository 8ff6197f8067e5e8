#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An island over two machines, namespaces of this one, joined by a bridge: docs/example-ranks.c by MPI, two ranks on each,
# beside an island of one process. In the end all hold the same values, bit for bit.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/machines.sh
. tests/lib/ranks.sh
ranks_begin 2 'paris oslo'
spec 1000
found paris "mpirun --mca plm_rsh_agent $work/agent --output-filename $work/ranks:nojobid,nocopy ${SAN:+-x ASAN_OPTIONS} -n 4 \
-H $(hostname):2,node1:2 $work/example-ranks" "127.0.0.1:$(port)"
join oslo "$work/example-ranks" "127.0.0.1:$(port)"
"$ctl" start --home "$work/oslo" >/dev/null || fail "oslo does not start"

await 120 "the end of paris" ended paris
await 120 "the end of oslo" ended oslo
same() { [ -n "$(anchors paris)" ] && [ "$(anchors paris)" = "$(anchors oslo)" ]; }
await 30 "one model on both" same
cat "$work"/ranks/rank.*/stdout | sort | tee "$work/said"
[ "$(grep -c '^island paris, rank [0-9] on [^ ]* of 4' "$work/said")" -eq 4 ] || fail "not four ranks"
[ "$(grep -c ' on node1 of 4' "$work/said")" -eq 2 ] || fail "not two of them on the second machine"
assert_ranks_hold_the_anchor paris "$work/said"
