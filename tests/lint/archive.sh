#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The lints do without git: in a copy of the tree as a source archive has it, where git is not installed, they see the
# same files and say the same. Compilers and clang-format are left to the lints themselves, which keeps this short.
set -u
: "${BUILD:?is not set: the build folder, as in BUILD=build/gcc}"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
copy=$work/diloco
mkdir -p "$copy/build" "$work/tools" || exit 1
bad=0
complain() { echo "$1"; bad=1; }

tests/files.sh >"$work/files"
tar -cf - -T "$work/files" | tar -xf - -C "$copy" || exit 1
ln -s "$PWD/$BUILD" "$copy/$BUILD" || exit 1
: >"$copy/build/generated.c" # what is built belongs to no list
(IFS=:; for folder in $PATH; do ls -d "$folder"/* 2>/dev/null; done) |
    awk -F/ '!seen[$NF]++ && $NF !~ /^(git|clang|clang-format|cc|c\+\+)$/' | xargs -d '\n' ln -s -t "$work/tools" || exit 1
cd "$copy" || exit 1
export PATH="$work/tools" CC=true
! command -v git || { echo "git is still there: this proves nothing"; exit 1; }

tests/files.sh | diff "$work/files" - || complain "find and git list different files; see tests/files.sh"
checked=0
for lint in tests/lint/*.sh; do
    [ "$lint" != tests/lint/archive.sh ] || continue
    "$lint" >"$work/said" 2>&1
    status=$?
    [ $status = 0 ] || [ $status = 77 ] || { complain "$lint fails there:"; tail -n 20 "$work/said"; }
    ! grep 'not found' "$work/said" || complain "$lint calls what is not there"
    checked=$((checked + 1))
done
[ "$checked" -ge 5 ] || complain "only $checked lints were found"

# What cannot do without git says so, once and first.
tests/mutants.sh >"$work/said" 2>&1 && complain "tests/mutants.sh passes without git"
case $(cat "$work/said") in
"make mutants needs git"*) [ "$(wc -l <"$work/said")" = 1 ] || complain "tests/mutants.sh says more than that it needs git" ;;
*) complain "tests/mutants.sh does not say that it needs git:"; cat "$work/said" ;;
esac
[ $bad = 0 ] && echo "$checked lints hold without git, on $(wc -l <"$work/files") files"
exit $bad
