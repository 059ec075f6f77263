"""Files of runs over REST and on their page: found, downloaded, harmless, and not others'."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from apps.access.states import Role
from apps.datasets.models import StoredFile
from apps.datasets.services import files
from apps.datasets.services.files import store_chunk
from apps.jobs.models import Run
from tests.access.factories import Api, enter, make_user
from tests.datasets.factories import NOW, make_chunks
from tests.jobs.factories import make_run
from yardkit.protocol import FileChunk

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume"),
]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(2000)


@pytest.fixture
def run() -> Run:
    return make_run()


@pytest.fixture
def api(run: Run) -> Api:
    return Api(make_user(roles={run.job.project: Role.VIEWER}))


def keep(run: Run, name: str, data: bytes, content_type: str = "image/png") -> StoredFile:
    """A file that the run has kept."""
    import msgspec

    for chunk in make_chunks(run, name, data):
        typed: FileChunk = msgspec.structs.replace(chunk, content_type=content_type)
        assert not store_chunk(chunk=typed, now=NOW)
    return StoredFile.objects.get(name=name)


def content(answer: Any) -> bytes:
    async def read() -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    assert answer.status_code == 200, answer.content
    return asyncio.run(read())


@pytest.mark.covers("DS.12")
def test_files_are_listed_in_pages_and_by_name(api: Api, run: Run) -> None:
    for number in range(3):
        keep(run, f"images/{number}.png", PNG + bytes([number]))
    first = api.get(f"runs/{run.pk}/files?limit=2").json()
    rest = api.get(f"runs/{run.pk}/files?limit=2&after={first['next']}").json()
    names = [row["name"] for row in first["results"] + rest["results"]]
    assert names == ["images/0.png", "images/1.png", "images/2.png"]
    assert rest["next"] is None
    (row,) = api.get(f"runs/{run.pk}/files?name=images/1.png").json()["results"]
    assert (row["size"], row["content_type"]) == (len(PNG) + 1, "image/png")


@pytest.mark.django_db(transaction=True)
@pytest.mark.covers("DS.12")
@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
def test_a_download_has_the_bytes_that_were_kept(api: Api, run: Run, size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    row = keep(run, "a/report.bin", data, "application/pdf")
    answer = api.get(f"runs/{run.pk}/files/{row.pk}/download")
    assert content(answer) == data
    assert answer["Content-Length"] == str(size)
    assert answer["Content-Disposition"] == 'attachment; filename="report.bin"'


@pytest.mark.covers("DS.12")
@pytest.mark.parametrize(
    ("content_type", "shown"),
    [
        ("image/png", True),
        ("image/svg+xml", False),
        ("text/html", False),
        ("application/javascript", False),
        ("", False),
    ],
)
def test_a_browser_runs_nothing_of_a_file(
    api: Api, run: Run, content_type: str, shown: bool
) -> None:
    row = keep(run, "x", b"<script>alert(1)</script>", content_type)
    answer = api.get(f"runs/{run.pk}/files/{row.pk}/download?inline=true")
    assert answer.status_code == 200
    assert answer["Content-Type"] == (content_type if shown else "application/octet-stream")
    assert answer["Content-Disposition"].startswith("inline" if shown else "attachment")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Security-Policy"].startswith("sandbox; default-src 'none'")


@pytest.mark.covers("DS.12")
@pytest.mark.parametrize("name", ['a"b; filename=evil.exe', "über/图.png", "a%0d%0aX: y"])
def test_a_name_cannot_change_the_header(api: Api, run: Run, name: str) -> None:
    row = keep(run, name, b"1")
    header = api.get(f"runs/{run.pk}/files/{row.pk}/download")["Content-Disposition"]
    assert "\n" not in header
    assert header.startswith("attachment; filename")
    assert header.count(";") - header.count("\\;") <= 1 + name.count(";")


@pytest.mark.covers("DS.12")
def test_files_of_other_projects_do_not_exist(run: Run) -> None:
    row = keep(run, "secret.png", PNG)
    other = make_run()
    stranger = make_user(roles={other.job.project: Role.ADMIN})
    api = Api(stranger)
    assert api.get(f"runs/{run.pk}/files").status_code == 404
    assert api.get(f"runs/{run.pk}/files/{row.pk}/download").status_code == 404
    # Nor through a run of one's own.
    assert api.get(f"runs/{other.pk}/files/{row.pk}/download").status_code == 404
    assert enter(stranger).get(f"/runs/{run.pk}/files").status_code == 404


@pytest.mark.covers("DS.12")
def test_an_incomplete_file_is_not_offered(
    api: Api, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 100)
    first, _second = make_chunks(run, "half", bytes(150), part_bytes=100)
    assert not store_chunk(chunk=first, now=NOW)
    assert api.get(f"runs/{run.pk}/files").json()["results"] == []
    half = StoredFile.objects.get()
    assert api.get(f"runs/{run.pk}/files/{half.pk}/download").status_code == 404


@pytest.mark.covers("DS.12")
def test_a_lost_object_is_said(api: Api, run: Run, objects: Path) -> None:
    row = keep(run, "lost.png", PNG)
    for path in objects.rglob("0"):
        path.unlink()
    answer = api.get(f"runs/{run.pk}/files/{row.pk}/download")
    assert (answer.status_code, answer.json()["code"]) == (503, "data_unavailable")


@pytest.mark.covers("DS.12")
def test_the_page_shows_images_and_escapes_names(run: Run) -> None:
    browser = enter(make_user(roles={run.job.project: Role.VIEWER}))
    empty = browser.get(f"/runs/{run.pk}/files").content.decode()
    assert "appear here" in empty
    image = keep(run, "<b>photo</b>.png", PNG)
    other = keep(run, "notes.txt", b"1", "text/plain")
    text = browser.get(f"/runs/{run.pk}/files").content.decode()
    assert "&lt;b&gt;photo&lt;/b&gt;.png" in text
    assert f'src="/api/v1/runs/{run.pk}/files/{image.pk}/download?inline=true"' in text
    assert f"/api/v1/runs/{run.pk}/files/{other.pk}/download" in text
    assert "notes.txt" not in browser.get(f"/runs/{run.pk}/files?name=photo").content.decode()
