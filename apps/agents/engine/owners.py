"""Kinds of owners of allocations: runs, and those that apps above this one register.

In messages an owner is one number: 7 is ``run:7``. Owners of other kinds are negative, and there
is one such kind: -3 is ``fetcher:3``. Their tokens are those of the number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from yardkit.protocol import PagePolicy, ReplaySource

RUN: Final = "run"
FETCHER: Final = "fetcher"


@dataclass(frozen=True, slots=True)
class OwnerFacts:
    """What the center needs to know. ``active``: it still needs its agents."""

    project: int
    active: bool
    allowed_networks: tuple[str, ...] = ()
    pages: PagePolicy = field(default_factory=PagePolicy)
    replay: ReplaySource = field(default_factory=ReplaySource)


# By the numbers of their own kind, which are positive; unknown ones are missing.
LookUp = Callable[[Iterable[int]], Mapping[int, OwnerFacts]]

_look_ups: dict[str, LookUp] = {}


def register(kind: str, look_up: LookUp) -> None:
    """Register a look-up for owners of a kind. Called when apps are ready."""
    _look_ups[kind] = look_up


def owner_of(number: int) -> str:
    """Return the owner of a number: ``7`` -> ``run:7``, ``-3`` -> ``fetcher:3``."""
    return f"{RUN}:{number}" if number >= 0 else f"{FETCHER}:{-number}"


def number_of(owner: str) -> int | None:
    """Return the number of an owner; None for an unknown kind."""
    kind, _separator, number = owner.partition(":")
    if not number.isdecimal():
        return None
    return {RUN: int(number), FETCHER: -int(number)}.get(kind)


def known_number(owner: str) -> int:
    """Return the number of an owner that the center has written itself. Raises ``ValueError``."""
    number = number_of(owner)
    if number is None:
        raise ValueError(f"{owner} is no owner of agents")
    return number


def look_up(numbers: Iterable[int]) -> dict[int, OwnerFacts]:
    """Map numbers of owners, as in messages, to their facts; unknown owners are left out.

    One query for each kind of owner.
    """
    kinds: dict[str, set[int]] = {}
    for number in numbers:
        kinds.setdefault(RUN if number >= 0 else FETCHER, set()).add(abs(number))
    found: dict[int, OwnerFacts] = {}
    for kind, wanted in kinds.items():
        if kind in _look_ups:
            sign = 1 if kind == RUN else -1
            found |= {sign * each: facts for each, facts in _look_ups[kind](wanted).items()}
    return found
