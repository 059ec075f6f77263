"""A field that a body may not have is refused by its name, not passed over."""

from __future__ import annotations

from typing import Any

import pytest

from tests.access.factories import Api, make_superuser
from tests.jobs.factories import NOW, make_host, make_job, make_run
from tests.projects.factories import make_git_project

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("projects/{project}/tags/preview", {"tga": "prod/news/1.0"}),
        ("builds", {"tag": "prod/news/1.0", "cache": False}),
        ("jobs", {"project": 1, "name": "a", "sped": 2}),
        ("jobs/{job}/start", {"argument": {}}),
        ("jobs/{job}/clone", {"nmae": "b"}),
        ("jobs/schedule/preview", {"corn": "* * * * *"}),
        ("runs/{run}/tune", {"speed": 1, "window": 7}),
        ("job-links", {"job": 1, "before": 2}),
    ],
)
def test_an_unknown_field_is_named(address: str, body: dict[str, Any]) -> None:
    job = make_job()
    make_host("host-1", beat_at=NOW)
    run = make_run(job=job, state="running")
    address = address.format(project=make_git_project().pk, job=job.pk, run=run.pk)
    refused = Api(make_superuser()).post(address, body)
    assert refused.status_code == 400, refused.content
    unknown = list(body)[-1]
    assert refused.json()["fields"][unknown] == ["There is no such field."]
