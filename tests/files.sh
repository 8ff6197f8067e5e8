#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The files of this tree that match one of the patterns, one a line, in order; all of them without a pattern.
#
#   tests/files.sh [PATTERN | FOLDER]...      from the root of the tree; a `*` stands for slashes, too
#
# In a clone git says what belongs to the tree: what it ignores is left out. In a source archive, without git, or where
# git refuses (a clone that belongs to another user) it is what find sees, less what is built; tests/lint/archive.sh
# compares the two. Only what lies in a file now is listed, not what was deleted and not yet committed.
set -uf
[ -f tests/files.sh ] || { echo "tests/files.sh: run it from the root of the tree" >&2; exit 1; }

by_git() {
    [ -e .git ] && command -v git >/dev/null 2>&1 && git -c core.quotePath=false ls-files -co --exclude-standard -- "$@" 2>/dev/null
}

by_find() {
    for pattern in "$@"; do # rotates: each becomes two conditions of find
        shift
        set -- "$@" -o -path "./$pattern" -o -path "./$pattern/*"
    done
    [ $# -eq 0 ] || shift
    [ $# -gt 0 ] || set -- -true
    find . '(' -name build -o -name .git -o -name __pycache__ ')' -prune -o -type f '(' "$@" ')' -print | sed 's,^\./,,'
}

{ by_git "$@" || by_find "$@"; } | LC_ALL=C sort -u | while IFS= read -r file; do
    [ ! -f "$file" ] || printf '%s\n' "$file"
done
