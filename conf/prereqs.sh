#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Finds what the build and the tests need, and installs what is missing with apt.
#
#   conf/prereqs.sh           look, install what is missing when root or sudo allows, else print the command and fail
#   conf/prereqs.sh --tests   the same, and what only tests look for: without it they are skipped, which they say
#   conf/prereqs.sh --list    print the Debian/Ubuntu package names, one a line; with --tests, those of the tests
#
# Libraries are looked for with pkg-config; oneDNN ships no .pc file on Debian 12, so its header is tried instead.
set -u

# probe | argument | package
table='
command make            make
command cc              gcc
command pkg-config      pkg-config
command protoc-c        protobuf-c-compiler
module  libzmq          libzmq3-dev
module  libsodium       libsodium-dev
module  libzstd         libzstd-dev
module  libprotobuf-c   libprotobuf-c-dev
module  inih            libinih-dev
module  jansson         libjansson-dev
module  libpcre2-8      libpcre2-dev
module  libsystemd      libsystemd-dev
module  cmocka          libcmocka-dev
header  dnnl.h          libdnnl-dev
header  stdlib.h        libc6-dev
'

tests='
command git             git
command ip              iproute2
command pgrep           procps
command clang-format    clang-format
command systemd-analyze systemd
command c++             g++
command clang           clang
fuzzer  clang           libclang-rt-dev
command python3         python3
python  ensurepip       python3-venv
command zsh             zsh
command fish            fish
command pyflakes3       pyflakes3
command mpicc           libopenmpi-dev
command mpirun          openmpi-bin
command mypy            mypy
'

present() {
    case $1 in
    command) command -v "$2" >/dev/null 2>&1 ;;
    module) command -v pkg-config >/dev/null 2>&1 && pkg-config --exists "$2" ;;
    python) command -v python3 >/dev/null 2>&1 && python3 -c "import $2" 2>/dev/null ;;
    fuzzer) command -v "$2" >/dev/null 2>&1 && [ -n "$(find "$("$2" -print-resource-dir)" -name 'libclang_rt.fuzzer*' 2>/dev/null)" ] ;;
    header) command -v cc >/dev/null 2>&1 && printf '#include <%s>\n' "$2" | cc -E -x c - >/dev/null 2>&1 ;;
    esac
}

missing() { # table
    echo "$1" | while read -r probe argument package; do
        [ -n "$probe" ] || continue
        present "$probe" "$argument" || printf '%s ' "$package"
    done
}

list=0 with_tests=0
for argument in "$@"; do
    case $argument in
    --list) list=1 ;;
    --tests) with_tests=1 ;;
    *) echo "conf/prereqs.sh: what is \"$argument\"? It takes --tests and --list" >&2; exit 1 ;;
    esac
done
if [ $list = 1 ]; then
    if [ $with_tests = 1 ]; then table=$tests; fi
    echo "$table" | awk 'NF { print $3 }'
    exit 0
fi

want=$(missing "$table")
extra=
[ $with_tests = 0 ] || extra=$(missing "$tests")
[ -n "$want$extra" ] || exit 0

echo "Missing: $want$extra"
# What the build needs has to be there; tests that do not find theirs are skipped.
give_up() {
    echo "$1" >&2
    [ -n "$want" ] && exit 1
    echo "Until then the tests that look for it are skipped." >&2
    exit 0
}

if ! command -v apt-get >/dev/null 2>&1; then
    give_up "This machine has no apt-get. Install the equivalents of these Debian packages, then run make again: $want$extra"
fi

if [ "$(id -u)" = 0 ]; then
    root=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    root='sudo -n'
elif command -v sudo >/dev/null 2>&1 && [ -t 0 ]; then
    root=sudo
else
    give_up "Run this as root, then run make again:  apt-get install -y --no-install-recommends $want$extra"
fi

install='env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends'
# Package lists may be absent (a container) or stale: they are refreshed once, and then apt says what is wrong. The
# lists are meant to split.
fetch() {
    # shellcheck disable=SC2086
    $root $install $1 >/dev/null 2>&1 && return
    if [ -z "${refreshed:-}" ]; then
        refreshed=1
        $root apt-get update
    fi
    # shellcheck disable=SC2086
    $root $install $1
}

if [ -n "$want" ] && ! fetch "$want"; then
    echo "apt-get could not install: $want  -- install them, then run make again" >&2
    exit 1
fi
# One by one: what this release does not have costs the tests that look for it, and no others.
for package in $extra; do
    fetch "$package" || echo "apt-get could not install $package: tests that look for it will be skipped" >&2
done

want=$(missing "$table")
[ -z "$want" ] || { echo "Still missing after the installation: $want" >&2; exit 1; }
echo "Prerequisites installed."
