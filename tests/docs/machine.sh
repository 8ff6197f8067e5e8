# SPDX-License-Identifier: Apache-2.0
# One machine of the documents: bash, in namespaces of its own, with folders of its own over those of this machine.
# Called by tests/docs/run.py with the clone, this machine's name and address, and the folder of the stand-ins.
set -e
clone=$1 name=$2 address=$3 tools=$4
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
copy() { # folder as it is, changes are this machine's alone
    mkdir -p "/mnt$2/new" "/mnt$2/work" "$2"
    mount -t overlay overlay -o "lowerdir=$1,upperdir=/mnt$2/new,workdir=/mnt$2/work" "$2"
}
mount -t tmpfs -o mode=755 tmpfs /home
mkdir -p /home/me/diloco
copy "$clone" /home/me/diloco
for folder in /etc /root /tmp /usr/local /var/lib; do copy $folder $folder; done
for folder in /run /srv; do mount -t tmpfs -o mode=755 tmpfs $folder; done
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -p /run/systemd/system
hostname "$name"
ip link set lo up
until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip address add "$address/24" dev eth0
ip link set eth0 up
export TOOLS=$tools HOME=/home/me USER=me PATH=$tools:$PATH LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 GIT_CONFIG_COUNT=1
export GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
unset DILOCO_HOME DILOCO_SOCKET MAKEFLAGS MFLAGS MAKELEVEL BUILD CC SAN
# Virtual environments made here see a PyTorch that is in one outside.
torch=$(python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' 2>/dev/null) &&
    export PYTHONPATH="$torch"
cd "$HOME/diloco"
head -c 300000 tests/demo/shakespeare.txt >book.txt
cp book.txt /srv/text.txt
pip() { python3 "$TOOLS/pip" "$@"; } # also where a virtual environment has its own
# Islands train as fast as they can; what is typed beside them, and other tests, come first, but not so far that one
# island starves: no page could say what it then shows. Daemons and trainers are sessions of their own, which the kernel
# groups.
while sleep 0.3; do
    for pid in $(pgrep -x dilocod); do
        for each in "$pid" $(pgrep -P "$pid"); do echo 10 >/proc/"$each"/autogroup; done
    done
done 2>/dev/null </dev/null >/dev/null &
set +e
set -o pipefail
