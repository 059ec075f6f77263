"""Several statistics processes at once; run by ``test_on_postgres``."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import pytest
from django.db import connection

from apps.queuestats.models import Sample, Series
from apps.queuestats.services import store_samples
from tests.access.factories import make_project
from tests.jobs.factories import NOW
from yardkit.protocol import SampleNote, Samples

AT = int(NOW.timestamp())
SENDERS, REPORTS, BIZZES = 4, 25, 6
# Rounds with senders that nobody knows yet: locks of known and of new rows meet in these.
ROUNDS = 15


@pytest.mark.django_db(transaction=True)
def test_each_report_is_added_once_by_whoever_gets_it() -> None:
    project = make_project()
    reports = [
        Samples(
            sender=f"f{sender}",
            boot=f"b{sender}",
            seq=seq,
            sent_at=AT,
            samples=[
                SampleNote(AT - seq, 1, "requests.created", project.pk, f"z{biz}", 1.0)
                for biz in range(BIZZES)
            ],
        )
        for sender in range(SENDERS)
        for seq in range(1, REPORTS + 1)
    ]
    _store_at_once(reports)
    assert Series.objects.count() == BIZZES
    for step in (1, 60, 3600):
        values = Sample.objects.filter(step=step).values_list("value", flat=True)
        assert sum(values) == SENDERS * REPORTS * BIZZES


@pytest.mark.django_db(transaction=True)
def test_writers_that_meet_first_reports_do_not_block_each_other() -> None:
    for number in range(ROUNDS):
        reports = [
            Samples(
                sender=f"f{number}",
                boot=f"{number}.{sender}",
                seq=1,
                sent_at=AT,
                samples=[SampleNote(AT, 1, "requests.created", 0, f"z{number}", 1.0)],
            )
            for sender in range(40)
        ]
        _store_at_once(reports)
    with connection.cursor() as cursor:
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        assert cursor.fetchone() == (0,)


def _store_at_once(reports: Sequence[Samples]) -> None:
    """Every one of three writers gets every report, in an order of its own."""
    failures: list[BaseException] = []

    def consume(number: int) -> None:
        mine = random.Random(number).sample(reports, len(reports))
        try:
            for start in range(0, len(mine), 9):
                assert store_samples(messages=mine[start : start + 9], now=NOW) == []
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=consume, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
