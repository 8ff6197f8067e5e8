# SPDX-License-Identifier: Apache-2.0
"""What can go wrong; every text names the thing and the remedy."""


class DilocoError(RuntimeError):
    """Something failed on this side: arguments, memory, the library."""


class Refused(DilocoError):
    """The daemon refused this trainer, and says why."""


class Unreachable(DilocoError):
    """No daemon at the socket, or none that this user may reach."""


class Interrupted(DilocoError):
    """A signal ended the waiting; the call may be made again."""
