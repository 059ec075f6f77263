"""What ``manage.py check_input`` can check, by kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from yardkit.addresses import check_address


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether an input is accepted, why not, and where in it the fault is (0-based)."""

    accepted: bool
    reason: str = ""
    position: int | None = None


def _address(value: str) -> Answer:
    verdict = check_address(value)
    return Answer(accepted=verdict.accepted, reason=verdict.reason)


KINDS: dict[str, Callable[[str], Answer]] = {"addresses": _address}
