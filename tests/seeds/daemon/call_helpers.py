"""Short ways to say what tests of the service say often."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from django.conf import settings

from apps.seeds.models import Frontier
from yardkit import topology
from yardkit.broker import Broker, Outgoing
from yardkit.protocol import (
    AnyMessage,
    Seed,
    SeedFinish,
    SeedOutcome,
    SeedsLeased,
    SeedsRefused,
    decode,
    encode,
)
from yardkit.tokens import frontier_scope, sign_scope

PATIENCE_SECONDS = 60.0


def seeds(*names: str, **others: Any) -> list[Seed]:
    """Several alike."""
    return [Seed(name, **others) for name in names]


def keys(lease: SeedsLeased) -> list[str]:
    """In the order to crawl them."""
    return [one.key for one in lease.seeds]


def ended(
    lease: SeedsLeased, outcome: SeedOutcome = SeedOutcome.SUCCESS, **others: Any
) -> list[SeedFinish]:
    """All seeds of a lease."""
    return [
        SeedFinish(one.segment, one.key, lease.generation, outcome, **others) for one in lease.seeds
    ]


def token(frontier: Frontier | int) -> str:
    """A spider's."""
    number = frontier if isinstance(frontier, int) else frontier.pk
    return sign_scope(settings.SECRET_KEY, frontier_scope(number))


def ask(broker: Broker, call: AnyMessage | bytes, timeout: float = PATIENCE_SECONDS) -> Any:
    """The answer to a message as it is."""
    body = call if isinstance(call, bytes) else encode(call)
    question = Outgoing(body, key=topology.SEEDS.name, persistent=False)
    return decode(broker.request(question, timeout).body)


def refused(answer: Any) -> str:
    """The code of a refusal."""
    assert isinstance(answer, SeedsRefused), answer
    return answer.code


class Later:
    """A call in a thread, whose answer is awaited later."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._answer: list[Any] = []
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(work,))
        self._thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self._answer.append(work())
        except BaseException as error:  # noqa: BLE001 - raised where the answer is wanted
            self._failed.append(error)

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()

    def answer(self) -> Any:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "there was no answer"
        if self._failed:
            raise self._failed[0]
        return self._answer[0]


def until(happened: Callable[[], object], what: str) -> None:
    """Wait for it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)
