#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make demo-large: tests/demo/large.py where there is PyTorch, for MINUTES=10. 77: there is none, and it says how to get it.
set -u
cd "$(dirname "$0")/../.." || exit 1
programs=${BUILD:-build/gcc}
minutes=${MINUTES:-10}
case $minutes in '' | *[!0-9.]* | . | 0 | *.*.*) echo "MINUTES=$minutes: give a number of minutes, as 10 or 2.5" >&2; exit 2 ;; esac
python=
for each in "${PYTHON:-}" build/python/bin/python3 python3; do
    [ -n "$each" ] && command -v "$each" >/dev/null 2>&1 && "$each" -c 'import torch' 2>/dev/null || continue
    python=$each
    break
done
if [ -z "$python" ]; then
    echo "demo-large: skipped: no Python here has PyTorch. Make one that has it, and name it:"
    echo "    python3 -m venv ~/venv && ~/venv/bin/pip install torch"
    echo "    make demo-large PYTHON=~/venv/bin/python3"
    exit 77
fi
needed=10 # GB: two trainers with gradients and moments, and two daemons
there=$(awk '/^MemAvailable:/ { printf "%d", $2 / 1e6 }' /proc/meminfo)
if [ "${there:-$needed}" -lt $needed ]; then
    echo "demo-large: skipped: it takes $needed GB of memory, and $there GB are free; end other programs, or see make demo"
    exit 77
fi
exec "$python" -W ignore tests/demo/large.py --programs "$programs" --minutes "$minutes" ${DEMO_DATA:+--data "$DEMO_DATA"}
