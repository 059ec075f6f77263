"""A rule set: what goes in, by which rules, and where it goes out (seed S2.10 to S2.31).

Plain values, as a file or the admin says them and as a version keeps them: nothing here is
compiled or connected. ``place`` says where an entry stands (``main.yaml:12``) and is no part of
what two rule sets are compared by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

DEFAULT_WEIGHT: Final = 10
DEFAULT_THREADS: Final = 8
DEFAULT_PRIORITY: Final = 1000
DEFAULT_RT_PRIORITY: Final = 2000
# Most times that an item without a limit of its own is routed: a circle must end.
MOST_ROUTINGS: Final = 100
# Seconds to wait for a result where the outbound has no time of its own.
RESULT_SECONDS: Final = 24 * 3600.0


class Overflow(StrEnum):
    """What happens to an item whose outbound has ``max_lag`` items waiting (seed S2.38)."""

    HOLD = "hold"
    NEXT = "next"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Convert:
    """One step before the selector: the class of a converter and its parameters."""

    cls: str
    init: Mapping[str, Any] = field(default_factory=dict)
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Inbound:
    """Where items come from (seed S2.17)."""

    name: str
    cls: str
    init: Mapping[str, Any] = field(default_factory=dict)
    # An item is accepted when any holds; with none, every item is.
    selector: tuple[str, ...] = ()
    convert: tuple[Convert, ...] = ()
    disable: bool = False
    # Its share of polling, beside those of the other inbounds.
    weight: int = DEFAULT_WEIGHT
    threads: int = DEFAULT_THREADS
    note: str = ""
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Outbound:
    """Where items go (seed S2.24, S2.25): the first whose selector holds takes an item."""

    name: str
    cls: str
    # The parameters of the class alone, such as url and key.
    init: Mapping[str, Any] = field(default_factory=dict)
    # An item fits when any holds; with none, no item does: it is reached as a failback only.
    selector: tuple[str, ...] = ()
    disable: bool = False
    # Keys that are taken from the top level of an item; None takes all of them.
    task_params: tuple[str, ...] | None = None
    task_params_wrapped: bool = False
    # Set on each item that is sent, such as ``task_src: 3`` (seed S2.30).
    constants: Mapping[str, Any] = field(default_factory=dict)
    retry_limits: int = 0
    priority: int = DEFAULT_PRIORITY
    rt_priority: int = DEFAULT_RT_PRIORITY
    dont_retry_status: tuple[int | str, ...] = ()
    direct_failback_status: tuple[int | str, ...] = ()
    # The name of another outbound of the set; "" is none.
    failback: str = ""
    # "*" is the whole outbound, else the key of an item whose values have a bucket each.
    token_scope: str = "*"  # noqa: S105
    # 0 is unlimited.
    token_per_second: float = 0.0
    reset_retry_times: bool = False
    # Most items that wait in its queue; -1 is unlimited.
    max_lag: int = -1
    overflow: Overflow = Overflow.HOLD
    # None asks the class: a queue of spiders answers, a topic does not.
    expects_result: bool | None = None
    result_timeout_seconds: float = RESULT_SECONDS
    note: str = ""
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Server:
    """The address of the seed's own HTTP server (seed S2.9)."""

    bind: str
    port: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The file that failed items are written to (seed S2.13)."""

    path: str
    compress: bool = False


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules of one project, in their effective order."""

    project: str
    inbounds: tuple[Inbound, ...] = ()
    outbounds: tuple[Outbound, ...] = ()
    # -1 is unlimited, which ``MOST_ROUTINGS`` bounds.
    limits: int = -1
    # Values of ``task_result`` that end an item well.
    terminal_codes: tuple[int | str, ...] = ()
    server: Server | None = None
    failure: Failure | None = None
    # As the file says it, for ``logging.config.dictConfig``.
    logging: Mapping[str, Any] = field(default_factory=dict)

    @property
    def most_routings(self) -> int:
        """How often an item is routed at most."""
        return MOST_ROUTINGS if self.limits < 0 else min(self.limits, MOST_ROUTINGS)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a rule set is refused, or what it is warned of; the first words say where."""

    # main.yaml:12, or outbound[3].selector[0]
    place: str
    # What is wrong, for programs: unknown_class, bad_selector ...
    code: str
    text: str
    # Of a selector: the first character that is wrong, from 0.
    offset: int | None = None
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"
