"""Kept pages to test with: real WARC files in the object store, and their index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings

from apps.agents.downloader.kept.spool import PageSpool
from apps.agents.downloader.kept.warc import PageDownload
from apps.datasets.services.ingestion import store_items
from apps.jobs.models import Run
from apps.runtime.services.objects import shared_objects
from tests.datasets.factories import NOW, make_batch
from yardkit.fetched import Fetched
from yardkit.protocol import DownloadRequest, FailureKind
from yardkit.tokens import sign_pages_token


def page_of(
    body: bytes | str,
    *,
    url: str = "https://shop.example/",
    status: int = 200,
    content_type: str = "text/html; charset=utf-8",
    number: int = 1,
    **facts: Any,
) -> PageDownload:
    """A download as an agent keeps it."""
    content = body.encode() if isinstance(body, str) else body
    headers = [(b"Content-Type", content_type.encode()), (b"X-Powered-By", b"<b>PHP</b>")]
    failure = FailureKind.NONE
    fetched = Fetched(url, status, headers, content, failure, "", 12.5, False, **facts)
    request = DownloadRequest(url=url, headers={"Accept": "text/html"})
    return PageDownload(number, 1, request, fetched, NOW.timestamp(), "agent-1")


def token_of(run: Run) -> str:
    """The token by which agents store pages of a run."""
    return sign_pages_token(settings.SECRET_KEY, run.job.project_id, run.pk)


def keep(
    run: Run,
    pages: list[PageDownload],
    folder: Path,
    put: Callable[[str, bytes], object] | None = None,
    **changes: Any,
) -> str:
    """Store pages of a run in one file, as an agent does; return the name of the file."""
    spool = PageSpool(folder / "agent-1", "agent-1", 1024**3)
    assert not spool.write(run.pk, token_of(run), pages).not_kept
    file = spool.finish(run.pk)
    assert file is not None
    rows = spool.index(file)
    key = f"pages/p{run.job.project_id}/run-{run.pk}/agent-1-{file.name}.warc.gz"
    (put or shared_objects().put)(key, file.path.read_bytes())
    spool.close()
    items = [row | {"warc": file.name, "key": key} | changes for row in rows]
    batch = make_batch(run, items, producer=f"pages:{run.pk}", boot=file.name, token=token_of(run))
    refused = store_items(messages=[batch], now=NOW)
    assert not refused, refused
    return file.name
