#!/bin/sh
# Every header compiles alone, as C; the public header also as C++ where a C++ compiler is there.
set -u
bad=0
headers=$(git ls-files -co --exclude-standard -- '*.h')
[ -n "$headers" ] || { echo "no headers found"; exit 1; }
flags="-std=gnu11 -D_GNU_SOURCE -I. -I$BUILD/gen -Wall -Wextra -Werror -fsyntax-only"
for header in $headers; do
    printf '#include "%s"\n' "$header" | ${CC:-cc} $flags -x c - || { echo "$header does not stand alone"; bad=1; }
    grep -q '^#ifndef ' "$header" || { echo "$header has no include guard"; bad=1; }
done
if [ -f worker/diloco.h ] && command -v c++ >/dev/null 2>&1; then
    printf '#include "worker/diloco.h"\n' | c++ -I. -Wall -Wextra -Werror -fsyntax-only -x c++ - || { echo "diloco.h is not C++"; bad=1; }
fi
exit $bad
