#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make check` sees to what tests look for as `make` does to what the build needs: installs it with apt, or prints the
# command; and a machine that lacks it all the same builds, and skips those tests. apt-get, id and sudo are played here.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
complain() { echo "$1"; [ ! -f "$work/said" ] || sed 's/^/      | /' "$work/said"; exit 1; }
unset MAKEFLAGS MFLAGS MAKELEVEL PREREQS_PRESENT

make -n check 2>/dev/null | grep -q '^conf/prereqs.sh --tests$' || complain "make check does not ask for what tests need"
make -n all 2>/dev/null | grep -q '^conf/prereqs.sh *$' || complain "make asks for more than the build needs"

# A machine as this one, less `ip` and `pgrep`.
mkdir "$work/tools"
(IFS=:; for folder in $PATH; do ls -d "$folder"/* 2>/dev/null || true; done) |
    awk -F/ '!seen[$NF]++ && $NF !~ /^(ip|pgrep|apt-get|sudo|id)$/' | xargs -d '\n' ln -s -t "$work/tools"
play() { # name, lines of its script
    printf '#!/bin/sh\n%s\n' "$2" >"$work/tools/$1"
    chmod +x "$work/tools/$1"
}
play apt-get "echo \"\$@\" >>$work/asked; exit \$(cat $work/answer)"
see() { # uid, exit status of apt-get, arguments: what prereqs.sh says, into said; its status, into status
    play id "echo $1"
    echo "$2" >"$work/answer"
    : >"$work/asked"
    shift 2
    status=0
    PATH=$work/tools conf/prereqs.sh "$@" >"$work/said" 2>&1 || status=$?
}
asked() { grep -q -e "install .* $1\$" "$work/asked"; }

see 0 0
[ $status = 0 ] && [ ! -s "$work/asked" ] || complain "the build asks for tools of tests"
see 0 0 --tests
[ $status = 0 ] && asked iproute2 && asked procps || complain "root: iproute2 and procps are not installed (exit $status)"
see 0 100 --tests
[ $status = 0 ] && grep -q 'could not install procps: tests that look for it will be skipped' "$work/said" ||
    complain "what apt-get does not have ends make check (exit $status)"
see 1000 0 --tests
[ $status = 0 ] && [ ! -s "$work/asked" ] && grep -q 'apt-get install .*iproute2 procps' "$work/said" &&
    grep -q 'tests that look for it are skipped' "$work/said" || complain "who may not install does not hear the command (exit $status)"
