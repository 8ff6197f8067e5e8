#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every C header (*.h; those of the CUDA kind end in .cuh) compiles alone, and its include guard is its path; the public
# one also compiles as C++. Headers of C++ there are none.
set -u
bad=0
complain() { echo "$1"; bad=1; }
public=worker/libdiloco/diloco.h
headers=$(tests/files.sh '*.h')
[ -n "$headers" ] || { echo "no headers found"; exit 1; }
flags="-std=gnu11 -D_GNU_SOURCE -I. -I$BUILD/gen -Wall -Wextra -Werror -fsyntax-only"
for header in $headers; do
    printf '#include "%s"\n' "$header" | ${CC:-cc} $flags -x c - || complain "$header does not stand alone"
    case $header in
    "$public") guard=DILOCO_H ;; # installed without its folders
    *) guard=$(printf '%s\n' "$header" | tr 'a-z/.-' 'A-Z___') ;;
    esac
    [ "$(sed -n '/^#/{s/^#ifndef //p;q;}' "$header")" = "$guard" ] && grep -qx "#define $guard" "$header" ||
        complain "$header: its include guard is not $guard, as its path is"
done
for header in $(tests/files.sh '*.hpp' '*.hh' '*.hxx' '*.h++'); do
    complain "$header: the code is C; headers end in .h, those of CUDA in .cuh"
done
[ -f $public ] || { echo "the public header is not at $public"; exit 1; }
if command -v c++ >/dev/null 2>&1; then
    printf '#include "%s"\n' $public | c++ -I. -Wall -Wextra -Werror -fsyntax-only -x c++ - || complain "diloco.h is not C++"
else
    echo "skip: no C++ compiler, so the public header was not compiled as C++"
fi
exit $bad
