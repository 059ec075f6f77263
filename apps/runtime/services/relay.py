"""Relay that publishes outbox messages."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Length

from apps.runtime.engine.background import BackgroundWorker
from apps.runtime.errors import DATABASE_ERRORS
from apps.runtime.models import DeadLetter, OutboxMessage
from apps.runtime.queries import database_now, threads_share_database
from apps.runtime.services.broker import shared_broker
from yardkit import failpoints
from yardkit.broker import Broker, BrokerError, BrokerUnavailable, Outgoing, Unroutable
from yardkit.broker.outgoing import check
from yardkit.outage import Outage

logger = logging.getLogger(__name__)

# Timeout of the broker's confirm for a batch.
CONFIRM_SECONDS = 10.0
# A claim outlives the confirm; messages that a dead relay had claimed become due after this.
CLAIM_SECONDS = 15.0
# Most bytes of bodies in memory: a requeued dead letter may have megabytes.
BATCH_BYTES = 4 * 1024 * 1024
BATCH_MESSAGES = 500
LONGEST_BACK_OFF_SECONDS = 300.0
# About an hour of retries; then the message becomes a dead letter.
MOST_ATTEMPTS = 20
# Back-off while broker or database are unreachable.
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 15.0


def relay_outbox(
    broker: Broker, *, limit: int = BATCH_MESSAGES, now: datetime | None = None
) -> int:
    """Publish up to ``limit`` due messages, delete the confirmed ones, return their number.

    Unroutable messages are kept with the error and retried later. While the broker is unreachable
    messages stay due.

    Raises BrokerError; no message is lost.
    """
    now = now or database_now()
    if not _due(now).exists():
        # On SQLite the claim would take the single write lock even if nothing is due.
        return 0
    claimed = _claim(now, limit)
    failpoints.hit("outbox.after_claim")
    done = 0
    try:
        for batch in _batches(claimed):
            done += _publish(broker, batch, now)
    except BrokerError:
        # Skip messages refused in this round: their retry would come too early.
        untried = OutboxMessage.objects.filter(next_try_at=now + timedelta(seconds=CLAIM_SECONDS))
        untried.filter(pk__in=[pk for pk, _size in claimed]).update(next_try_at=None)
        raise
    return done


def _due(now: datetime) -> QuerySet[OutboxMessage]:
    return OutboxMessage.objects.filter(Q(next_try_at__isnull=True) | Q(next_try_at__lte=now))


@transaction.atomic
def _claim(now: datetime, limit: int) -> list[tuple[int, int]]:
    """Claim due messages, oldest first; return their ids and sizes."""
    rows = list(
        _due(now)
        .select_for_update(skip_locked=True)
        .order_by("id")
        .annotate(size=Length("body"))
        .values_list("pk", "size")[:limit]
    )
    OutboxMessage.objects.filter(pk__in=[pk for pk, _size in rows]).update(
        next_try_at=now + timedelta(seconds=CLAIM_SECONDS)
    )
    return rows


def _batches(claimed: list[tuple[int, int]]) -> Iterator[list[OutboxMessage]]:
    ids: list[int] = []
    total = 0
    for pk, size in claimed:
        if ids and total + size > BATCH_BYTES:
            yield _load(ids)
            ids, total = [], 0
        ids.append(pk)
        total += size
    if ids:
        yield _load(ids)


def _load(ids: list[int]) -> list[OutboxMessage]:
    return list(OutboxMessage.objects.filter(pk__in=ids).order_by("id"))


def _publish(broker: Broker, batch: list[OutboxMessage], now: datetime) -> int:
    """Publish a batch and update its rows; return the number of confirmed messages."""
    refused: dict[int, str] = {}
    ready: list[tuple[OutboxMessage, Outgoing]] = []
    for message in batch:
        if _seconds_left(message, now) == 0.0:
            logger.warning("message %s outlived its time in the outbox", message.message_id)
            continue
        outgoing = as_outgoing(message, now)
        try:
            check([outgoing])
        except (TypeError, ValueError) as error:
            refused[message.pk] = str(error)
        else:
            ready.append((message, outgoing))
    unwanted = _confirm(broker, [outgoing for _message, outgoing in ready])
    for message, outgoing in ready:
        if outgoing.mandatory and outgoing.key in unwanted:
            refused[message.pk] = f"no queue for {message.key!r}"
    with transaction.atomic():
        OutboxMessage.objects.filter(pk__in=[m.pk for m in batch if m.pk not in refused]).delete()
        for message in batch:
            if message.pk in refused:
                _keep_for_later(message, refused[message.pk], now)
    return len([message for message, _outgoing in ready if message.pk not in refused])


def _confirm(broker: Broker, outgoing: list[Outgoing]) -> set[str]:
    """Publish and wait for confirms; return the keys of unroutable messages."""
    if not outgoing:
        return set()
    failpoints.hit("outbox.before_publish")
    try:
        broker.publish(outgoing).result(CONFIRM_SECONDS)
    except Unroutable as error:
        return set(error.keys)
    except TimeoutError as error:
        raise BrokerUnavailable("the broker did not confirm in time") from error
    failpoints.hit("outbox.after_publish")
    return set()


def _seconds_left(message: OutboxMessage, now: datetime) -> float | None:
    if message.ttl_seconds is None:
        return None
    age = (now - message.created_at).total_seconds()
    return max(0.0, message.ttl_seconds - max(0.0, age))


def as_outgoing(message: OutboxMessage, now: datetime) -> Outgoing:
    return Outgoing(
        body=bytes(message.body),
        key=message.key,
        exchange=message.exchange,
        ttl_seconds=_seconds_left(message, now),
        priority=message.priority,
        persistent=message.persistent,
        mandatory=message.mandatory,
        message_id=message.message_id,
        headers=message.headers,
    )


def _keep_for_later(message: OutboxMessage, error: str, now: datetime) -> None:
    if message.attempts + 1 >= MOST_ATTEMPTS:
        _give_up(message, error, now)
        return
    pause = min(LONGEST_BACK_OFF_SECONDS, 2.0 ** min(message.attempts, 10))
    OutboxMessage.objects.filter(pk=message.pk).update(
        attempts=F("attempts") + 1, next_try_at=now + timedelta(seconds=pause), error=error[:500]
    )
    logger.warning(
        "message %s waits in the outbox for %.0f s: %s", message.message_id, pause, error
    )


def _give_up(message: OutboxMessage, error: str, now: datetime) -> None:
    """Move the message to the dead letters, where a person can requeue or drop it."""
    letter = DeadLetter(
        message_id=message.message_id,
        # Only a message published directly to a queue can be requeued there.
        queue="" if message.exchange else message.key,
        reason=f"not published after {message.attempts + 1} tries: {error}"[:1000],
        body=message.body,
        body_size=len(message.body),
        headers=message.headers,
        exchange=message.exchange,
        key=message.key,
        died_at=now,
        stored_at=now,
    )
    DeadLetter.objects.bulk_create([letter], ignore_conflicts=True)
    OutboxMessage.objects.filter(pk=message.pk).delete()
    logger.error("message %s is now a dead letter: %s", message.message_id, letter.reason)


def wake_relay() -> None:
    """Wake the relay thread of this process; returns at once."""
    if threads_share_database():
        _worker.wake()


def stop_relay(timeout: float) -> None:
    """Publish due messages for at most ``timeout`` seconds; later wake-ups are ignored."""
    _worker.stop(timeout)


def _relay_all() -> float | None:
    try:
        now = database_now()
        while _due(now).exists():
            # Only if messages are due: an idle web process needs no broker connection.
            if relay_outbox(shared_broker()) == 0:
                # All messages were refused, or another process has claimed them.
                return FIRST_PAUSE_SECONDS
            # Only here: nothing due may mean that another process is failing to publish.
            _outage.recovered()
    except (BrokerError, *DATABASE_ERRORS) as error:
        return _outage.failed(error)
    finally:
        connection.close()
    return None


_outage = Outage(logger, "outbox relay", first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS)
_worker = BackgroundWorker("outbox-relay", _relay_all)
# Runs before the connection closes at exit, so that a command that exits right after its commit
# still publishes; the next relay publishes the rest.
atexit.register(stop_relay, 1.0)
