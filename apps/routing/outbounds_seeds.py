"""``seeds.SeedOutbound``: add an item as a seed to a frontier (URL queue) of its project.

An item counts as delivered when the seed service has the seed, whether it is new or a duplicate; a
step of the item says which. The router waits for no result unless the rule says so (see
docs/outbounds.md).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from django.db import connection
from django.db.models import Max, Sum
from django.utils import timezone

from apps.routing.engine.messages import TASK_PARAMS
from apps.routing.engine.outbounds.base import (
    CLOSED,
    DELIVERED,
    Batch,
    Encoded,
    Outcome,
    SendStatus,
    Sent,
    Settings,
    away,
    refused,
)
from apps.routing.engine.outbounds.parameters import Parameter, name_of, read
from apps.routing.engine.rules import Outbound as Rule
from apps.runtime.errors import DATABASE_ERRORS
from yardkit.broker.base import BrokerError
from yardkit.protocol import Seed, SeedAnswer
from yardkit.protocol.seeds import GRAB
from yardkit.seeds import CallRefused, SeedClient, SeedServiceAway, batches

NAME: Final = "seeds.SeedOutbound"
_DATABASE_AWAY: Final = away("database_away", "the database cannot be reached")
# Batches remembered for ``depth``: those since the last report of the seed service.
_MOST_NOTES: Final = 1000


def _check_names(names: Sequence[Any]) -> str:
    if not all(isinstance(name, str) and name for name in names):
        return "the keys of the message must be texts"
    if GRAB in names:
        return f"the key {GRAB} is reserved for the seed service"
    return ""


class SeedOutbound:
    """Outbound that adds seeds; see ``engine.outbounds.base.Outbound``.

    Needs ``Settings.project``.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "frontier": Parameter(str, required=True, check=name_of("the name of a frontier", 100)),
        # Names of keys of the message.
        "data": Parameter(str, default="url", check=name_of("a key of the message", 800)),
        "active_at": Parameter(str, check=name_of("a key of the message", 800)),
        "ext": Parameter(list, default=(), check=_check_names),
        # None: real-time items are urgent.
        "urgent": Parameter(bool),
    }
    default_expects_result: ClassVar[bool] = False

    def __init__(self, rule: Rule, settings: Settings) -> None:
        """Raise ``ValueError`` for parameters that ``registry.check`` reports."""
        values = read(rule.init, self.parameters)
        self._wrapped = rule.task_params_wrapped
        self._frontier: str = values["frontier"]
        self._data: str = values["data"]
        self._active_at: str | None = values["active_at"]
        self._ext: Sequence[str] = values["ext"]
        self._urgent: bool | None = values["urgent"]
        self._project = settings.project
        self._timeout_seconds = settings.timeout_seconds
        self._is_closed = False
        # (time, number of new seeds) of recent batches, because reports are some seconds old.
        self._added: deque[tuple[datetime, int]] = deque(maxlen=_MOST_NOTES)
        self._lock = threading.Lock()

    def send(self, batch: Sequence[Sent]) -> list[Outcome]:
        if self._is_closed:
            return [CLOSED] * len(batch)
        work = Batch(batch)
        if not self._project:
            text = "outbound built without a project: its frontier cannot be looked up"
            return work.finish(away("no_project", text))
        ready = list(self._seeds(work))
        client = self._client() if ready else DELIVERED
        if isinstance(client, Outcome):
            return work.finish(client)
        return work.finish(self._add(client, work, ready))

    def depth(self) -> int | None:
        """Return the number of pending seeds, including those that are not due yet."""
        if self._is_closed:
            return None
        # Imported here: every process loads this module at start, and few send to this outbound.
        from apps.seeds.models import SegmentReport

        reports = SegmentReport.objects.filter(
            frontier__project=self._project, frontier__name=self._frontier
        )
        try:
            totals = reports.aggregate(pending=Sum("pending"), at=Max("reported_at"))
        except DATABASE_ERRORS:
            connection.close_if_unusable_or_obsolete()
            return None
        at = totals["at"]
        with self._lock:
            since = sum(count for when, count in self._added if at is None or when > at)
        return int(totals["pending"] or 0) + since

    def close(self) -> None:
        """Refuse further batches; the connections belong to the process and stay open."""
        self._is_closed = True

    # --- seed service -----------------------------------------------------------------------------

    def _client(self) -> SeedClient | Outcome:
        from apps.seeds.models import Frontier
        from apps.seeds.services import client_of

        try:
            frontier = Frontier.objects.filter(project=self._project, name=self._frontier).first()
        except DATABASE_ERRORS:
            # Otherwise the thread would reuse the broken connection.
            connection.close_if_unusable_or_obsolete()
            return _DATABASE_AWAY
        if frontier is None:
            return refused("unknown_frontier", f"the project has no frontier {self._frontier}")
        if frontier.is_frozen:
            return away("frozen", "the seeds of the frontier are being moved")
        try:
            return client_of(frontier, timeout=self._timeout_seconds)
        except BrokerError as error:
            return away("connection", f"the broker does not answer: {error}")

    def _add(
        self, client: SeedClient, work: Batch, ready: Sequence[tuple[Encoded, Seed]]
    ) -> Outcome:
        """Add seeds; return the outcome for messages without an answer of the service."""
        done = 0
        for seeds in batches(seed for _, seed in ready):
            try:
                answers = client.add(seeds)
            except SeedServiceAway as error:
                return away("timeout", str(error))
            except BrokerError as error:
                return away("connection", f"the broker does not answer: {error}")
            except CallRefused as error:
                # The error concerns the service or the installation, not the item: park it.
                return away(error.code, f"the seed service rejected the call: {error}")
            batch = ready[done : done + len(seeds)]
            done += len(seeds)
            for (message, _), answer in zip(batch, answers, strict=False):
                work.settle([message], _outcome(answer))
            new = sum(answer.code == "new" for answer in answers)
            with self._lock:
                self._added.append((timezone.now(), new))
        return away("answer", "the seed service did not answer for this seed")

    # --- from messages to seeds -------------------------------------------------------------------

    def _seeds(self, work: Batch) -> Iterator[tuple[Encoded, Seed]]:
        for message in work.ready:
            seed = self._seed(message.sent)
            if isinstance(seed, Outcome):
                work.settle([message], seed)
            else:
                yield message, seed

    def _seed(self, sent: Sent) -> Seed | Outcome:
        payload = sent.message[TASK_PARAMS] if self._wrapped else sent.message
        data = payload.get(self._data)
        if not isinstance(data, str):
            return refused("no_data", f"the message has no text under the key {self._data}")
        active_at = None if self._active_at is None else payload.get(self._active_at)
        try:
            at = None if active_at is None else _milliseconds(active_at)
        except ValueError:
            text = f"{self._active_at} is neither milliseconds since 1970 nor a time with its zone"
            return refused("bad_time", text)
        urgent = sent.rt if self._urgent is None else self._urgent
        ext = {key: payload[key] for key in self._ext if key in payload}
        return Seed(data, at, ext=ext or None, urgent=urgent and at is None)


def _milliseconds(value: object) -> int:
    """Convert a number or an ISO time with zone to milliseconds since 1970, or raise ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise ValueError("no time")
    at = datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError("no time zone")
    return round(at.timestamp() * 1000)


def _outcome(answer: SeedAnswer) -> Outcome:
    if answer.code == "new":
        return DELIVERED
    if answer.code != "duplicate":
        return refused(answer.code, f"{answer.code}: {answer.text}")
    since = datetime.fromtimestamp(answer.since / 1000, UTC).isoformat(timespec="seconds")
    return Outcome(SendStatus.DELIVERED, "duplicate", f"since {since}, {answer.state.name.lower()}")
