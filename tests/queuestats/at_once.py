"""Several statistics processes at once; run by ``test_on_postgres``."""

from __future__ import annotations

import random
import threading

import pytest
from django.db import connection

from apps.queuestats.models import Sample, Series
from apps.queuestats.services import store_samples
from tests.access.factories import make_project
from tests.jobs.factories import NOW
from yardkit.protocol import SampleNote, Samples

AT = int(NOW.timestamp())
SENDERS, REPORTS, BIZZES = 4, 25, 6


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
    failures: list[BaseException] = []

    def consume(number: int) -> None:
        # Everybody gets everything, in an order of their own.
        mine = random.Random(number).sample(reports, len(reports))
        try:
            for start in range(0, len(mine), 9):
                assert store_samples(messages=mine[start : start + 9], now=NOW) == []
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=consume, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert Series.objects.count() == BIZZES
    for step in (1, 60, 3600):
        values = Sample.objects.filter(step=step).values_list("value", flat=True)
        assert sum(values) == SENDERS * REPORTS * BIZZES
