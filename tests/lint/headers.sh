#!/bin/sh
# Every C header (*.h; those of the CUDA and C++ kind end in .cuh) compiles alone; the public one as C++, too.
set -u
bad=0
headers=$(git ls-files -co --exclude-standard -- '*.h')
[ -n "$headers" ] || { echo "no headers found"; exit 1; }
flags="-std=gnu11 -D_GNU_SOURCE -I. -I$BUILD/gen -Wall -Wextra -Werror -fsyntax-only"
for header in $headers; do
    printf '#include "%s"\n' "$header" | ${CC:-cc} $flags -x c - || { echo "$header does not stand alone"; bad=1; }
    grep -q '^#ifndef ' "$header" || { echo "$header has no include guard"; bad=1; }
done
public=worker/libdiloco/diloco.h
[ -f $public ] || { echo "the public header is not at $public"; exit 1; }
if command -v c++ >/dev/null 2>&1; then
    printf '#include "%s"\n' $public | c++ -I. -Wall -Wextra -Werror -fsyntax-only -x c++ - || { echo "diloco.h is not C++"; bad=1; }
else
    echo "skip: no C++ compiler, so the public header was not compiled as C++"
fi
exit $bad
