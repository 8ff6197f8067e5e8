#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A calendar that jumps does not matter: the time of day is asked for logs, and for when an invitation ends and a
# daemon was started again, which is told to people as a date. All else goes by the monotonic clock.
set -u
may='common/env.c common/log.c net/transport/join_client.c daemon/supervisor.c daemon/membership/membership_host.c daemon/control/control.c worker/train.c'
bad=0
files=$(tests/files.sh '*.c' '*.h' | grep -E '^(daemon|worker|net|outer_opt|kernels|common)/')
[ -n "$files" ] || { echo "no source files found"; exit 1; }
for file in $files; do
    case " $may common/env.h " in *" $file "*) continue ;; esac
    grep -nE '\b(env_wall_ms|CLOCK_REALTIME|CLOCK_TAI|gettimeofday|timespec_get)\b|\btime\((NULL|0|&)' "$file" |
        grep -vE '^[0-9]+:[[:space:]]*(\*|/\*|//)' | sed "s,^,$file: asks what time of day it is: ," | grep . && bad=1
done
# One that asks no more is taken off the list.
for file in $may; do
    grep -qE 'env_wall_ms|CLOCK_REALTIME' "$file" || { echo "$file: need not be on this list"; bad=1; }
done
exit $bad
