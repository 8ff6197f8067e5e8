#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every planted fault still applies to the code that it is about, and names tests and cases that there are; what it takes
# to be seen is for make mutants.
set -u
command -v git >/dev/null 2>&1 || { echo "git is not here"; exit 77; }
bad=0
complain() { echo "$1"; bad=1; }
for patch in tests/mutants/*.patch; do
    git apply --check "$patch" 2>/dev/null || complain "$patch does not apply: tests/mutants.sh --refresh, or make it anew"
    tests=$(sed -n 's/^# seen by:[[:space:]]*//p; /^diff /q; /^--- /q' "$patch")
    [ -n "$tests" ] || complain "$patch has no line '# seen by: '"
    for spec in $tests; do
        [ -f "tests/${spec%%:*}.c" ] || [ -f "tests/${spec%%:*}.sh" ] || complain "$patch: there is no test ${spec%%:*}"
        file=tests/${spec%%:*}.c
        case $spec in *:*) [ -f "$file" ] || continue ;; *) continue ;; esac # a script's cases are not in its own file
        case=${spec#*:}
        grep -q "\\b${case%%\**}" "$file" || complain "$patch: ${spec%%:*} has no case $case"
    done
done
exit $bad
