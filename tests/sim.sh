#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Worlds of the simulator by the thousand: SEEDS of each mix, from seed FIRST on, on all processors (JOBS). Goes on
# behind a world that breaks a promise, and names each by what repeats it. For `make sim`. Of a mix in several sizes
# ("calm") a broken world costs those of larger size with the seeds before it in its hundred: they are not run.
#
# It calls itself for some seeds of one mix: tests/sim.sh "PROGRAM|CASE|MIX|FIRST|COUNT".
set -eu
: "${BUILD:?is not set: the folder of the programs, as in BUILD=build/gcc}"
programs="$BUILD/tests/sim/test_sync $BUILD/tests/sim/test_epochs $BUILD/tests/sim/test_dealing"
at_once=100

some() {
    IFS='|' read -r program case mix from count <<EOF
$1
EOF
    last=$((from + count)) worlds=0 said=$OUT/said.$$
    while [ "$from" -lt $last ]; do
        status=0
        TEST_FILTER=$case TEST_MIX=$mix TEST_SEED_FIRST=$from TEST_SEEDS=$((last - from)) "$program" \
            >"$said" 2>&1 || status=$?
        [ -d "$OUT" ] || exit 1 # interrupted meanwhile
        if [ $status = 0 ]; then
            worlds=$((worlds + $(awk '/ worlds, / { sub(/^[^:]*: /, ""); n += $1 } END { print n + 0 }' "$said")))
            break
        fi
        seed=$(sed -n 's/.*TEST_SEED=\([0-9]*\).*/\1/p' "$said" | head -n 1)
        [ -n "$seed" ] || { cat "$said" >&2; exit 255; }
        {
            sed -n '/^seed /p' "$said" | head -n 1
            echo "    TEST_SEED=$seed TEST_MIX='$mix' TEST_FILTER='$case' $program"
        } >>"$OUT/broken"
        worlds=$((worlds + seed + 1 - from)) from=$((seed + 1))
    done
    rm -f "$said"
    echo "$mix|$worlds" >>"$OUT/worlds"
}

if [ $# -eq 1 ]; then
    some "$1"
    exit 0
fi
seeds=${SEEDS:-10000} first=${FIRST:-1} jobs=${JOBS:-$(nproc)}
for number in "$seeds" "$first" "$jobs"; do
    case $number in
    '' | *[!0-9]* | 0*) echo "sim: \"$number\" is none of 1, 2, 3 ...: SEEDS, FIRST and JOBS are" >&2; exit 2 ;;
    esac
done
OUT=$(mktemp -d)
export OUT
: >"$OUT/worlds"
tell() {
    awk -F '|' '{ n[$1] += $2; all += $2 }
        END { for (mix in n) printf "%-26s %9d worlds\n", mix, n[mix] | "sort"
              close("sort"); printf "%-26s %9d worlds\n", "all", all }' "$OUT/worlds"
    if [ -s "$OUT/broken" ]; then
        echo "broken promises: $(grep -c '^seed ' "$OUT/broken")"
        cat "$OUT/broken"
    fi
}
runs=
trap '[ -z "$runs" ] || kill "$runs" 2>/dev/null || true; tell; rm -rf "$OUT"' EXIT
trap 'exit 1' INT TERM
for program in $programs; do
    TEST_MIX='?' "$program" 2>&1 |
        awk -v program="$program" '/^\[ RUN/ { at = $NF } sub(/^mix: /, "") { print program "|" at "|" $0 }' |
        sort -u >"$OUT/its"
    [ -s "$OUT/its" ] || { echo "sim: $program names no mix" >&2; exit 1; }
    cat "$OUT/its" >>"$OUT/mixes"
done
from=$first
while [ "$from" -lt $((first + seeds)) ]; do
    count=$((first + seeds - from))
    [ "$count" -le $at_once ] || count=$at_once
    sed "s/\$/|$from|$count/" "$OUT/mixes"
    from=$((from + count))
done >"$OUT/all"
xargs -d '\n' -n 1 -P "$jobs" "$0" <"$OUT/all" & # behind us: a shell hears of no signal while it runs a program
runs=$!
wait "$runs"
runs=
[ ! -s "$OUT/broken" ]
