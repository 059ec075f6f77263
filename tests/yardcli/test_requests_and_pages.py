"""Requests and kept pages of runs on the command line."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from apps.jobs.models import Run
from apps.projects.models import Project
from tests.datasets.conftest import catalog as catalog
from tests.datasets.conftest import objects as objects
from tests.datasets.kept import keep, page_of
from tests.datasets.requests import make_failure, make_request, store_requests
from tests.jobs.factories import make_job, make_run
from tests.yardcli.conftest import Crawlyard

pytestmark = [
    pytest.mark.slow("2 s"),
    # As an ASGI server reads them; the web process of these tests is none.
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume"),
]


@pytest.fixture
def run(project: Project) -> Run:
    """Three successes and two failures of one cause."""
    run = make_run(job=make_job(project=project, name="shop"), state="exited")
    rows = [make_request(number) for number in (1, 2, 3)]
    store_requests(run, [*rows, make_failure(4), make_failure(5)])
    return run


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.covers("OB.3", "OB.4")
def test_requests_are_downloaded_grouped_and_made_again(
    entered: Crawlyard, run: Run, tmp_path: Path
) -> None:
    assert [row["id"] for row in lines(entered("requests", "get", run.pk).out)] == [1, 2, 3, 4, 5]
    failed = entered("requests", "get", run.pk, "--filter", "outcome:equals:failed")
    assert [row["id"] for row in lines(failed.out)] == [4, 5]
    assert "s3cret" not in failed.out
    some = entered("requests", "get", run.pk, "--sort", "-elapsed_ms", "--limit", 2)
    assert [row["id"] for row in lines(some.out)] == [5, 4]
    file = tmp_path / "requests.csv"
    assert entered("requests", "get", run.pk, "-f", "csv", "--to", file).code == 0
    with file.open(newline="") as opened:
        assert [row["id"] for row in csv.DictReader(opened)] == ["1", "2", "3", "4", "5"]
    assert entered("requests", "get", run.pk, "-f", "csv", "--limit", 2).code == 2
    (group,) = json.loads(entered("requests", "failures", run.pk, "-o", "json").out)
    assert (group["count"], "no price" in group["traceback"]) == (2, True)
    assert "no price" in entered("requests", "failures", run.pk).out
    counts = json.loads(entered("requests", "stats", run.pk, "-o", "json").out)
    assert (counts["ended"], counts["stored"], counts["filtered"]) == (5, 5, 0)
    again = json.loads(
        entered("requests", "retry", run.pk, "--group", group["group"], "-o", "json").out
    )
    assert again["requests"] == 2
    assert Run.objects.get(pk=again["run"]).requests_of == run
    assert "requests" in entered("requests", "retry", run.pk, "--filter", "id:equals:4").out
    assert entered("requests", "retry", run.pk, "--filter", "id:equals:1").code == 6
    assert entered("requests", "get", 10**9).code == 4


@pytest.mark.covers("OB.2")
def test_pages_are_listed_counted_and_downloaded(
    entered: Crawlyard, run: Run, tmp_path: Path
) -> None:
    url = "https://shop.example/p/{}"
    statuses = {4: 200, 5: 404}
    pages = [page_of("<p>", url=url.format(n), number=n, status=s) for n, s in statuses.items()]
    keep(run, pages, tmp_path)
    listed = entered("pages", "list", run.pk, "--filter", "status:at_least:400", "-o", "json")
    assert [row["url"] for row in json.loads(listed.out)] == [url.format(5)]
    assert url.format(4) in entered("pages", "list", run.pk).out
    counts = json.loads(entered("pages", "stats", run.pk, "-o", "json").out)
    assert (counts["chosen"], counts["kept"], counts["not_kept"]) == (2, 2, 0)
    assert "kept" in entered("pages", "stats", run.pk).out
    file = tmp_path / "run.warc.gz"
    assert entered("pages", "get", run.pk, "--to", file).code == 0
    assert gzip.decompress(file.read_bytes()).count(b"WARC-Type: response") == 2
    assert entered("pages", "list", 10**9).code == 4
