#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What stops a fault of ours in memory is compiled and linked into all that we ship: every line that compiles has the
# flags, and every program and library shows them. And a child between fork() and exec() calls only what is safe there:
# another thread may have held any lock when it was made.
set -u
: "${BUILD:?is not set: the build folder, as in BUILD=build/gcc}"
bad=0
complain() { echo "$1"; bad=1; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# ---- the lines that compile and link ----
make -nB all PREREQS_PRESENT=1 V=1 MAKEFLAGS= SAN= OPT=-O2 CC="${CC:-cc}" >"$work/said" 2>&1 || complain "make -n all fails: $(tail -n 1 "$work/said")"
sed -e ':more' -e '/\\$/{N; s/\\\n//; b more' -e '}' "$work/said" >"$work/lines"
needs() { # lines that hold this, name what they make as -o FILE, option
    grep -e "$1" "$work/lines" >"$work/these"
    [ -s "$work/these" ] || complain "make all shows no line with $1"
    grep -v -e "$2" "$work/these" | sed 's/.* -o \([^ ]*\).*/\1/' >"$work/lacking"
    [ ! -s "$work/lacking" ] || complain "without $2: $(head -n 3 "$work/lacking" | tr '\n' ' ')$(wc -l <"$work/lacking") in all"
}
# A compiler that does not know it, as clang on some machines, is not asked for it.
clash=
grep -q -e '-fstack-clash-protection' "$work/lines" && clash=-fstack-clash-protection
case $(uname -m)${CC:-cc} in x86_64gcc* | aarch64gcc*) clash=-fstack-clash-protection ;; esac
for option in -fstack-protector-strong $clash; do
    needs '-c [^ ]*\.c ' " $option "
    ! grep -q '\.cu ' "$work/lines" || needs '-c [^ ]*\.cu ' ",$option,"
done
needs '-c [^ ]*\.c ' ' -D_FORTIFY_SOURCE=2 '
for option in relro now noexecstack; do
    needs ' -o [^ ]*/\(diloco[^ /.]*\|libdiloco[^ /]*\.so[.0-9]*\)$' "-z,$option"
done

# ---- what was made ----
shown() { # file
    readelf -hldW "$1" >"$work/elf" 2>/dev/null || { complain "readelf cannot read $1"; return; }
    grep -q 'Type: *DYN' "$work/elf" || complain "$1 is loaded at an address that is known beforehand: it is no PIE"
    grep -q 'GNU_RELRO' "$work/elf" && grep -q 'BIND_NOW' "$work/elf" || complain "$1 can be written where it keeps addresses of functions: no full RELRO"
    grep -qE 'GNU_STACK .* RW ' "$work/elf" || complain "$1 has a stack that can be executed"
    [ -n "${SAN:-}" ] && return
    nm -D -P --undefined-only "$1" | awk '{ sub(/@.*/, "", $1); print $1 }' >"$work/uses"
    grep -qx __stack_chk_fail "$work/uses" || complain "$1 guards no stack"
    case $BUILD in *-O0) ;; *) grep -qE '^__[a-z]+_chk$' "$work/uses" || complain "$1 checks no lengths: no FORTIFY_SOURCE" ;; esac
}
looked=0
if command -v readelf >/dev/null 2>&1 && command -v nm >/dev/null 2>&1; then
    for made in dilocod dilococtl diloco-worker diloco-gateway libdiloco.so.0 libdiloco-cuda.so; do
        [ -f "$BUILD/$made" ] || { [ $made = libdiloco-cuda.so ] || complain "there is no $BUILD/$made; make it first"; continue; }
        shown "$BUILD/$made"
        looked=$((looked + 1))
    done
else
    echo "skip: readelf and nm are not here, so programs were not looked at"
fi

# ---- between fork() and exec() ----
# file | what the child runs
children='
common/program.c         | become
daemon/trainer/process.c | run_child
daemon/ctl/ctl_home.c    | become_supervisor
daemon/supervisor.c      | become_daemon
'
# Launched ranks are no such children: they go on as they are, and are made before the process has threads.
may='if while sizeof return sigemptyset sigprocmask signal setsid dup2 chdir open close syscall execv execvpe _exit child_say'
echo "$children" | while IFS='| ' read -r file function; do
    [ -n "$file" ] || continue
    sed -n "/^static .*[ *]$function(/,/^}/p" "$file" | sed '1,/^{/d; s,/\*.*\*/,,' >"$work/body"
    [ -s "$work/body" ] || echo "$file has no $function()"
    grep -q '_exit(' "$work/body" || echo "$file: $function() does not end in _exit()"
    grep -oE '\b[a-z_0-9]+\(' "$work/body" | tr -d '(' | sort -u | while read -r call; do
        case " $may " in
        *" $call "*) ;;
        *) echo "$file: $function() calls $call(), which is not safe in a child of a process with threads" ;;
        esac
    done
done | grep . && bad=1
for file in $(tests/files.sh 'common/*.c' 'daemon/*.c' 'worker/*.c' 'net/*.c' 'outer_opt/*.c' 'kernels/*.c' | xargs grep -lE '\b(fork|vfork)\(\)'); do
    case "$children worker/launch.c " in
    *"$file "*) ;;
    *) complain "$file forks: tests/lint/hardening.sh has no row with what its child runs" ;;
    esac
done
[ $bad = 0 ] && echo "$(grep -c -e ' -c ' "$work/lines") lines compile hardened; $looked programs and libraries show it"
exit $bad
