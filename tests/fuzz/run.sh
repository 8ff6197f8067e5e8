#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make fuzz: searches with libFuzzer, FUZZ_SECONDS (default 30) per target; FUZZ_ONLY='ledger wire' names some. Needs
# clang and its libFuzzer. New inputs that reach new code are kept in the build folder for the next time; one that breaks
# something is left there too, and named: it belongs into tests/fuzz/corpus, which every `make check` replays.
#
# For each target it says how many branches of our code an empty input takes, those of the corpus, and all by the end.
set -eu
. tests/fuzz/libfuzzer.sh
why=$(libfuzzer_missing)
[ -z "$why" ] || { echo "make fuzz is skipped: $why"; exit 77; }
tests/fuzz/guided.sh
fuzz_make tests/fuzz-archives
# One object without counters would be a part of the daemon that is searched blindly.
for archive in daemon net outer_opt common tests/lib; do
    bare=$(nm -A "$fuzz_build/$archive.a" 2>/dev/null |
        awk -F: '{ seen[$2] += /sancov/ } END { for (object in seen) if (!seen[object]) print object }')
    [ -z "$bare" ] || { echo "$archive.a: built without counters: $bare"; exit 1; }
done

# What targets write, they write here; what the daemon logs of hostile inputs nobody needs.
BUILD=$(mktemp -d "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)/diloco-fuzz-XXXXXX")
export BUILD
trap 'rm -rf "$BUILD"' EXIT
covered() { sed -n 's/^#.* cov: \([0-9]*\).*/\1/p' "$1" | "$2" -n 1; } # log, head or tail

failed=
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c | sed 's/^fuzz_//')
    [ "$name" != maze ] || continue # it has been found
    case " ${FUZZ_ONLY:-$name} " in *" $name "*) ;; *) continue ;; esac
    program=$fuzz_build/fuzzer_$name
    found=$fuzz_build/corpus/$name
    log=$fuzz_build/fuzz-$name.log
    fuzz_link "$source" "$program" $(fuzz_libraries)
    mkdir -p "$found"
    "$program" $fuzz_flags -runs=0 -max_len=1 >"$log" 2>&1 || true
    nothing=$(covered "$log" tail)
    status=0
    "$program" $fuzz_flags -max_total_time="${FUZZ_SECONDS:-30}" -max_len=16384 -print_final_stats=1 -close_fd_mask=2 \
        -artifact_prefix="$fuzz_build/$name-" "$found" "tests/fuzz/corpus/$name" >"$log" 2>&1 || status=$?
    if [ $status -ne 0 ]; then
        grep -a -A 30 'ERROR\|runtime error\|deadly signal\|fuzz target exited' "$log" | head -n 60 || tail -n 60 "$log"
        echo "FAIL  $name: $(grep -a -o 'Test unit written to .*' "$log" | tail -n 1); all it said is in $log"
        failed="$failed $name"
        continue
    fi
    awk -v name="$name" -v nothing="$nothing" -v begin="$(grep -a INITED "$log" | covered /dev/stdin head)" \
        -v end="$(covered "$log" tail)" '
        /number_of_executed_units/ { runs = $2 }
        /average_exec_per_sec/ { speed = $2 }
        END { printf "%-12s %9d runs, %6d/s; branches: %d empty, %d corpus, %d now\n", name, runs, speed, nothing, begin, end }' "$log"
done
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
