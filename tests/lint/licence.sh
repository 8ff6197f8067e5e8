#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every source file names its licence in its first line, or in the second below `#!`.
set -u
tag='SPDX-License-Identifier: Apache-2.0'
bad=0
sources=$(tests/files.sh '*.c' '*.h' '*.cu' '*.cuh' '*.cc' '*.map' '*.proto' '*.py' '*.sh' '*.mk' Makefile 'tests/docs/bin/*')
[ "$(printf '%s\n' "$sources" | wc -l)" -gt 500 ] || { echo "too few source files were found"; exit 1; }
unnamed=$(printf '%s\n' "$sources" | xargs awk -v tag="$tag" '
    FNR == 1 { line = 1 }
    FNR == 1 && /^#!/ { line = 2 }
    FNR == line && $0 != "/* " tag " */" && $0 != "// " tag && $0 != "# " tag { print FILENAME }')
[ -z "$unnamed" ] || { echo "without the line $tag:"; echo "$unnamed"; bad=1; }
head -n 1 LICENSE | grep -qF "($tag)" || { echo "LICENSE does not begin with the licence that it is: $tag"; bad=1; }
exit $bad
