#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What gcc builds clang compiles, too, without a warning: its checks alone, for all files, so that nobody who takes the
# other compiler is the first to see what it says.
set -u
command -v clang >/dev/null 2>&1 || { echo "there is no clang"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
make -nB all tests PREREQS_PRESENT=1 V=1 MAKEFLAGS= SAN= OPT=-O2 CC=clang >"$work/said" 2>&1 ||
    { echo "make -n all tests fails: $(tail -n 1 "$work/said")"; exit 1; }
# Those that are made are not ours; their headers are those of this build.
grep -aE '^clang .* -c [a-z][^ ]*\.c -o ' "$work/said" | grep -v ' -c build/' |
    sed -E "s, -MMD -MP,,; s, -Ibuild/clang/gen, -I$BUILD/gen,; s, -c ([^ ]*) -o [^ ]*\$, -fsyntax-only \\1," |
    sort -u >"$work/commands"
[ "$(wc -l <"$work/commands")" -gt 400 ] || { echo "only $(wc -l <"$work/commands") files found"; exit 1; }
tr '\n' '\0' <"$work/commands" | xargs -0 -r -n 1 -P "$(nproc)" sh -c >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
