"""Rule set: the inbounds, selectors and outbounds of a project.

Plain values, as read from a file, from the admin or from a stored version; nothing is compiled or
connected. ``place`` is the position of an entry (``main.yaml:12``) and is ignored when two rule
sets are compared.
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
# Upper bound of routings of one item, so that a routing loop ends.
MOST_ROUTINGS: Final = 100
# Default result timeout in seconds.
RESULT_SECONDS: Final = 24 * 3600.0


class Overflow(StrEnum):
    """Policy for an item whose outbound has ``max_lag`` items waiting."""

    HOLD = "hold"
    NEXT = "next"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Convert:
    """Conversion step of an inbound, before its selectors: converter class and parameters."""

    cls: str
    init: Mapping[str, Any] = field(default_factory=dict)
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Inbound:
    """Source of items."""

    name: str
    cls: str
    init: Mapping[str, Any] = field(default_factory=dict)
    # An item is accepted if any selector matches, or if there is no selector.
    selector: tuple[str, ...] = ()
    convert: tuple[Convert, ...] = ()
    disable: bool = False
    # Relative polling weight among the inbounds of the rule set.
    weight: int = DEFAULT_WEIGHT
    threads: int = DEFAULT_THREADS
    note: str = ""
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Outbound:
    """Destination of items; the first outbound whose selector matches takes an item."""

    name: str
    cls: str
    # Parameters of the class, such as url and key.
    init: Mapping[str, Any] = field(default_factory=dict)
    # An item matches if any selector does. Without selectors the outbound is a failback only.
    selector: tuple[str, ...] = ()
    disable: bool = False
    # Top-level keys of the item to send; None sends all of them.
    task_params: tuple[str, ...] | None = None
    task_params_wrapped: bool = False
    # Values added to each message, such as ``task_src: 3``.
    constants: Mapping[str, Any] = field(default_factory=dict)
    retry_limits: int = 0
    priority: int = DEFAULT_PRIORITY
    rt_priority: int = DEFAULT_RT_PRIORITY
    dont_retry_status: tuple[int | str, ...] = ()
    direct_failback_status: tuple[int | str, ...] = ()
    # Name of another outbound of the rule set; "" for none.
    failback: str = ""
    # "*" for one bucket per outbound, else an item key: one bucket per value of that key.
    token_scope: str = "*"  # noqa: S105
    # 0 is unlimited.
    token_per_second: float = 0.0
    reset_retry_times: bool = False
    # Maximum number of waiting items in the queue; -1 is unlimited.
    max_lag: int = -1
    overflow: Overflow = Overflow.HOLD
    # None uses the default of the class: a spider queue returns results, a topic does not.
    expects_result: bool | None = None
    result_timeout_seconds: float = RESULT_SECONDS
    note: str = ""
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Server:
    """Listen address of the HTTP server that a rule set may have."""

    bind: str
    port: int


@dataclass(frozen=True, slots=True)
class Failure:
    """File that failed items are written to (see ``failures``)."""

    path: str
    compress: bool = False


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules of one project, in their effective order."""

    project: str
    inbounds: tuple[Inbound, ...] = ()
    outbounds: tuple[Outbound, ...] = ()
    # Maximum number of routings of an item; -1 means ``MOST_ROUTINGS``.
    limits: int = -1
    # Values of ``task_result`` that mean success.
    terminal_codes: tuple[int | str, ...] = ()
    server: Server | None = None
    failure: Failure | None = None
    # Logging configuration of the file, for ``logging.config.dictConfig``.
    logging: Mapping[str, Any] = field(default_factory=dict)

    @property
    def most_routings(self) -> int:
        """Effective maximum number of routings of an item."""
        return MOST_ROUTINGS if self.limits < 0 else min(self.limits, MOST_ROUTINGS)


@dataclass(frozen=True, slots=True)
class Problem:
    """Validation error or warning of a rule set."""

    # Position, such as main.yaml:12 or outbound[3].selector[0].
    place: str
    # Machine-readable code, such as unknown_class or bad_selector.
    code: str
    text: str
    # Offset of the error in a selector in characters, from 0.
    offset: int | None = None
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"
