#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every command of README, docs/ and the man pages' examples is run as it stands; tests/docs/run.py says how.
#
#   tests/system/docs.sh [DOCUMENT]...      all of them without one
set -u
: "${BUILD:?is not set: the build folder, as in BUILD=build/gcc}"
[ "$BUILD" = build/gcc ] || { echo "the documents name build/gcc, and this is $BUILD"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "machines of their own for the documents need root"; exit 77; }
command -v python3 >/dev/null 2>&1 || { echo "there is no python3"; exit 77; }
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || { echo "python3 is older than 3.9"; exit 77; }
python3 -c 'import ensurepip' 2>/dev/null || { echo "python3 makes no virtual environments (apt-get install python3-venv)"; exit 77; }
for tool in ip unshare setpriv; do
    command -v $tool >/dev/null 2>&1 || { echo "there is no $tool (apt-get install iproute2 util-linux)"; exit 77; }
done
unshare -mnupf --mount-proc sh -c 'mount -t tmpfs tmpfs /mnt && mkdir /mnt/a /mnt/b &&
    mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/a,workdir=/mnt/b /etc &&
    ip link add x type bridge' 2>/dev/null ||
    { echo "namespaces or overlays are refused here"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
exec python3 tests/docs/run.py "$@"
