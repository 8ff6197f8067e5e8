# SPDX-License-Identifier: Apache-2.0
"""Starts a trainer on several "machines" of this one, as torchrun does on each of a cluster's.

    nodes.py --nodes 2 --per-node 2 [--same-names] [--rate 1gbit] [--gateway PROGRAM --gateway-port PORT] \\
        [--port PORT] -- TRAINER ARGUMENTS...

The first is this machine as it is; each other one has network, processes, mounts and a name of its own, and does not
see the folder of the daemon's socket. They are joined by a bridge, the "fabric". Needs root. It ends as the first does;
SIGTERM goes to all. With a gateway, which is started beside the daemon, the first machine does not use the daemon's
socket either.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def link_of(place: object, node: int = 1) -> str:
    """The interface, on this machine, of the line to a machine of what was started by this file with that path in its
    arguments."""
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().decode(errors="replace") if entry.name.isdigit() else ""
            if "tests/python/nodes.py" in command and str(place) in command:
                return f"dn{int(entry.name) % 60000}v{node}"
    raise LookupError(f"nobody has started nodes for {place}")


class Fabric:
    def __init__(self, rate: str | None) -> None:
        self.rate = rate  # of each line in each direction, as tc says it; None: what the machine can
        self.number = os.getpid() % 60000
        self.bridge = f"dn{self.number}"
        self.base = f"10.{200 + self.number // 250 % 50}.{self.number % 250}"
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "addr", "add", f"{self.base}.1/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")

    def join(self, node: int, pid: int) -> None:
        here, there = f"dn{self.number}v{node}", "fabric"
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", str(pid))
        run("ip", "link", "set", here, "master", self.bridge, "up")
        inside = ["nsenter", "-t", str(pid), "-n", "ip"]
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "addr", "add", f"{self.base}.{node + 1}/24", "dev", there)
        run(*inside, "link", "set", there, "up")
        if self.rate is not None:
            shape = ["root", "tbf", "rate", self.rate, "burst", "256kb", "latency", "50ms"]
            run("tc", "qdisc", "add", "dev", here, *shape)
            run("nsenter", "-t", str(pid), "-n", "tc", "qdisc", "add", "dev", there, *shape)

    def close(self) -> None:
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)


def start(node: int, options: argparse.Namespace, command: list[str], fabric: Fabric) -> subprocess.Popen:
    torchrun = [
        sys.executable, "-u", "-m", "torch.distributed.run", "--nnodes", str(options.nodes), "--node-rank", str(node),
        "--nproc-per-node", str(options.per_node), "--master-addr", f"{fabric.base}.1", "--master-port",
        str(options.port), *command,
    ]
    environment = dict(os.environ, GLOO_SOCKET_IFNAME=fabric.bridge if node == 0 else "fabric")
    folder = str(pathlib.Path(os.environ["DILOCO_SOCKET"]).parent)
    if options.gateway:
        environment["DILOCO_SOCKET"] = f"tcp://{fabric.base}.1:{options.gateway_port}"
        environment["DILOCO_SITE_KEY"] = str(pathlib.Path("site.key").resolve())
    if node == 0:
        return subprocess.Popen(torchrun, env=environment)
    name = "node" if options.same_names else f"node{node}"
    # It waits until it is on the fabric; then its socket's folder is hidden.
    inside = f'read _; hostname {name}; mount -t tmpfs none "$1"; shift; exec "$@"'
    shell = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
             "bash", "-c", inside, "bash", folder, *torchrun]
    process = subprocess.Popen(shell, env=environment, stdin=subprocess.PIPE)
    network = f"/proc/{process.pid}/ns/net"
    while os.readlink(network) == os.readlink("/proc/self/ns/net"):
        time.sleep(0.01)
    fabric.join(node, process.pid)
    process.stdin.write(b"\n")
    process.stdin.close()
    return process


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--nodes", type=int, default=2)
    options.add_argument("--per-node", type=int, default=1)
    options.add_argument("--same-names", action="store_true")
    options.add_argument("--rate")
    options.add_argument("--gateway")
    options.add_argument("--gateway-port", type=int)
    options.add_argument("--port", type=int, default=29600)
    options.add_argument("command", nargs=argparse.REMAINDER)
    a = options.parse_args()
    command = a.command[1:] if a.command[:1] == ["--"] else a.command
    fabric = Fabric(a.rate)
    processes: list[subprocess.Popen] = []

    def stop(number: int, _frame) -> None:
        for process in processes:
            process.send_signal(number)

    signal.signal(signal.SIGTERM, stop)
    try:
        gateway = [subprocess.Popen([a.gateway, "--listen", f"*:{a.gateway_port}"])] if a.gateway else []
        processes += gateway
        while gateway and not pathlib.Path("site.key").exists():
            time.sleep(0.05)
        processes += [start(node, a, command, fabric) for node in range(a.nodes)]
        codes = [process.wait() for process in processes[len(gateway):]]
        for process in gateway if not any(codes) else []:
            codes.append(process.wait())
    finally:
        for process in processes:
            process.kill()
        fabric.close()
    sys.exit(max((code if code >= 0 else 128 - code) for code in codes))


if __name__ == "__main__":
    main()
