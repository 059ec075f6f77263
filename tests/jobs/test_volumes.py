"""Folders of a host for containers: for all runs, for a project's, for a job's (seed S1.13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from docker import APIClient

from apps.jobs.daemon.specs import spec_of
from apps.jobs.models import Job
from apps.jobs.runners.containers import container_options
from apps.jobs.states import RunState
from crawlyard.settings.volumes import run_volumes
from tests.access.factories import make_project
from tests.jobs.factories import make_job, make_run
from yardkit.env import EnvError

TEXT = "/srv/models:/models:ro shop=/srv/shop:/shop/ shop/a%20b=/srv/ab:/ab other=/srv/o:/o"


def mounts_of(job: Job, folder: Path) -> list[tuple[str, str, bool]]:
    """(of the host, inside, read only) of each folder besides the run's own, as the engine is
    told: this client makes options and asks nobody.
    """
    run = make_run(job=job, state=RunState.STARTING, image_digest="sha256:" + "1" * 64)
    options = container_options(
        APIClient(version="1.41"),
        spec_of(run, folder),
        image="i",
        network="none",
        labels={},
        has_init=True,
    )
    own, *others = options["host_config"]["Mounts"]
    assert own["Target"] == "/crawlyard"
    return [(each["Source"], each["Target"], each["ReadOnly"]) for each in others]


@pytest.mark.django_db
@pytest.mark.covers("S1.13")
def test_each_run_gets_those_of_all_of_its_project_and_of_its_job(
    tmp_path: Path, settings: Any
) -> None:
    settings.RUN_VOLUMES = run_volumes(TEXT)
    shop, plain = make_project(slug="shop"), make_project()
    everybody = ("/srv/models", "/models", True)
    assert mounts_of(make_job(project=plain, name="a b"), tmp_path) == [everybody]
    of_shop = [everybody, ("/srv/shop", "/shop", False)]
    assert mounts_of(make_job(project=shop, name="other"), tmp_path) == of_shop
    of_job = [*of_shop, ("/srv/ab", "/ab", False)]
    assert mounts_of(make_job(project=shop, name="a b"), tmp_path) == of_job


@pytest.mark.parametrize(
    "text",
    [
        "srv:/models", "/srv:models", "/srv", "/srv:/", "/srv:/a:rw", "/srv/..:/a", "/a:/b/../c",
        "=/srv:/a", "a/=/srv:/a", "/srv:/crawlyard", "/srv:/crawlyard/x", "/srv:/tmp",
    ],
)  # fmt: skip
def test_what_is_no_volume_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(EnvError, match=r"RUN_VOLUMES: entry 2"):
        run_volumes(f"/srv/good:/good {text}")
    assert run_volumes("") == ()
