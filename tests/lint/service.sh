#!/bin/sh
# The unit file is what systemd-analyze calls right, and stays hardened.
set -u
command -v systemd-analyze >/dev/null 2>&1 || { echo "systemd-analyze is not installed"; exit 77; }
dir=$BUILD/test-data/service
mkdir -p "$dir"
program=$(command -v true)
sed "s,/usr/local/bin/dilocod,$program," conf/dilocod.service >"$dir/dilocod.service"
systemd-analyze --man=no verify "$dir/dilocod.service" 2>"$dir/said"
status=$?
grep dilocod.service "$dir/said" && status=1
[ $status -eq 0 ] || { cat "$dir/said"; exit 1; }
# A configuration that was refused is refused again: a restart every two seconds would bury the reason.
grep -qx 'RestartPreventExitStatus=2' "$dir/dilocod.service" || { echo "a wrong configuration is started again"; exit 1; }
level=$(systemd-analyze security --offline=true "$dir/dilocod.service" 2>/dev/null | sed -n 's/.*exposure level.*: \([0-9.]*\) .*/\1/p')
echo "exposure level $level of 10"
[ -z "$level" ] || [ "$(echo "$level < 2.0" | awk '{ print ($1 < $3) }')" = 1 ]
