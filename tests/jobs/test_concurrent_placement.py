"""Several runners place and claim at the same moment: no host is overfilled, no run taken twice.

It takes a database that several connections share, so the tests run themselves again on one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection

from apps.jobs.models import Run
from apps.jobs.services import claim_runs, place_runs
from apps.jobs.states import RunState
from tests.jobs.factories import NOW, make_host, make_job, make_run
from tests.postgres_rerun import WHOLE_FILES, run_again

SHARED = "CRAWLYARD_TEST_DATABASE_URL" in os.environ
PLACERS = 6
RUNS = 40


def all_together(work: Callable[[int], object]) -> None:
    """Each in a thread with a connection of its own, let go at the same moment."""
    gate = threading.Barrier(PLACERS)
    errors: list[BaseException] = []

    def one(number: int) -> None:
        try:
            gate.wait(60)
            work(number)
        except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(PLACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


if SHARED:

    @pytest.mark.django_db(transaction=True)
    def test_placers_at_once_never_overfill_a_host() -> None:
        for number in range(3):
            make_host(f"host-{number}", capacity=4)
        job = make_job()
        for _ in range(RUNS):
            make_run(job=job)
        all_together(lambda number: place_runs(now=NOW, placer=f"host-{number}"))
        assert sorted(Run.objects.exclude(host="").values_list("host", flat=True)) == [
            *["host-0"] * 4,
            *["host-1"] * 4,
            *["host-2"] * 4,
        ]
        assert not Run.objects.filter(host="", placed_at__isnull=False).exists()

    @pytest.mark.django_db(transaction=True)
    def test_a_claim_and_a_take_back_at_once_end_in_one_place() -> None:
        make_host("slow", capacity=RUNS)
        job = make_job()
        for _ in range(RUNS):
            make_run(job=job)
        assert place_runs(now=NOW) == RUNS
        make_host("other", capacity=RUNS, beat_at=NOW + timedelta(seconds=20))
        later = NOW + timedelta(seconds=20)
        claimed: list[int] = []

        def work(number: int) -> None:
            # The silent one has only been slow, and wakes while the others give its runs away.
            host = "slow" if number % 2 else "other"
            for _ in range(3):
                if host == "other":
                    place_runs(now=later)
                claimed.extend(run.pk for run in claim_runs(host=host, limit=7, now=later))

        all_together(work)
        assert len(claimed) == len(set(claimed))
        for run in Run.objects.filter(state=RunState.STARTING):
            assert run.pk in claimed
            assert run.host in ("slow", "other")
            assert run.moves.filter(to_state=RunState.STARTING).count() == 1
            assert run.moves.get(to_state=RunState.STARTING).actor == run.host

else:

    @pytest.mark.slow("10 s")
    @pytest.mark.services
    @pytest.mark.timeout(300)
    def test_so_it_is_on_postgresql(postgres_database: str) -> None:
        assert "2 passed" in run_again([Path(__file__)], postgres_database)

    @WHOLE_FILES
    @pytest.mark.services
    @pytest.mark.timeout(300)
    def test_runs_are_placed_on_postgresql_too(postgres_database: str) -> None:
        folder = Path(__file__).parent
        run_again([folder / "test_placement.py", folder / "test_services.py"], postgres_database)

    @pytest.mark.slow("20 s")
    def test_so_it_is_in_a_file(tmp_path: Path) -> None:
        database = f"sqlite:///{tmp_path / 'shared.sqlite3'}"
        assert "2 passed" in run_again([Path(__file__)], database)
