#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lays LICENSE and the whole text that it names into a folder: conf/licence.sh FOLDER. The text is the one beside LICENSE,
# as in a source archive, or the building machine's own.
set -eu
folder=$1
for text in Apache-2.0.txt "${DILOCO_LICENCES:-/usr/share/common-licenses}/Apache-2.0"; do
    grep -q 'Apache License' "$text" 2>/dev/null || continue
    install -m 644 LICENSE "$folder/LICENSE"
    install -m 644 "$text" "$folder/Apache-2.0.txt"
    exit 0
done
echo "the text of the Apache License, Version 2.0, is not at $text: put it beside LICENSE as Apache-2.0.txt" >&2
exit 1
