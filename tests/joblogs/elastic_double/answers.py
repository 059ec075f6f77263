"""How a server says no."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


class Unsupported(Exception):
    """A request that the double does not know; the text says which part of it."""


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.body = error_body(status, kind, reason)


def error_body(status: int, kind: str, reason: str) -> Document:
    """As every error looks."""
    cause = {"type": kind, "reason": reason}
    return {"error": {"root_cause": [cause], **cause}, "status": status}


def only(given: Document, allowed: set[str], where: str) -> None:
    """Raises ``Unsupported`` for a name that is not allowed there."""
    unknown = sorted(set(given) - allowed)
    if unknown:
        raise Unsupported(f"{where}: {', '.join(unknown)}")
