"""Kept pages in a bucket: uploaded by signed addresses, read, replayed, deleted."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from apps.access.states import Role
from apps.datasets.models import Dataset
from apps.datasets.services import retention
from apps.jobs.states import RunState
from apps.runtime.services.objects import shared_objects
from tests.access.factories import Api, enter, make_user
from tests.datasets.factories import NOW
from tests.datasets.kept import keep, page_of
from tests.datasets.test_data_pages import content_of
from tests.jobs.factories import make_run
from tests.plugins.s3_server import Bucket
from yardkit.object_client import ObjectClient, sha256_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("OB.2")]


def test_pages_are_kept_in_a_bucket(s3_bucket: Bucket, settings: Any, tmp_path: Path) -> None:
    settings.OBJECTS_URL = s3_bucket.url
    settings.OBJECTS_ACCESS_KEY = s3_bucket.access_key
    settings.OBJECTS_SECRET_KEY = s3_bucket.secret_key
    run = make_run(state=RunState.EXITED)
    client = ObjectClient()

    def put(key: str, content: bytes) -> None:
        address = shared_objects().sign("PUT", key, 60)
        client.put(address, content, len(content), sha256_of(content))

    warc = keep(run, [page_of("<p>one</p>"), page_of("two", number=2)], tmp_path, put)
    person = make_user(roles={run.job.project: Role.VIEWER})
    page = f"/runs/{run.pk}/pages/{warc}/1"
    assert "&lt;p&gt;one&lt;/p&gt;" in enter(person).get(f"{page}?tab=source").content.decode()
    whole = content_of(Api(person).get(f"/api/v1/runs/{run.pk}/pages/warc"))
    kinds = [record.rec_type for record in ArchiveIterator(io.BytesIO(whole))]
    assert kinds.count("response") == 2
    (info,) = shared_objects().list(f"pages/p{run.job.project_id}/run-{run.pk}/")
    # As an agent brings it for a replay.
    assert b"".join(client.get(shared_objects().sign("GET", info.key, 60))) == whole
    client.close()
    retention.sweep(now=NOW + timedelta(days=2))
    assert list(shared_objects().list("pages/")) == [info]
    Dataset.objects.filter(kind="pages").delete()
    retention.sweep(now=NOW + timedelta(days=2))
    assert list(shared_objects().list("pages/")) == []
