#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the tests given as arguments, and says what passed, failed and was skipped.
# A test is a program: exit 0 passes, 77 skips (its last line is the reason), anything else fails.
# A line "skip: REASON" inside a test counts as a skipped part of it, so that nothing skipped looks like a pass.
# Those that mostly compute run beside each other, as many as there are processors, on the time that all others leave
# (nice): these are unit tests, twice as many; then programs that start daemons and mostly wait, three times as many. At
# last come scripts, and programs whose trainers compute all the time, as many as there are processors: beside these the
# others would wait twice as long. The longest first.
# Under a sanitizer unit tests run as many as there are processors, and all others behind them one by one: there they
# compute, too.
set -u
logs=$BUILD/test-logs
processors=$(nproc) # before OMP_NUM_THREADS is set, which nproc heeds
longest_s=1800 # no test takes so long anywhere: one that hangs is a failure, not the end of the whole run
case ${SAN:-} in
*thread*)
    export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp ${TSAN_OPTIONS:-}"
    longest_s=3600
    # Our kernels run on one thread there; so does the library's product, whose threads a test that forks ranks after it
    # has trained itself would wait for in vain.
    export OMP_NUM_THREADS=1 ;;
esac

name_of() { echo "$1" | sed "s,^$BUILD/,,; s,^tests/,,; s,\.sh$,,"; }
stem_of() { echo "$logs/$(name_of "$1" | tr / -)"; }

# Into STEM.said what is to be printed, into STEM.count how many passed, failed and were skipped.
run_one() {
    name=$(name_of "$1") stem=$(stem_of "$1")
    begin=$(date +%s.%N)
    timeout --foreground -k 10 "$longest_s" "$1" >"$stem.log" 2>&1
    status=$?
    [ $status -ne 124 ] || echo "it was still running after $longest_s s, and was ended" >>"$stem.log"
    took=$(echo "$begin $(date +%s.%N)" | awk '{ printf "%.1f", $2 - $1 }')
    parts=$(grep -a -c '^skip: ' "$stem.log")
    case $status in
    0)
        counts="1 0 $parts"
        if [ "$parts" -gt 0 ]; then
            reason=$(grep -a -m1 '^skip:' "$stem.log" | sed 's/^skip: //')
            printf 'pass  %-32s %7s s   (%s of its parts skipped: %s)\n' "$name" "$took" "$parts" "${reason:-no reason given}"
        else
            printf 'pass  %-32s %7s s\n' "$name" "$took"
        fi ;;
    77)
        counts="0 0 1"
        printf 'skip  %-32s            %s\n' "$name" "$(tail -n 1 "$stem.log")" ;;
    *)
        counts="0 1 0"
        printf 'FAIL  %-32s %7s s   exit %s; %s ends with:\n' "$name" "$took" "$status" "$stem.log"
        tail -n 40 "$stem.log" | sed 's/^/      | /' ;;
    esac >"$stem.said"
    echo "$counts" >"$stem.count"
    cat "$stem.said"
}

if [ "${1:-}" = --one ]; then
    run_one "$2"
    exit 0
fi

mkdir -p "$logs"
rm -f "$logs"/*.count "$logs"/*.said
started=$(date +%s)
# Those of the tests whose name matches, so many at once.
together() { # how many, pattern, tests
    at_once=$1 pattern=$2
    shift 2
    for test in "$@"; do
        [ -f "$(stem_of "$test").count" ] && continue
        case $test in *.sh) name=script:$(name_of "$test") ;; *) name=$(name_of "$test") ;; esac
        echo "$name" | grep -qE "$pattern" && printf '%s\0' "$test"
    done | xargs -0 -r -n 1 -P "$at_once" "$0" --one
}
# The longest first, or the last of them would be waited for alone.
by_length() {
    long=
    for name in sim/test_sync system/test_trouble system/test_join system/test_reached system/test_disk system/test_size \
        system/test_state_transfer system/test_rekey system/test_islands system/test_outlives system/test_damaged \
        system/test_liar system/test_lies system/test_harmless system/test_refused system/docs system/ranks \
        system/demo system/python system/test_supervised system/test_flood system/test_run_orders \
        sim/test_epochs num/outer_bits num/test_direction lint/clang unit/test_join_client; do
        printf '%s\n' "$@" | grep -E "/$name(\.sh)?\$"
        long="$long|$name"
    done
    printf '%s\n' "$@" | grep -vE "/(${long#|})(\.sh)?\$"
}
waiting='trouble|join|reached|newcomer|islands|disk|size|state_transfer|damaged|outlives|harmless|liar|lies|founder|release|refused|paused|own_trainer|watch|copying|rogue|models|rekey'
sorted=$(by_length "$@")
computing='^(script:)?(sim|num|emu|lint|fuzz)/'
if [ -n "${SAN:-}" ]; then
    together "$processors" "$computing" $sorted
    together "$processors" '^unit/' $sorted
else
    (
        renice -n 19 "$(exec sh -c 'echo $PPID')" >/dev/null 2>&1 || true
        together "$processors" "$computing" $sorted
    ) &
    computes=$!
    together $((2 * processors)) '^unit/' $sorted
    together $((3 * processors)) "^system/test_($waiting)\$" $sorted
    wait "$computes"
    together "$processors" '^(script:)?system/' $sorted
fi
for test in "$@"; do
    [ -f "$(stem_of "$test").count" ] || "$0" --one "$test"
done

passed=0 failed=0 skipped=0 failures=
for test in "$@"; do
    read -r pass fail skip <"$(stem_of "$test").count" || pass=0 fail=1 skip=0
    passed=$((passed + pass)) failed=$((failed + fail)) skipped=$((skipped + skip))
    [ "$fail" -eq 0 ] || failures="$failures $(name_of "$test")"
done
printf '%s passed, %s failed, %s skipped in %s s\n' "$passed" "$failed" "$skipped" "$(($(date +%s) - started))"
[ "$failed" -eq 0 ] || { echo "failed:$failures"; exit 1; }
[ "$passed" -gt 0 ] || { echo "nothing ran"; exit 1; }
