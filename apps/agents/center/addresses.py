"""Hands out signed addresses of objects, so that agents and runs need no credentials of the store.

No database: the allocations of the dispatcher say which agents serve a run, and of which project.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from apps.agents.center.pending_counters import ADDRESSES_ISSUED, ADDRESSES_REFUSED
from apps.agents.center.runs import RunEntry, RunTable
from yardkit import topology
from yardkit.broker import Broker, BrokerError, Delivery, Outgoing, Subscription
from yardkit.broker.gateway import sender_of, sender_problem
from yardkit.broker.outgoing import check_name
from yardkit.errors import first_line
from yardkit.guard import settle
from yardkit.names import AGENT_ID
from yardkit.objects import ObjectStore, ObjectStoreError
from yardkit.protocol import (
    Addresses,
    AddressesWanted,
    ObjectKind,
    ProtocolError,
    SignedObject,
    decode,
    encode,
    pack_objects,
)
from yardkit.tokens import pages_project, verify_run_token

logger = logging.getLogger(__name__)

TAKE: Final = 100
# Long enough for a body of some GiB on its way, short enough for what leaks with a log.
VALID_SECONDS: Final = 900
MAX_OBJECTS: Final = 512
# Files of 8 MiB; the answer is one message.
MAX_RECORDED: Final = 8192
_ANSWER_SECONDS: Final = 30.0
_RANDOM_BYTES: Final = 12


class AddressIssuer:
    """Answers ``AddressesWanted`` in one thread.

    Args:
        open_store: returns the object store; called again after an error of it.
        count: adds to a counter of this center.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        runs: RunTable,
        secret: str,
        open_store: Callable[[], ObjectStore],
        count: Callable[[str, int], None],
    ) -> None:
        self._broker = broker
        self._runs = runs
        self._secret = secret
        self._open_store = open_store
        self._count = count
        self._subscription: Subscription | None = None

    def open(self) -> None:
        """Start consuming."""
        self._subscription = self._broker.subscribe(topology.CENTER_ADDRESSES.name, prefetch=TAKE)

    def close(self) -> None:
        """Stop consuming."""
        if self._subscription is not None:
            self._subscription.close()

    def step(self, timeout: float) -> int:
        """Answer the questions that wait; return their number."""
        assert self._subscription is not None  # noqa: S101 - open() comes first
        deliveries = self._subscription.take(TAKE, timeout=timeout)
        settle(deliveries, self._answer_all, self._reject, passing=(BrokerError,))
        return len(deliveries)

    def _answer_all(self, deliveries: Sequence[Delivery]) -> None:
        answers, answered = [], []
        refused: list[tuple[Delivery, Exception]] = []
        for delivery in deliveries:
            try:
                answers.append(self._answer(delivery))
            except (ProtocolError, ValueError) as problem:
                refused.append((delivery, problem))
            else:
                answered.append(delivery)
        if answers:
            # A lost answer is asked for again.
            self._broker.publish(answers).add_done_callback(lambda done: done.exception())
        assert self._subscription is not None  # noqa: S101 - open() comes first
        self._subscription.ack(answered)
        for delivery, error in refused:
            self._reject(delivery, error)

    def _reject(self, delivery: Delivery, error: Exception) -> None:
        self._count(ADDRESSES_REFUSED, 1)
        reason = first_line(error)
        logger.warning("refused a message of %s: %s", delivery.queue, reason)
        assert self._subscription is not None  # noqa: S101 - a delivery came from it
        self._subscription.dead_letter(delivery, reason)

    def _answer(self, delivery: Delivery) -> Outgoing:
        message = decode(delivery.body)
        if not isinstance(message, AddressesWanted):
            raise ValueError(f"{type(message).__name__} is no question for addresses")
        reply_to = self._reply_to(delivery, message)
        error, below = self._place(message)
        objects = []
        if not error:
            try:
                objects = self._signed(message, below)
            except ObjectStoreError as problem:
                error = first_line(problem)
        if error:
            self._count(ADDRESSES_REFUSED, 1)
            logger.warning("run %d: no addresses for %s: %s", message.run, message.agent, error)
        self._count(ADDRESSES_ISSUED, len(objects))
        answer = Addresses(
            run=message.run,
            kind=message.kind,
            packed=pack_objects(objects) if objects else b"",
            seconds=VALID_SECONDS,
            error=error,
        )
        return Outgoing(
            body=encode(answer),
            key=reply_to,
            ttl_seconds=_ANSWER_SECONDS,
            persistent=False,
            mandatory=False,
        )

    def _reply_to(self, delivery: Delivery, message: AddressesWanted) -> str:
        """Return the queue of the answer. Raises ``ValueError`` if the sender is not the asker."""
        if message.agent:
            if not AGENT_ID.fullmatch(message.agent):
                raise ValueError(f"{message.agent[:80]!r} is no id of an agent")
            if sender := sender_of(delivery):
                raise ValueError(f"{sender} asks for agent {message.agent}")
            return topology.agent_addresses(message.agent).name
        check_name("a queue", message.reply_to)
        problem = sender_problem(delivery, run=message.run, reply_to=message.reply_to)
        if not problem and not verify_run_token(self._secret, message.run, message.token):
            problem = f"the token is not that of run {message.run}"
        if problem:
            raise ValueError(problem)
        return message.reply_to

    def _place(self, message: AddressesWanted) -> tuple[str, str]:
        """Return (why the asker gets no addresses, "" if it does; the prefix of their keys)."""
        project = None
        if message.kind in (ObjectKind.PAGES, ObjectKind.RECORDED) and message.agent:
            project = pages_project(self._secret, message.run, message.token)
        if project is not None:
            # Pages may come when the run has ended, and by another process than wrote them.
            below = folder(ObjectKind.PAGES, project, message.run)
        elif message.kind is ObjectKind.RECORDED:
            return "the token is not that of the kept pages", ""
        else:
            entry = self._runs.use(message.run)
            if refusal := self._refusal(message, entry):
                return refusal, ""
            below = prefix(message.kind, entry)
        foreign = next((key for key in message.keys if not key.startswith(below)), None)
        return (f"{foreign[:200]!r} is not below {below}" if foreign is not None else ""), below

    def _refusal(self, message: AddressesWanted, entry: RunEntry) -> str:
        """Return why the asker gets no addresses, "" if it does."""
        if not entry.agents:
            return entry.why_nobody()
        if message.agent and message.agent not in entry.agents:
            return f"agent {message.agent} is not allocated to run {message.run}"
        return "a run writes no objects" if message.count and not message.agent else ""

    def _signed(self, message: AddressesWanted, below: str) -> list[SignedObject]:
        store = self._open_store()
        if message.kind is ObjectKind.RECORDED:
            keys = [found.key for found in islice(store.list(below), MAX_RECORDED + 1)]
            if len(keys) > MAX_RECORDED:
                raise ObjectStoreError(f"more than {MAX_RECORDED} files of pages are kept")
            return [
                SignedObject(key, get=store.sign("GET", key, VALID_SECONDS)) for key in sorted(keys)
            ]
        is_body = message.kind is ObjectKind.BODIES
        objects = []
        for _ in range(min(message.count, MAX_OBJECTS)):
            key = f"{below}{_name(message)}"
            objects.append(
                SignedObject(
                    key,
                    put=store.sign("PUT", key, VALID_SECONDS),
                    # The agent passes them on to the run.
                    get=store.sign("GET", key, VALID_SECONDS) if is_body else "",
                    delete=store.sign("DELETE", key, VALID_SECONDS) if is_body else "",
                )
            )
        for key in message.keys[:MAX_OBJECTS]:
            objects.append(
                SignedObject(
                    key,
                    get=store.sign("GET", key, VALID_SECONDS),
                    delete=store.sign("DELETE", key, VALID_SECONDS) if is_body else "",
                )
            )
        return objects


def prefix(kind: ObjectKind, entry: RunEntry) -> str:
    """Return what the keys of a run's objects of a kind begin with."""
    return folder(kind, entry.project, entry.run)


def folder(kind: ObjectKind, project: int, run: int) -> str:
    """Return the prefix of the keys of a run's objects of a kind."""
    return f"{kind}/p{project}/run-{run}/"


def _name(message: AddressesWanted) -> str:
    # Not to be guessed, and never the same twice: an object is written once.
    name = secrets.token_urlsafe(_RANDOM_BYTES)
    return f"{message.agent}-{name}.warc.gz" if message.kind is ObjectKind.PAGES else f"b{name}"
