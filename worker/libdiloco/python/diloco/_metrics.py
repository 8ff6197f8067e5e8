# SPDX-License-Identifier: Apache-2.0
"""What the daemon knows of the run, by its control socket (docs/FORMATS.md, 11)."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from ._errors import DilocoError

_WAIT_S = 5.0
_ANSWER_MOST = 64 << 20


def ask(worker_socket: str, request: str) -> dict[str, Any]:
    """The answer to a request; the control socket lies beside the worker's."""
    path = os.path.join(os.path.dirname(worker_socket), "control.sock")
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_WAIT_S)
            line.connect(path)
            line.sendall(request.encode() + b"\n")
            said = bytearray()
            while not said.endswith(b"\n") and len(said) < _ANSWER_MOST:
                more = line.recv(1 << 16)
                if not more:
                    break
                said += more
        answer = json.loads(said)
    except (OSError, ValueError) as error:
        raise DilocoError(f"the daemon does not answer at {path}: {error}") from error
    if not isinstance(answer, dict):
        raise DilocoError(f"the daemon's answer at {path} is no object")
    return answer


def of_run(worker_socket: str) -> dict[str, Any]:
    """Numbers of the run as this island knows it: `step` (of the newest result), `versions` (results taken in, of all
    fragments), `islands`, `islands_up`, `contributors`, `bytes_sent`, `bytes_received`, `tokens_counted`, `left_s`
    (None: unknown), `anchors` (one hash; equal on islands that hold the same), `degraded` (codes of what is wrong),
    `losses` and `steps_of` (by island)."""
    status, peers = ask(worker_socket, "status"), ask(worker_socket, "peers")
    alike = ("step", "versions", "islands", "islands_up", "contributors", "bytes_sent", "bytes_received", "left_s",
             "anchors")
    found: dict[str, Any] = {name: status.get(name) for name in alike}
    found["tokens_counted"] = status.get("trainer", {}).get("tokens_counted")
    found["degraded"] = [one.get("code") for one in status.get("degraded", [])]
    members = [one for one in peers.get("peers", []) if one.get("role") != "witness"]
    found["losses"] = {one["name"]: one["loss"] for one in members if one.get("loss") is not None}
    found["steps_of"] = {one["name"]: one["step"] for one in members if one.get("step") is not None}
    return found


def flat(metrics: dict[str, Any], prefix: str = "diloco/") -> dict[str, float]:
    """Only numbers, under names with slashes: for whoever draws curves."""
    out: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            out |= flat(value, f"{prefix}{name}/")
        elif isinstance(value, (list, tuple)):
            out[prefix + name] = float(len(value))
        elif isinstance(value, (bool, int, float)):
            out[prefix + name] = float(value)
    return out
