"""The same life of a run without Docker: a local process, on embedded stores and on servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.installation import Installation
from tests.e2e.lifecycle import SPEED, Life, is_planned_no_more

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.long("the same with containers, tests/e2e/test_lifecycle_docker.py"),
]


@pytest.fixture
def installation(stores: dict[str, str], tmp_path: Path) -> Iterator[Installation]:
    with Installation(tmp_path, stores) as installation:
        installation.start()
        yield installation


@pytest.mark.covers("S1.3", "S1.8", "S1.9", "S1.10", "S1.17", "S1.18")
def test_a_run_lives_as_a_local_process(installation: Installation) -> None:
    rest = installation.rest
    project = rest.make("/projects", name="Sites", slug="sites", allowed_networks=["127.0.0.0/8"])[
        "id"
    ]
    with CountingSite(tree(3000)) as site:
        job = rest.make(
            "/jobs",
            project=project,
            name="a site",
            spider="yardspider.spiders:SiteSpider",
            arguments={"url": site.url},
            cron="* * * * *",
            overlap="skip",
            speed=SPEED,
        )["id"]
        rest.until(installation.agents_serve, "agents")
        Life(rest, site, job).is_lived()
        is_planned_no_more(rest, job)
    assert installation.tracebacks() == {}
