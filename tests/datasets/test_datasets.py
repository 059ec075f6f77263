"""Datasets of jobs, request groups and sources: found, or created with the first item."""

from __future__ import annotations

import pytest

from apps.datasets.models import NAME_CHARACTERS, Dataset
from apps.datasets.services.datasets import UnknownProducer, dataset_of_job, destination
from apps.jobs.models import Job
from tests.access.factories import make_superuser
from tests.jobs.factories import make_job, make_run

pytestmark = pytest.mark.django_db


@pytest.mark.covers("DS.1", "DS.3")
def test_runs_share_the_dataset_of_their_job() -> None:
    job = make_job(name="shop")
    first, second = make_run(job=job), make_run(job=job)
    one, other = destination(f"run:{first.pk}"), destination(f"run:{second.pk}")
    assert one.dataset_id == other.dataset_id
    assert (one.run_number, other.run_number) == (first.pk, second.pk)
    dataset = Dataset.objects.get()
    assert (dataset.name, dataset.project, dataset.origin) == ("shop", job.project, "job")


def test_a_dataset_keeps_its_name_when_the_job_is_renamed() -> None:
    job = make_job(name="shop")
    dataset = dataset_of_job(job)
    Job.objects.update(name="store")
    job.refresh_from_db()
    assert dataset_of_job(job) == dataset
    assert Dataset.objects.get().name == "shop"


@pytest.mark.covers("DS.3")
def test_names_are_unique_in_a_project() -> None:
    job = make_job(name="news")
    other = make_job(name="news")
    producers = [f"biz:{job.project_id}/news", f"source:{job.project_id}/news"]
    ids = {destination(producer).dataset_id for producer in producers * 2}
    ids |= {dataset_of_job(job).pk, dataset_of_job(other).pk}
    rows = Dataset.objects.order_by("id").values_list("project", "name", "origin", "origin_name")
    assert list(rows) == [
        (job.project_id, "news", "biz", "news"),
        (job.project_id, "news-2", "source", "news"),
        (job.project_id, "news-3", "job", ""),
        (other.project_id, "news", "job", ""),
    ]
    assert len(ids) == 4


def test_long_names_are_cut_and_stay_unique() -> None:
    name = "n" * 90
    project = make_job().project_id
    for kind in ("biz", "source"):
        destination(f"{kind}:{project}/{name}")
    assert set(Dataset.objects.values_list("name", flat=True)) == {name, f"{name}-2"}
    assert len(name) < NAME_CHARACTERS


def test_the_dataset_of_another_writer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two look at once, and both see none."""
    job = make_job(name="shop")
    create = Dataset.objects.create
    others = [create]

    def slow(**fields: object) -> Dataset:
        while others:
            others.pop()(**fields)
        return create(**fields)

    monkeypatch.setattr(Dataset.objects, "create", slow)
    assert dataset_of_job(job) == Dataset.objects.get()


@pytest.mark.parametrize(
    "producer", ["", "run", "run:", "run:0", "run:-1", "run:07", "run:１", "biz:1/", "job:1", "biz"]
)
def test_other_producers_are_unknown(producer: str) -> None:
    with pytest.raises(UnknownProducer):
        destination(producer)


def test_requests_and_pages_of_a_job_have_datasets_that_no_list_shows() -> None:
    run = make_run(job=make_job(name="shop"))
    kinds = ["run", "requests", "pages"]
    places = {kind: destination(f"{kind}:{run.pk}") for kind in kinds}
    assert places == {kind: destination(f"{kind}:{run.pk}") for kind in kinds}
    assert len({place.dataset_id for place in places.values()}) == 3
    assert {place.run_number for place in places.values()} == {run.pk}
    rows = Dataset.objects.order_by("id").values_list("kind", "name", "origin_id")
    assert list(rows) == [(kind, "shop", run.job_id) for kind in ("items", "requests", "pages")]
    seen = Dataset.objects.visible_to(make_superuser())
    assert [dataset.kind for dataset in seen] == ["items"]
