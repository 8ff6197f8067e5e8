#!/bin/sh
# Runs the tests given as arguments, one after the other, and says what passed, failed and was skipped.
# A test is a program: exit 0 passes, 77 skips (its last line is the reason), anything else fails.
# A line "skip: REASON" inside a test counts as a skipped part of it, so that nothing skipped looks like a pass.
set -u
logs=$BUILD/test-logs
mkdir -p "$logs"
case ${SAN:-} in
*thread*) export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp ${TSAN_OPTIONS:-}" ;;
esac
passed=0 failed=0 skipped=0 failures=
started=$(date +%s)

for test in "$@"; do
    name=$(echo "$test" | sed "s,^$BUILD/,,; s,^tests/,,; s,\.sh$,,")
    log=$logs/$(echo "$name" | tr / -).log
    begin=$(date +%s.%N)
    "$test" >"$log" 2>&1
    status=$?
    took=$(echo "$begin $(date +%s.%N)" | awk '{ printf "%.1f", $2 - $1 }')
    parts=$(grep -a -c '^skip: ' "$log")
    case $status in
    0)
        passed=$((passed + 1))
        if [ "$parts" -gt 0 ]; then
            reason=$(grep -a -m1 '^skip:' "$log" | sed 's/^skip: //')
            skipped=$((skipped + parts))
            printf 'pass  %-32s %7s s   (%s of its parts skipped: %s)\n' "$name" "$took" "$parts" "${reason:-no reason given}"
        else
            printf 'pass  %-32s %7s s\n' "$name" "$took"
        fi ;;
    77)
        skipped=$((skipped + 1))
        printf 'skip  %-32s            %s\n' "$name" "$(tail -n 1 "$log")" ;;
    *)
        failed=$((failed + 1))
        failures="$failures $name"
        printf 'FAIL  %-32s %7s s   exit %s; %s ends with:\n' "$name" "$took" "$status" "$log"
        tail -n 40 "$log" | sed 's/^/      | /' ;;
    esac
done

printf '%s passed, %s failed, %s skipped in %s s\n' "$passed" "$failed" "$skipped" "$(($(date +%s) - started))"
[ "$failed" -eq 0 ] || { echo "failed:$failures"; exit 1; }
[ "$passed" -gt 0 ] || { echo "nothing ran"; exit 1; }
