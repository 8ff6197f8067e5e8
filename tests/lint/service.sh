#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The unit file is what systemd-analyze calls right, alone and with the drop-in for a GPU, and stays hardened.
set -u
command -v systemd-analyze >/dev/null 2>&1 || { echo "systemd-analyze is not installed"; exit 77; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
unit=$dir/dilocod.service drop_in=$dir/dilocod.service.d/gpu.conf
program=$(command -v true)

verify() {
    systemd-analyze --man=no verify "$unit" 2>"$dir/said"
    status=$?
    grep -E 'dilocod\.service|gpu\.conf' "$dir/said" && status=1
    [ $status -eq 0 ] || { cat "$dir/said"; exit 1; }
}
# In words, and no higher than that: of the unit alone, with what it is called.
exposed() {
    level=$(systemd-analyze security --offline=true "$unit" 2>/dev/null | sed -n 's/.*exposure level.*: \([0-9.]*\) .*/\1/p')
    echo "exposure level $2: $level of 10"
    [ -z "$level" ] || [ "$(echo "$level < $1" | awk '{ print ($1 < $3) }')" = 1 ] || exit 1
}
needs() { # file, line, what is wrong without it
    grep -qx "$2" "$1" || { echo "${1##*/} has no $2: $3"; exit 1; }
}

sed "s,/usr/local/bin/dilocod,$program," conf/dilocod.service >"$unit"
verify
needs "$unit" 'RestartPreventExitStatus=2' 'a wrong configuration is started again, every two seconds, which buries the reason'
exposed 2.0 alone

# A drop-in adds to lists, and replaces all else.
mkdir "$dir/dilocod.service.d"
cp conf/dilocod-gpu.conf "$drop_in"
echo 'NoSuchKey=1' >>"$drop_in"
(verify) >/dev/null && { echo "systemd-analyze does not look into ${drop_in##*/}: this proves nothing"; exit 1; }
cp conf/dilocod-gpu.conf "$drop_in"
verify
needs "$drop_in" 'PrivateDevices=no' 'the GPU is not in its /dev'
for device in nvidia nvidia-frontend nvidia-uvm nvidia-caps; do
    needs "$drop_in" "DeviceAllow=char-$device rw" 'CUDA does not start'
done
needs "$drop_in" 'RestrictAddressFamilies=AF_NETLINK' 'NCCL does not start'
needs "$drop_in" 'LimitMEMLOCK=infinity' 'memory cannot be pinned'
needs "$drop_in" 'MemoryDenyWriteExecute=no' 'CUDA cannot compile'
! grep -q '^RestrictAddressFamilies=.*~' "$drop_in" || { echo "the drop-in takes address families away"; exit 1; }
exposed 2.5 'with a GPU'
