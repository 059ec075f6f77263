"""What every inbound offers. All of them pass tests/routing/engine/inbounds/test_contract.py.

An inbound hands out bytes and judges none of them. It hands them out at least once: what nobody
has acknowledged comes again, after a crash too, and to another router if this one is gone. A lost
server is no exception here: ``take`` finds nothing meanwhile, ``problem`` says why, and the inbound
connects again by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

# Of an item that was taken; only the inbound that made it can read it.
Handle = object

DEFAULT_IN_FLIGHT: Final = 1000


class BadInit(ValueError):
    """The parameters under ``init`` make no inbound; the text says why and shows no secret."""


class InboundClosed(RuntimeError):
    """``close()`` was called on this inbound."""


# Not frozen: each item makes one, and that would take three times as long.
@dataclass(slots=True)
class Taken:
    """Bytes that may be an item: the caller judges."""

    raw: bytes
    handle: Handle = field(repr=False)
    # For people: topic[3]@17, queue#5, file.jsonl:1024
    where: str
    # True: it was delivered before. False: unknown, since not every server says so.
    redelivered: bool = False
    # What no other message of this inbound has, and this one has each time it comes; "" is nothing.
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is not as it should be with a running inbound, though it runs."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Context:
    """Context of an inbound beside its own parameters."""

    # The inbound's name in its rule set.
    name: str
    # Who takes: project, host and process, so that people find it in the server's lists.
    consumer: str
    # Where it may remember things; survives restarts and belongs to this project alone.
    state: Path
    # Files are read from below this folder only: rules may not read the whole host.
    files: Path
    # Most items that are handed out and neither acknowledged nor given back.
    in_flight: int = DEFAULT_IN_FLIGHT


@dataclass(frozen=True, slots=True)
class Parameter:
    """One key below ``init``."""

    name: str
    # str, int, float, bool; list is one of texts, dict one of keys and values.
    type: type
    text: str
    required: bool = False
    default: Any = None
    # Its value may hold a password, such as a URL does: never shown as it is.
    secret: bool = False


@runtime_checkable
class Inbound(Protocol):
    """One source of items. Every method may be called from any thread.

    A class is made as ``Class(context, init)`` with parameters that ``registry.check`` has found
    right; it raises ``BadInit`` for what that could not see. It connects on its own, later.
    """

    PARAMETERS: ClassVar[tuple[Parameter, ...]]

    @classmethod
    def check(cls, init: Mapping[str, Any]) -> list[tuple[str, Finding]]:
        """What is wrong with parameters of the right types: name of the parameter, and why."""

    @property
    def problem(self) -> str:
        """What is wrong now, such as a server that does not answer; "" when all is well."""

    @property
    def late(self) -> int:
        """Acks that came too late: the item had gone to another consumer meanwhile."""

    def take(self, most: int, timeout: float) -> list[Taken]:
        """Up to ``most`` items; waits up to ``timeout`` seconds for the first.

        Never more than ``Context.in_flight`` are out at once; at that limit it finds nothing. It
        is called again and again, at least once a minute, even while there is no room.
        Raises ``InboundClosed``.
        """

    def ack(self, handles: Sequence[Handle]) -> None:
        """These are durably dispatched or parked: they never come again.

        In any order. The server may hear of it up to a second later, at the latest by ``close``.
        """

    def back(self, handles: Sequence[Handle]) -> None:
        """Give these back unhandled: they come again, to this consumer or to another."""

    def depth(self) -> int | None:
        """How many items wait to be taken; None when it is unknown.

        What a server has delivered ahead, as RabbitMQ does up to ``Context.in_flight``, is not
        counted.
        """

    def check_running(self, threads: int) -> list[Finding]:
        """Why the source does not suit this many threads; empty when it does or cannot be asked."""

    def close(self) -> None:
        """Send the acks and let go; what was not acknowledged comes again."""
