#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The source archive: conf/dist.sh VERSION FOLDER, by `make dist`. The same files make the same bytes; their date is the
# last commit's, or SOURCE_DATE_EPOCH.
set -eu
name=diloco-$1 folder=$2
date=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
rm -rf "$folder"
mkdir -p "$folder/$name"
tests/files.sh | grep -vx Apache-2.0.txt >"$folder/files"
tar -cf - -T "$folder/files" | tar -xf - -C "$folder/$name"
conf/licence.sh "$folder/$name"
tar -cf - -C "$folder" --sort=name --owner=0 --group=0 --numeric-owner --mode=u+w,go-w,a+rX --mtime="@$date" "$name" | gzip -9n >"$folder/$name.tar.gz"
rm -rf "$folder/files" "${folder:?}/$name"
echo "$folder/$name.tar.gz"
