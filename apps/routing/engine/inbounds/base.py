"""Interface of inbounds, tested for each class by tests/routing/engine/inbounds/test_contract.py.

An inbound returns raw bytes without validating them. Delivery is at least once: unacknowledged
items are redelivered, also after a crash, and to another router if this one has stopped. A lost
connection raises no exception: ``take`` returns nothing, ``problem`` has the reason, and the
inbound reconnects by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

# Opaque reference to a taken item; only the inbound that created it can interpret it.
Handle = object

DEFAULT_IN_FLIGHT: Final = 1000


class BadInit(ValueError):
    """Raised when the parameters under ``init`` are invalid; the message contains no secret."""


class InboundClosed(RuntimeError):
    """Raised by ``take`` after ``close()`` was called on the inbound."""


# Not frozen: one is created for each item, and creating a frozen one takes three times as long.
@dataclass(slots=True)
class Taken:
    """Message taken from an inbound; its bytes are not validated yet."""

    raw: bytes
    handle: Handle = field(repr=False)
    # Human-readable position, such as topic[3]@17, queue#5 or file.jsonl:1024.
    where: str
    # True if it was delivered before; False if not or unknown, as not every server reports it.
    redelivered: bool = False
    # Unique among the messages of the inbound and the same on redelivery; "" if there is none.
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Warning about an inbound, or error in one of its parameters."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Context:
    """Environment of an inbound, in addition to its own parameters."""

    # Name of the inbound in its rule set.
    name: str
    # Consumer name from project, host and process, to identify it in the server's client lists.
    consumer: str
    # Folder for persistent state; it survives restarts and is used by this project only.
    state: Path
    # Folder that files may be read from, so that rules cannot read any file of the host.
    files: Path
    # Maximum number of items that are taken and neither acknowledged nor returned.
    in_flight: int = DEFAULT_IN_FLIGHT


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of an inbound class: a key below ``init``."""

    name: str
    # str, int, float, bool, list (of str) or dict (with str keys).
    type: type
    text: str
    required: bool = False
    default: Any = None
    # Whether the value may contain a password, as a URL does; such values are masked.
    secret: bool = False


@runtime_checkable
class Inbound(Protocol):
    """Source of items. All methods are thread-safe.

    Instances are created by ``Class(context, init)`` with parameters that ``registry.check`` has
    validated; the constructor raises ``BadInit`` for errors that the check cannot detect. The
    connection is established later, in the background or on the first ``take``.
    """

    PARAMETERS: ClassVar[tuple[Parameter, ...]]

    @classmethod
    def check(cls, init: Mapping[str, Any]) -> list[tuple[str, Finding]]:
        """Validate parameters whose types are correct; return (parameter name, finding) pairs."""

    @property
    def problem(self) -> str:
        """Current problem, such as a server that does not respond; "" if there is none."""

    @property
    def late(self) -> int:
        """Number of late acknowledgements: the item had already gone to another consumer."""

    def take(self, most: int, timeout: float) -> list[Taken]:
        """Return up to ``most`` items; wait up to ``timeout`` seconds for the first one.

        At most ``Context.in_flight`` items are unacknowledged at a time; at that limit the result
        is empty. The router calls this method at least once a minute, even while it has no free
        capacity. Raises ``InboundClosed``.
        """

    def ack(self, handles: Sequence[Handle]) -> None:
        """Acknowledge items that are durably dispatched or parked, in any order.

        The acknowledgement may reach the server up to one second later, at the latest by
        ``close``.
        """

    def back(self, handles: Sequence[Handle]) -> None:
        """Return items unprocessed; they are redelivered to this consumer or to another one."""

    def depth(self) -> int | None:
        """Return the number of waiting items; None if it is unknown.

        Prefetched items, which RabbitMQ delivers up to ``Context.in_flight``, are not counted.
        """

    def check_running(self, threads: int) -> list[Finding]:
        """Return warnings about ``threads`` for this source; empty if the server is unreachable."""

    def close(self) -> None:
        """Send pending acknowledgements and disconnect; other taken items are redelivered."""
