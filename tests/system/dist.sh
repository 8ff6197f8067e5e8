#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make dist` packs the files of the tree and the whole text of the licence, into the same bytes each time; where that
# text is missing, nothing is packed, and one hears what to do.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
complain() { echo "$1"; exit 1; }
version=$("$BUILD/dilococtl" --version | sed 's/.* //')
export SOURCE_DATE_EPOCH=1700000000

unset MAKEFLAGS MFLAGS MAKELEVEL PREREQS_PRESENT
said=$(make -s dist)
[ "$said" = "build/dist/diloco-$version.tar.gz" ] || complain "make dist says: $said"
archive=$(conf/dist.sh "$version" "$work/dist")
cmp "$archive" "build/dist/diloco-$version.tar.gz" || complain "the same files make other bytes"
tar -xf "$archive" -C "$work"
{ tests/files.sh; echo Apache-2.0.txt; } | LC_ALL=C sort -u >"$work/wanted"
(cd "$work/diloco-$version" && find . -type f | sed 's,^\./,,' | LC_ALL=C sort) >"$work/packed"
diff "$work/wanted" "$work/packed" || complain "the archive (>) has not the files of the tree (<)"
grep -q 'TERMS AND CONDITIONS FOR USE' "$work/diloco-$version/Apache-2.0.txt" || complain "the licence is not whole"
# Who has only the archive packs the same.
cd "$work/diloco-$version"
cmp "$(DILOCO_LICENCES=/nowhere conf/dist.sh "$version" "$work/again")" "$archive" || complain "the archive packs another one"

rm Apache-2.0.txt
if DILOCO_LICENCES=/nowhere conf/dist.sh "$version" "$work/none" 2>"$work/said"; then complain "it packs without the licence"; fi
grep -q 'put it beside LICENSE as Apache-2.0.txt' "$work/said" || { cat "$work/said"; exit 1; }
[ -z "$(find "$work/none" -name '*.gz')" ] || complain "an archive without the licence stays"
