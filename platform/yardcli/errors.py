"""Errors that end a command, with their exit status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum


class Exits(IntEnum):
    """Exit statuses for scripts, documented in docs/cli.md."""

    OK = 0
    NEGATIVE = 1
    """A run that failed, a seed that is not new, an item that no rule takes."""
    USAGE = 2
    """Invalid arguments or input, rejected by the command or by the server."""
    AUTH = 3
    NOT_FOUND = 4
    UNREACHABLE = 5
    """No answer, or a fault of the server."""
    REFUSED = 6
    """It conflicts with how things stand."""
    INTERRUPTED = 130


_BY_STATUS = {
    401: Exits.AUTH,
    403: Exits.AUTH,
    404: Exits.NOT_FOUND,
    409: Exits.REFUSED,
    412: Exits.REFUSED,
    423: Exits.REFUSED,
    428: Exits.REFUSED,
    429: Exits.UNREACHABLE,
}


class CommandFailed(Exception):
    """``text`` is for people; ``more`` are further lines."""

    def __init__(self, exit_code: Exits, text: str, *more: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.more = more


class ServerRefused(CommandFailed):
    """An error answered by the server, in its words."""

    def __init__(
        self, status: int, code: str, detail: str, fields: Mapping[str, Sequence[str]], request: str
    ) -> None:
        exit_code = _BY_STATUS.get(status, Exits.UNREACHABLE if status >= 500 else Exits.USAGE)
        more = [f"  {name}: {' '.join(map(str, texts))}" for name, texts in fields.items()]
        if request:
            more.append(f"  request id: {request}")
        super().__init__(exit_code, f"{detail} ({status} {code})", *more)
        self.status = status
        self.code = code


def usage(text: str, *more: str) -> CommandFailed:
    """Return the error for invalid arguments or input."""
    return CommandFailed(Exits.USAGE, text, *more)
