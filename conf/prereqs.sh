#!/bin/sh
# Finds what the build and the tests need, and installs what is missing with apt.
#
#   conf/prereqs.sh           look, install what is missing when root or sudo allows, else print the command and fail
#   conf/prereqs.sh --list    print the Debian/Ubuntu package names, one a line
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
module  libsystemd      libsystemd-dev
module  cmocka          libcmocka-dev
header  dnnl.h          libdnnl-dev
header  stdlib.h        libc6-dev
'

present() {
    case $1 in
    command) command -v "$2" >/dev/null 2>&1 ;;
    module) command -v pkg-config >/dev/null 2>&1 && pkg-config --exists "$2" ;;
    header) command -v cc >/dev/null 2>&1 && printf '#include <%s>\n' "$2" | cc -E -x c - >/dev/null 2>&1 ;;
    esac
}

missing() {
    echo "$table" | while read -r probe argument package; do
        [ -n "$probe" ] || continue
        present "$probe" "$argument" || printf '%s ' "$package"
    done
}

if [ "${1:-}" = --list ]; then
    echo "$table" | awk 'NF { print $3 }'
    exit 0
fi

want=$(missing)
[ -n "$want" ] || exit 0

echo "Missing: $want"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "This machine has no apt-get. Install the equivalents of these Debian packages, then run make again: $want" >&2
    exit 1
fi

if [ "$(id -u)" = 0 ]; then
    root=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    root='sudo -n'
elif command -v sudo >/dev/null 2>&1 && [ -t 0 ]; then
    root=sudo
else
    echo "Run this as root, then run make again:  apt-get install -y --no-install-recommends $want" >&2
    exit 1
fi

install='env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends'
# shellcheck disable=SC2086 -- the lists are meant to split
if ! $root $install $want >/dev/null 2>&1; then
    # Package lists may be absent (a container) or stale: refresh them once and show what apt says.
    $root apt-get update && $root $install $want || {
        echo "apt-get could not install: $want  -- install them, then run make again" >&2
        exit 1
    }
fi

want=$(missing)
[ -z "$want" ] || { echo "Still missing after the installation: $want" >&2; exit 1; }
echo "Prerequisites installed."
