"""Interface of outbounds, tested for each class by tests/routing/engine/outbounds/test_contract.py.

A message is reported as delivered only after the target has confirmed it. An unconfirmed message is
reported as ``away`` and sent again. Delivery is thus at least once: a target may receive a message
twice, with the same ``task_uuid``, but loses none.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

from apps.routing.engine.items import write_item
from apps.routing.engine.outbounds.parameters import Parameter
from apps.routing.engine.rules import Outbound as Rule

# Limit of a message: an item of at most 1 MiB, plus wrapping, constants and built-in keys.
MOST_BYTES: Final = 2 * 1024 * 1024
_REASON_CHARACTERS: Final = 300


class SendStatus(StrEnum):
    """Result of sending one message."""

    DELIVERED = "delivered"
    # Permanently rejected: do not send it again.
    REFUSED = "refused"
    # Not confirmed: send it again later. The target may have received it.
    AWAY = "away"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of sending one message; ``code`` is machine-readable, ``reason`` is for people."""

    verdict: SendStatus
    code: str = ""
    reason: str = ""


DELIVERED: Final = Outcome(SendStatus.DELIVERED)


def refused(code: str, reason: str) -> Outcome:
    """Return the outcome of a message that the target will never accept."""
    return Outcome(SendStatus.REFUSED, code, reason[:_REASON_CHARACTERS])


def away(code: str, reason: str) -> Outcome:
    """Return the outcome of a message that is to be sent again later."""
    return Outcome(SendStatus.AWAY, code, reason[:_REASON_CHARACTERS])


# Not frozen: one is created for each item, and creating a frozen one takes three times as long.
@dataclass(slots=True)
class Sent:
    """Message to send; ``message`` is its complete content, including the built-in keys."""

    task_uuid: str
    message: Mapping[str, Any]
    priority: int = 0
    # Real-time: consumed before other messages if the target supports it.
    rt: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Process-wide settings of outbounds, in addition to their rule."""

    # Client name that the target shows in its client list.
    client_name: str = "crawlyard router"
    # Maximum duration of a call to a target that does not respond.
    timeout_seconds: float = 5.0
    # Private networks that ``http.HttpOutbound`` may connect to, such as "10.1.0.0/16".
    allowed_networks: tuple[str, ...] = ()
    # Id of the project that the rules belong to; 0 if unknown.
    project: int = 0


@runtime_checkable
class Outbound(Protocol):
    """Destination of items. Thread-safe.

    Instances are created by ``Class(rule, settings)``; the constructor does not connect. No method
    raises an exception because the target is unreachable.
    """

    # Keys of ``init`` that the class defines; other keys belong to ``rules.Outbound``.
    parameters: ClassVar[Mapping[str, Parameter]]
    # Default of ``rules.Outbound.expects_result``: whether items stay open until a result arrives.
    default_expects_result: ClassVar[bool]

    def __init__(self, rule: Rule, settings: Settings) -> None: ...

    def send(self, batch: Sequence[Sent]) -> list[Outcome]:
        """Send a batch in order; return one outcome for each message, in the same order."""

    def depth(self) -> int | None:
        """Return the number of messages that wait for a consumer; None if it is unknown.

        Each call queries the target, so callers cache the result.
        """

    def close(self) -> None:
        """Close connections and threads. Messages sent afterwards are reported as ``away``."""


@runtime_checkable
class BatchingOutbound(Protocol):
    """Outbound that can send the batches of several outbounds of one server in one call."""

    @property
    def server(self) -> Hashable:
        """Key that is equal for outbounds whose batches can be sent together."""

    def send_with(self, batches: Sequence[tuple[Outbound, Sequence[Sent]]]) -> list[list[Outcome]]:
        """Send the batches of several outbounds with an equal ``server``, in order.

        Returns the outcomes of each batch. An error of one outbound does not affect the others.
        """


@dataclass(slots=True)
class Encoded:
    """Encoded message, and its index in the batch."""

    place: int
    sent: Sent
    body: bytes


class Batch:
    """Collector of the outcomes of one ``send`` call.

    Messages that cannot be encoded or are too large are refused at once; ``ready`` has the others.
    """

    def __init__(self, batch: Sequence[Sent], most_bytes: int = MOST_BYTES) -> None:
        self._outcomes: list[Outcome | None] = [None] * len(batch)
        self.ready: list[Encoded] = []
        for place, sent in enumerate(batch):
            body = encode(sent.message, most_bytes)
            if isinstance(body, Outcome):
                self._outcomes[place] = body
            else:
                self.ready.append(Encoded(place, sent, body))

    def settle(self, messages: Sequence[Encoded], outcome: Outcome) -> None:
        """Set the outcome of several messages; a message that has one keeps it."""
        for message in messages:
            if self._outcomes[message.place] is None:
                self._outcomes[message.place] = outcome

    def finish(self, rest: Outcome) -> list[Outcome]:
        """Return all outcomes in order; messages without an outcome get ``rest``."""
        return [outcome or rest for outcome in self._outcomes]


def encode(message: Mapping[str, Any], most_bytes: int = MOST_BYTES) -> bytes | Outcome:
    """Encode a message as JSON, or return the outcome that refuses it."""
    try:
        body = write_item(message)
    except (TypeError, ValueError, RecursionError) as error:
        return refused("no_json", f"the message cannot be written as JSON: {error}")
    if len(body) > most_bytes:
        return refused("too_large", f"the message has {len(body)} bytes, {most_bytes} at most")
    return body


CLOSED: Final = away("closed", "the outbound is closed")
