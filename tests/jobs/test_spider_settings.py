"""What a job changes of its spider's settings means to the spider what it means to the job."""

from __future__ import annotations

import pytest

from tests.jobs.factories import make_job
from yardspider import SpiderSettings

pytestmark = pytest.mark.django_db


@pytest.mark.covers("S1.50")
@pytest.mark.parametrize(("fed", "patience"), [(True, 30.0), (False, 0.0)])
def test_a_job_that_is_fed_from_outside_ends_by_being_empty(fed: bool, patience: float) -> None:
    job = make_job(fed_from_outside=fed, speed=0.5, concurrency=7)
    settings = SpiderSettings().changed(job.spider_settings(), origin="CRAWLYARD_SETTINGS")
    assert (settings.fed_from_outside, settings.patience_seconds) == (fed, patience)
    assert (settings.speed, settings.concurrency) == (0.5, 7)


def test_what_a_job_leaves_open_is_the_spiders_own() -> None:
    own = SpiderSettings(
        speed=2,
        concurrency=7,
        fed_from_outside=True,
        empty_seconds=90,
        download_retries=2,
        no_answer_seconds=7,
        publish_retries=9,
    )
    settings = own.changed(make_job().spider_settings(), origin="CRAWLYARD_SETTINGS")
    assert (settings.speed, settings.concurrency) == (2, 7)
    assert (settings.patience_seconds, settings.download_retries) == (90.0, 2)
    assert (settings.no_answer_seconds, settings.publish_retries) == (7.0, 9)
