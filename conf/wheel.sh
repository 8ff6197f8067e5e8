#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A wheel of the Python package with libdiloco.so.0 in it: conf/wheel.sh LIBRARY MACHINE FOLDER, by `make wheel`.
#
# What it is for stands in its name, as pip reads it: manylinux_2_XX_MACHINE, 2.XX being the oldest C library that has
# all functions that this library uses.
set -eu
library=$1 machine=$2 folder=$3
python=${PYTHON:-python3}
say() { echo "make wheel: $1" >&2; exit 1; }
command -v "$python" >/dev/null 2>&1 || say "there is no $python; apt-get install python3-pip"
"$python" -m pip --version >/dev/null 2>&1 || say "$python has no pip; apt-get install python3-pip"
command -v readelf >/dev/null 2>&1 || say "there is no readelf; apt-get install binutils"

others=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v -e '^libc\.so\.6$' -e '^libm\.so\.6$' -e '^ld-linux' || true)
[ -z "$others" ] || say "$library needs $(echo $others), which a wheel cannot count on; make it without SAN, and see tests/lint/library.sh"
oldest=$(readelf -V "$library" | grep -o 'GLIBC_2\.[0-9]*' | sed 's/GLIBC_2\.//' | sort -n | tail -n 1)
[ -n "$oldest" ] || say "$library names no version of the GNU C library that it needs; wheels are for that one only"
[ "$oldest" -ge 17 ] || oldest=17 # pip knows none before

rm -rf "$folder"
mkdir -p "$folder/source"
cp -r worker/libdiloco/python/pyproject.toml worker/libdiloco/python/diloco "$folder/source"
find "$folder/source" -name __pycache__ -prune -exec rm -rf {} +
cp "$library" "$folder/source/diloco/"
# What begins with LICENSE goes into the wheel.
conf/licence.sh "$folder/source"
mv "$folder/source/Apache-2.0.txt" "$folder/source/LICENSE.Apache-2.0.txt"
strip --strip-unneeded "$folder/source/diloco/$(basename "$library")" 2>/dev/null || true # only makes it smaller
printf '[bdist_wheel]\nplat_name = manylinux_2_%s_%s\n' "$oldest" "$machine" >"$folder/source/setup.cfg"
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$folder" "$folder/source" ||
    say "pip could not build it; it needs setuptools 70 or later, here or from PyPI"
ls "$folder"/*.whl
