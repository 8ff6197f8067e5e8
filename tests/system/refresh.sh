#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `tests/mutants.sh --refresh` writes a planted fault anew where its function has changed round it; where the same lines
# are in another function, too, or in another one now, it leaves the patch alone and says so.
set -eu
command -v git >/dev/null 2>&1 || { echo "git is not here"; exit 77; }
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
complain() { echo "$1"; [ ! -f "$work/said" ] || sed 's/^/      | /' "$work/said"; exit 1; }

mkdir -p "$work/tests/mutants"
cp tests/mutants.sh tests/files.sh "$work/tests/"
cd "$work"
fault=tests/mutants/fault.patch

# One function: its name, its first and its last line.
give() { printf 'int %s(int count)\n{\n    %s;\n    int sum = 0;\n    sum += count;\n    sum *= 2;\n    return %s;\n}\n\n' "$1" "$2" "$3"; }
{ give taken 'begin(1)' 'sum + 1'; give given 'begin(2)' 'sum + 2'; } >code.c
git init -q . && git add code.c
sed -i '14s/count/1/' code.c
{ printf '# fault: it adds one, not all\n# seen by: unit/test_code\n'; git diff; } >"$fault"
git checkout -q -- code.c
rm -rf .git
cp "$fault" before

refresh() { # wanted exit status, words it says
    cp before "$fault"
    status=0
    tests/mutants.sh --refresh >said 2>&1 || status=$?
    [ $status = "$1" ] || complain "exit status $status, not $1"
    grep -q "$2" said || complain "it does not say: $2"
    [ $status = 0 ] || cmp before "$fault" || complain "it writes what it is not sure of"
}

# Lines near the change differ now; those next to it are the same in both functions.
{ give taken 'begin(3)' 'sum + 3'; give given 'begin(4)' 'sum + 4'; } >code.c
refresh 1 'STALE *fault: with less of its context it applies at more than one place'

# The function itself is gone, and another one looks like it.
give taken 'begin(3)' 'sum + 3' >code.c
refresh 1 'STALE *fault: was in given, would be in taken'

# It has changed, and is the only one.
{ give given 'begin(4)' 'sum + 4'; printf 'int taken(void)\n{\n    return 0;\n}\n'; } >code.c
refresh 0 'written anew *fault'
grep -q '^# fault: it adds one, not all$' "$fault" || complain "its first lines are gone"
git apply "$fault"
[ "$(sed -n 5p code.c)" = '    sum += 1;' ] || complain "the fault is another one now"
