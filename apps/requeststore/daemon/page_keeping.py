"""Pages that a fetcher keeps, so that records can be extracted again without a download.

Kept as rules have read them: without HTTP compression, after the text filters of the downloader.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Final

import msgspec
from django.conf import settings
from django.db import connections

from apps.agents.downloader.kept import PageKeeper
from apps.agents.downloader.kept.keeper import UploadFailed
from apps.agents.downloader.kept.warc import PageDownload
from apps.datasets.engine import keys
from apps.datasets.models import Dataset
from apps.datasets.services.datasets import dataset_of_biz_pages
from apps.requeststore.daemon.batch_end import BatchEnd
from apps.requeststore.daemon.work import DownloadedPage, LeasedRequest, download_of
from apps.requeststore.services.store import BoundBiz
from apps.runtime.errors import DATABASE_AWAY
from apps.runtime.services.objects import shared_objects
from yardkit.bridge import in_daemon_thread
from yardkit.broker import Broker, BrokerError, Outgoing
from yardkit.clock import Clock
from yardkit.errors import first_line
from yardkit.fetched import Fetched
from yardkit.objects import ObjectStoreError
from yardkit.protocol import FailureKind, KeepPages, PagePolicy

CONFIRM_SECONDS: Final = 10.0


class BizPageStore:
    """Writes files of kept pages into the object store; the number is that of their dataset."""

    async def upload(self, run: int, token: str, path: Path) -> str:
        """Store a file; return the key of its object. Raises ``UploadFailed``."""
        return await in_daemon_thread(self._put, run, path)

    def _put(self, dataset_id: int, path: Path) -> str:
        try:
            project = Dataset.objects.filter(pk=dataset_id).values_list("project_id", flat=True)
            if not project:
                raise UploadFailed("the dataset of these pages is deleted", refused=True)
            key = f"{keys.biz_pages(project[0], dataset_id)}{path.name}"
            shared_objects().put(key, path.read_bytes())
        except (ObjectStoreError, *DATABASE_AWAY) as error:
            raise UploadFailed(first_line(error)) from error
        finally:
            connections.close_all()
        return key


def new_keeper(broker: Broker, name: str, clock: Clock) -> PageKeeper:
    """Return the keeper of a fetcher; it takes over the files of those that are gone."""

    async def deliver(messages: Sequence[Outgoing], what: str, run: int) -> bool:
        try:
            await in_daemon_thread(lambda: broker.publish(messages).result(CONFIRM_SECONDS))
        except (BrokerError, FutureTimeoutError):
            return False
        return True

    return PageKeeper(
        folder=Path(settings.DATA_DIR) / "fetchers" / f"{os.getpid()}-{uuid.uuid4().hex}",
        agent=f"fetcher {name}",
        max_bytes=settings.FETCHER_PAGES_BYTES,
        deliver=deliver,
        store=BizPageStore(),
        clock=clock,
        of_datasets=True,
    )


def pages_dataset(bound: BoundBiz) -> int:
    """Return the ID of the dataset of a biz's kept pages, made if needed; 0 if none are kept."""
    pages = bound.settings.pages
    if pages.keep is KeepPages.NONE:
        return 0
    return dataset_of_biz_pages(project_id=bound.project_id, biz=bound.name, days=pages.days).pk


def keep_pages(keeper: PageKeeper, ending: BatchEnd) -> None:
    """Keep the pages of ended requests that the settings of their biz name."""
    parts = ending.parts
    if not parts.pages:
        return
    pages = parts.bound.settings.pages
    policy = PagePolicy(keep=pages.keep, sample=pages.sample)
    for work, page, has_failed in ending.responses():
        if (has_failed and pages.keep is KeepPages.FAILED) or policy.chooses(
            work.entity.url, page.status, FailureKind.NONE
        ):
            keeper.keep(parts.pages, "", _download(work, page, keeper.agent, ending.now() / 1000))


def _download(work: LeasedRequest, page: DownloadedPage, agent: str, at: float) -> PageDownload:
    request = download_of(work.entity, headers={}, timeout_seconds=0.0)
    # Credentials of the request group are no part of a page.
    request = msgspec.structs.replace(request, headers={})
    fetched = Fetched(
        url=page.url,
        status=page.status,
        raw_headers=[
            (name.encode("latin-1", "replace"), value.encode("utf-8", "replace"))
            for name, value in page.headers
        ],
        body=page.body,
        failure=FailureKind.NONE,
        error="",
        elapsed_ms=page.elapsed_ms,
        truncated=page.truncated,
    )
    return PageDownload(work.request.id, work.request.tries, request, fetched, at, agent)
