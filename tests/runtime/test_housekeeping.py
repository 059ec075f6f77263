"""What is past its time goes, what is not stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from apps.runtime.models import Daemon, DeadLetter, IdempotencyKey, OutboxMessage, ProcessedMessage
from apps.runtime.services import Pruned, prune
from apps.runtime.services.housekeeping import CHUNK
from apps.runtime.states import DaemonState, DeadLetterState

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def days(number: float) -> datetime:
    return NOW - timedelta(days=number)


def test_each_kind_has_its_own_time() -> None:
    for age in (6.9, 7.1):
        ProcessedMessage.objects.create(consumer="c", message_id=str(age), at=days(age))
        Daemon.objects.create(
            kind="k",
            name=str(age),
            host="h",
            pid=1,
            boot="b",
            state=DaemonState.STOPPED,
            beat_at=days(age),
        )
    for age in (0.9, 1.1):
        IdempotencyKey.objects.create(
            user_id=1, key=str(age), method="POST", path="/", created_at=days(age)
        )
    for age in (29, 31):
        for state in (DeadLetterState.DROPPED, DeadLetterState.REQUEUED):
            DeadLetter.objects.create(
                message_id=f"{state}{age}",
                body=b"",
                body_size=0,
                died_at=days(age),
                state=state,
                resolved_at=days(age),
            )
    DeadLetter.objects.create(message_id="waits", body=b"", body_size=0, died_at=days(365))
    OutboxMessage.objects.create(message_id="waits", key="q", body=b"", created_at=days(365))

    pruned = prune(now=NOW)

    assert pruned == Pruned(processed=1, idempotency_keys=1, daemons=1, dead_letters=2)
    assert pruned.total == 5
    assert prune(now=NOW).total == 0
    assert ProcessedMessage.objects.get().message_id == "6.9"
    assert Daemon.objects.get().name == "6.9"
    assert IdempotencyKey.objects.get().key == "0.9"
    assert sorted(DeadLetter.objects.values_list("message_id", flat=True)) == [
        "dropped29",
        "requeued29",
        "waits",
    ]
    assert OutboxMessage.objects.count() == 1, "an unsent message never grows too old"


def test_a_large_backlog_goes_in_parts() -> None:
    ProcessedMessage.objects.bulk_create(
        ProcessedMessage(consumer="c", message_id=str(number), at=days(8))
        for number in range(2 * CHUNK + 1)
    )
    assert prune(now=NOW).processed == 2 * CHUNK + 1
