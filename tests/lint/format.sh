#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Form: clang-format 14 where installed, and rules that need no tool: no tabs, trailing blanks or over-long lines,
# files up to 1,200 lines (below the licence's) and functions up to 70, no calls that hide errors or overrun, no words that mark unfinished work.
set -u
export LC_ALL=C.UTF-8 # a column is a character, whatever the locale one works in
found=$(mktemp)
trap 'rm -f "$found" "$found.all"' EXIT
: >"$found.all"
sources=$(tests/files.sh '*.c' '*.h' '*.cu' '*.cuh')
texts=$(tests/files.sh '*.c' '*.h' '*.sh' '*.md' '*.ini' '*.mk' '*.proto' Makefile)
[ -n "$sources" ] || { echo "no source files found"; exit 1; }

show() { # message, lines on standard input; runs in a pipe, so what it finds is kept in a file
    cat >"$found"
    [ -s "$found" ] || return 0
    echo "$1"
    head -20 "$found"
    cat "$found" >>"$found.all"
}
grep -nP '\t' $sources | show "tabs in C sources:"
grep -nE '[[:space:]]+$' $texts | show "trailing blanks:"
grep -nE '^.{121,}' $sources | show "lines over 120 columns:"
wc -l $sources | awk '$2 != "total" && $1 - 1 > 1200 { print $2 ": " $1 - 1 " lines" }' | show "files over 1200 lines:"
for file in $sources; do
    awk -v file="$file" '
        /^[a-zA-Z_].*\)$/ && !/;/ { name = $0 }
        /^\{$/ { begin = NR }
        /^\}$/ { if (begin && NR - begin - 1 > 70) print file ": " name ": " NR - begin - 1 " lines"; begin = 0 }' "$file"
done | show "functions over 70 lines:"
grep -nwE '(sprintf|vsprintf|strcpy|strcat|gets|strtok|atoi|atol|atof|alloca|system)[[:space:]]*\(' $sources |
    grep -v '^tests/' | show "banned calls:"
grep -nE '(^|[^_a-z])(malloc|calloc|realloc)[[:space:]]*\(' $sources | grep -vE '^(tests/|docs/|common/mem\.c)' | show "allocation outside common/mem:"
grep -nE '(^|[^_a-z])(exit|abort)[[:space:]]*\(' $sources | grep -vE '^tests/' | show "only main may end the process, by returning:"
grep -niwE '(TODO|FIXME|XXX|HACK)' $texts | grep -v '^tests/lint/' | show "unfinished work:"
for file in $texts; do
    [ -z "$(tail -c 1 "$file")" ] || echo "$file"
done | show "no newline at the end:"

version=$(clang-format --version 2>/dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p')
if [ "$version" = 14 ]; then
    clang-format --dry-run --Werror $sources 2>&1 | grep -E 'error|warning' | show "clang-format -i would change:"
    [ ! -s "$found.all" ]
    exit
fi
[ ! -s "$found.all" ] || exit 1
echo "the rules without a tool hold; clang-format 14 is not installed, so layout was not compared"
exit 77
