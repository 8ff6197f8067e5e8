#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a test of the Python package that needs nothing but Python:
#
#   tests/python/plain.sh FILE          in tests/python
set -eu
: "${BUILD:?is not set: the folder of the programs, as in BUILD=build/gcc}"
case ${SAN:-} in
?*) echo "skip: the sanitizer's library would have to be Python's first one"; exit 77 ;;
esac
command -v python3 >/dev/null 2>&1 || { echo "skip: there is no python3"; exit 77; }
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || { echo "skip: python3 is older than 3.9"; exit 77; }
cd "$(dirname "$0")"
case $BUILD in /*) ;; *) BUILD=$(cd ../.. && pwd)/$BUILD ;; esac
export BUILD PYTHONDONTWRITEBYTECODE=1
exec python3 "$1"
