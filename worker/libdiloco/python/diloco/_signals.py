# SPDX-License-Identifier: Apache-2.0
"""What signals do: a SIGTERM ends a script in order, and nothing interrupts C while it waits."""

from __future__ import annotations

import _signal  # the functions of signal without its enums, which took most of a call's time
import os
import threading
import time
from typing import Any

SAME_S = 1.0  # within which a second SIGTERM is the first one, come by another way


class Ending:
    """What SIGTERM does in a script that does nothing about it: the next step() is the last. A batch system sends it
    before it takes the machine, and the daemon when it is stopped. A second one ends the process, as ever: the script
    may stand where it comes to no step."""

    def __init__(self) -> None:
        self.asked = False
        self._since = 0.0
        self._process = os.getpid()

    def __call__(self, number: int, _frame: Any) -> None:
        if os.getpid() == self._process and (not self.asked or time.monotonic() < self._since + SAME_S):
            self._since = self._since if self.asked else time.monotonic()
            self.asked = True
            return
        _signal.signal(number, _signal.SIG_DFL)  # a process that the script has forked, as its loader of data
        os.kill(os.getpid(), number)

    def begin(self) -> None:
        if threading.current_thread() is threading.main_thread() and (
            _signal.getsignal(_signal.SIGTERM) == _signal.SIG_DFL
        ):
            _signal.signal(_signal.SIGTERM, self)

    def end(self) -> None:
        if threading.current_thread() is threading.main_thread() and _signal.getsignal(_signal.SIGTERM) is self:
            _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)


class Signals:
    """While C waits, a signal is only noted, and the waiting ends; then its own handler runs, as it would have."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.handlers: dict[int, Any] = {}

    def _note(self, number: int, _frame: Any) -> None:
        self.seen.append(number)

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in (_signal.SIGINT, _signal.SIGTERM):
                handler = _signal.getsignal(number)
                if callable(handler) and not isinstance(handler, Ending):
                    self.handlers[number] = handler
                    _signal.signal(number, self._note)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        handlers, seen = self.handlers, self.seen
        self.handlers, self.seen = {}, []
        for number, handler in handlers.items():
            _signal.signal(number, handler)
        for number in seen:
            handlers[number](number, None)  # raises KeyboardInterrupt unless somebody chose otherwise
