# SPDX-License-Identifier: Apache-2.0
# Machines of one site, on this one: each has network, processes, mounts and a name of its own (node1, node2, ...), and
# all are joined by a bridge. The first is this machine as it is. For shell scripts, which end them by machines_end.

# Whether there can be any; if not, why is in $reason.
machines_possible() {
    reason=
    [ "$(id -u)" -eq 0 ] || reason='machines are made of namespaces, by root'
    command -v ip >/dev/null 2>&1 || reason='there is no ip; apt-get install iproute2'
    [ -n "$reason" ] || unshare --net --uts --mount --pid --fork true 2>/dev/null ||
        reason='this machine makes no namespaces'
    [ -z "$reason" ]
}

# How many, and a folder, which gets `agent HOST COMMAND...`, by which MPI and others start something on one of them.
# Sets machines_net, the network of the bridge. Of node K machines_pid K is the first process, as seen here.
machines_begin() {
    machines_count=$1 machines_folder=$2
    local number=$(($$ % 12500))
    machines_bridge=dm$number
    machines_base=10.$((150 + number / 250)).$((number % 250))
    machines_net=$machines_base.0/24
    ip link add "$machines_bridge" type bridge && ip address add "$machines_base.1/24" dev "$machines_bridge" &&
        ip link set "$machines_bridge" up || return
    local k
    { # every machine knows the others by name
        cat /etc/hosts
        echo "$machines_base.1 $(hostname)"
        for ((k = 1; k < machines_count; k++)); do echo "$machines_base.$((k + 1)) node$k"; done
    } >"$machines_folder/hosts"
    for ((k = 1; k < machines_count; k++)); do
        unshare --net --uts --mount --pid --fork --kill-child --mount-proc \
            bash -c "hostname node$k; exec sleep infinity" >/dev/null 2>&1 </dev/null &
        echo $! >"$machines_folder/unshare$k"
        disown # it is ended without a word
        machines_join "$k" || return
    done
    cat >"$machines_folder/agent" <<A
#!/bin/bash
# agent HOST COMMAND...
host=\$1
shift
[ "\$host" = "$(hostname)" ] && exec bash -c "\$*"
exec nsenter -t "\$(cat "$machines_folder/\$host.pid")" -n -u -m -p -- bash -c "\$*"
A
    chmod +x "$machines_folder/agent"
}

machines_join() { # k
    local outer pid k=$1 here=${machines_bridge}v$1 end=$((SECONDS + 20))
    outer=$(cat "$machines_folder/unshare$k")
    until pid=$(pgrep -P "$outer" | head -n 1) && [ -n "$pid" ] &&
        [ "$(readlink "/proc/$pid/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
    echo "$pid" >"$machines_folder/node$k.pid"
    ip link add "$here" type veth peer name fabric netns "$pid" && ip link set "$here" master "$machines_bridge" up &&
        nsenter -t "$pid" -m mount --bind "$machines_folder/hosts" /etc/hosts && nsenter -t "$pid" -n ip link set lo up && nsenter -t "$pid" -n ip link set fabric up &&
        nsenter -t "$pid" -n ip address add "$machines_base.$((k + 1))/24" dev fabric
}

machines_pid() { cat "$machines_folder/node$1.pid"; }

machines_end() {
    local file
    for file in "${machines_folder:-/nowhere}"/unshare*; do
        [ ! -f "$file" ] || kill -KILL "$(cat "$file")" 2>/dev/null # it takes no other, and its processes go with it
    done
    [ -z "${machines_bridge:-}" ] || ip link del "$machines_bridge" 2>/dev/null
    machines_bridge=
}
