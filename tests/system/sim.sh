#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/sim.sh behind `make sim`, with programs in place of the simulations: it runs all seeds of all mixes, goes on
# behind one that breaks a promise, names each, counts what ran, and does not pass where something broke or ended early.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
complain() { echo "$1"; sed 's/^/      | /' "$work/said"; exit 1; }
mkdir -p "$work/tests/sim"

cat >"$work/tests/sim/test_sync" <<'EOF'
#!/bin/sh
if [ "$TEST_MIX" = '?' ]; then
    printf '[ RUN      ] nobody_loses\nmix: calm\nmix: calm\n[       OK ] nobody_loses\n'
    printf '[ RUN      ] all_agree\nmix: a line cut\n[       OK ] all_agree\n'
    exit 0
fi
echo "$TEST_FILTER|$TEST_MIX" >>"$WORK/asked"
if [ -n "${SLOW:-}" ] && [ "$(wc -l <"$WORK/asked")" = 2 ]; then
    : >"$WORK/slow"
    until [ -e "$WORK/go" ]; do sleep 0.1; done
fi
last=$((TEST_SEED_FIRST + TEST_SEEDS - 1))
for seed in $BROKEN; do
    if [ "$TEST_MIX" = calm ] && [ "$seed" -ge "$TEST_SEED_FIRST" ] && [ "$seed" -le $last ]; then
        echo "seed $seed at 40 ms: islands differ"
        echo " (repeat with TEST_SEED=$seed)"
        exit 1
    fi
done
[ "$DIES" != "$TEST_MIX" ] || { echo "Segmentation fault"; exit 139; }
echo "$TEST_MIX: $TEST_SEEDS worlds, 3 epochs"
EOF
for program in epochs dealing; do
    cat >"$work/tests/sim/test_$program" <<EOF
#!/bin/sh
if [ "\$TEST_MIX" = '?' ]; then
    printf '[ RUN      ] one_truth\nmix: $program\n[       OK ] one_truth\n'
    exit 0
fi
echo "\$TEST_FILTER|\$TEST_MIX" >>"\$WORK/asked"
echo "\$TEST_MIX: \$TEST_SEEDS worlds, at most 5 epochs"
EOF
    chmod +x "$work/tests/sim/test_$program"
done
chmod +x "$work/tests/sim/test_sync"

sim() { # wanted exit status, seeds that break a promise, mix in which the program dies, number of seeds, first one
    status=0
    rm -f "$work/asked"
    WORK=$work BROKEN=$2 DIES=$3 BUILD=$work SEEDS=$4 FIRST=$5 JOBS=2 tests/sim.sh >"$work/said" 2>&1 || status=$?
    [ "$status" = "$1" ] || complain "exit status $status, not $1"
}
says() { grep -qE "$1" "$work/said" || complain "it does not say: $1"; }

sim 0 '' '' 250 41
says '^calm +250 worlds$'
says '^a line cut +250 worlds$'
says '^epochs +250 worlds$'
says '^dealing +250 worlds$'
says '^all +1000 worlds$'
[ "$(sort -u "$work/asked" | tr '\n' ' ')" = 'all_agree|a line cut nobody_loses|calm one_truth|dealing one_truth|epochs ' ] ||
    complain "it asks for other cases: $(sort -u "$work/asked")"

# The first of a hundred, two beside each other, and the last of all; those of other runs do not count.
sim 1 '40 41 77 78 290 291' '' 250 41
says '^broken promises: 4$'
for seed in 41 77 78 290; do
    says "^seed $seed at 40 ms: islands differ$"
    says "^ *TEST_SEED=$seed TEST_MIX='calm' TEST_FILTER='nobody_loses' "
done
says '^calm +250 worlds$'

# Interrupted, it tells what it has, and begins nothing more.
rm -f "$work/asked" "$work/slow"
WORK=$work BROKEN='' DIES='' SLOW=1 BUILD=$work SEEDS=1000 FIRST=1 JOBS=1 tests/sim.sh >"$work/said" 2>&1 &
until [ -e "$work/slow" ]; do sleep 0.1; done
status=0
kill $! && wait $! || status=$?
[ $status = 1 ] || complain "interrupted, its exit status is $status, not 1"
says '^all +100 worlds$'
: >"$work/go"
sleep 1
[ "$(wc -l <"$work/asked")" = 2 ] || complain "interrupted, it goes on: $(wc -l <"$work/asked") began"

# A program that dies without a word about a seed: what it says is shown, and nothing passes.
sim 124 '' calm 10 1
says 'Segmentation fault'
[ "$(grep -c '^calm ' "$work/said")" = 0 ] || complain "it counts worlds of a program that died"

sim 2 '' '' 0 1
says 'sim: "0" is none of 1, 2, 3'
sim 2 '' '' 10 x
says 'sim: "x" is none of 1, 2, 3'

# `make sim` builds what it runs.
env -u MAKEFLAGS -u MFLAGS make -n B=build/none PREREQS_PRESENT=1 sim >"$work/said" 2>&1 || complain "make -n sim fails"
for program in test_sync test_epochs test_dealing; do
    says "build/none/tests/sim/$program"
done
