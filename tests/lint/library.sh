#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libdiloco.so.0 is loaded into other people's programs: it needs the C library and nothing else, and shows them its own
# calls and nothing else.
set -u
: "${BUILD:?is not set: the build folder, as in BUILD=build/gcc}"
skip() { echo "skip: $1"; exit 77; }
[ -z "${SAN:-}" ] || skip "a sanitizer's library needs the sanitizer"
library=$BUILD/libdiloco.so.0
[ -f "$library" ] || { echo "there is no $library; make it first"; exit 1; }
command -v readelf >/dev/null 2>&1 || skip "readelf is not here"
bad=0
complain() { echo "$1"; bad=1; }

needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ -n "$needed" ] || complain "$library names no library that it needs: is this its list?"
for one in $needed; do
    case $one in
    libc.so.6 | libm.so.6 | ld-linux*) ;;
    *) complain "$library needs $one, which a machine with nothing but Python may not have" ;;
    esac
done

nm -D -P "$library" | awk '{ print $1, $2 }' | while read -r symbol kind; do
    case $kind:$symbol in
    U:*@GLIBC_* | w:*) ;;
    U:*) echo "$library uses $symbol, which is not the C library's" ;;
    [A-Z]:diloco_*) ;;
    *) echo "$library shows $symbol to the program that loads it" ;;
    esac
done | grep . && bad=1
[ "$(nm -D -P --defined-only "$library" | grep -c '^diloco_')" -ge 10 ] || complain "$library shows too few calls: is it whole?"
exit $bad
