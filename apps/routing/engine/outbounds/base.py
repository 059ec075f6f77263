"""What every outbound offers. All adapters pass tests/routing/engine/outbounds/test_contract.py.

An outbound promises one thing: what it reports as delivered has been confirmed by the target.
What it could not confirm is ``away`` and comes again, so a target may see a message twice, with
the same ``task_uuid``, and never misses one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

from apps.routing.engine.items import write_item
from apps.routing.engine.outbounds.parameters import Parameter
from apps.routing.engine.rules import Outbound as Rule

# An item has 1 MiB at most; wrapping, constants and built-in keys may add as much again.
MOST_BYTES: Final = 2 * 1024 * 1024
_REASON_CHARACTERS: Final = 300


class Verdict(StrEnum):
    """What became of one message."""

    DELIVERED = "delivered"
    # This message will never be taken: offering it again is of no use.
    REFUSED = "refused"
    # Not confirmed: offer it again later. It may have arrived all the same.
    AWAY = "away"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one message; ``code`` is for programs, ``reason`` for people."""

    verdict: Verdict
    code: str = ""
    reason: str = ""


DELIVERED: Final = Outcome(Verdict.DELIVERED)


def refused(code: str, reason: str) -> Outcome:
    """This message will never be taken."""
    return Outcome(Verdict.REFUSED, code, reason[:_REASON_CHARACTERS])


def away(code: str, reason: str) -> Outcome:
    """Offer it again later."""
    return Outcome(Verdict.AWAY, code, reason[:_REASON_CHARACTERS])


# Not frozen: each item makes one, and that would take three times as long.
@dataclass(slots=True)
class Sent:
    """One message: ``message`` is what its consumer gets, with the built-in keys."""

    task_uuid: str
    message: Mapping[str, Any]
    priority: int = 0
    # Real time: taken before the others where the target can do that.
    rt: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """What an outbound needs to know of the process that it works in."""

    # How the target sees us, where it shows its clients.
    client_name: str = "crawlyard router"
    # No call waits longer for a target that does not answer.
    timeout_seconds: float = 5.0
    # Networks that ``http.HttpOutbound`` may reach though they are private ("10.1.0.0/16").
    allowed_networks: tuple[str, ...] = ()
    # The id of the project whose rules these are; 0 where that is not known.
    project: int = 0


@runtime_checkable
class Outbound(Protocol):
    """Built as ``Class(rule, settings)``, which connects to nothing and so never fails for it.

    Thread-safe. Raises nothing for a target that is away, wherever it is in the life of it.
    """

    # Its own keys of ``init``; what else stands there belongs to ``rules.Outbound``.
    parameters: ClassVar[Mapping[str, Parameter]]
    # Whether an item stays open until a result comes back, unless the rule says otherwise.
    default_expects_result: ClassVar[bool]

    def __init__(self, rule: Rule, settings: Settings) -> None: ...

    def send(self, batch: Sequence[Sent]) -> list[Outcome]:
        """Deliver a batch, in its order; one outcome for each message, in the same order."""

    def depth(self) -> int | None:
        """How many messages wait for a consumer; None when that cannot be known (now).

        Asks the target, so the caller keeps the answer for a moment.
        """

    def close(self) -> None:
        """Let go of connections and threads. Afterwards everything sent is ``away``."""


@runtime_checkable
class Sociable(Protocol):
    """An outbound that can send what others have for the same server in one go with its own."""

    @property
    def server(self) -> Hashable:
        """Equal for those whose batches can be sent together."""

    def send_with(self, batches: Sequence[tuple[Outbound, Sequence[Sent]]]) -> list[list[Outcome]]:
        """``send`` for each of these outbounds, all of them of this server, in their order.

        What is the fault of one of them is the fault of no other.
        """


@dataclass(slots=True)
class Encoded:
    """A message as bytes, and where it stands in its batch."""

    place: int
    sent: Sent
    body: bytes


class Batch:
    """One call of ``send``: collects an outcome for each message.

    What cannot be sent at all is refused here; ``ready`` holds the others.
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
        """The same outcome for several; the first outcome of a message counts."""
        for message in messages:
            if self._outcomes[message.place] is None:
                self._outcomes[message.place] = outcome

    def finish(self, rest: Outcome) -> list[Outcome]:
        """All outcomes in order; ``rest`` for those that nothing was said about."""
        return [outcome or rest for outcome in self._outcomes]


def encode(message: Mapping[str, Any], most_bytes: int = MOST_BYTES) -> bytes | Outcome:
    """The message as JSON, or why it can never be sent."""
    try:
        body = write_item(message)
    except (TypeError, ValueError, RecursionError) as error:
        return refused("no_json", f"the message cannot be written as JSON: {error}")
    if len(body) > most_bytes:
        return refused("too_large", f"the message has {len(body)} bytes, {most_bytes} at most")
    return body


CLOSED: Final = away("closed", "the outbound is closed")
