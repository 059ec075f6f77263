"""A server of S3: moto's, or a real one that ``CRAWLYARD_TEST_OBJECTS_URL`` names.

The URL of a real one names a bucket that exists; its keys come from ``OBJECTS_ACCESS_KEY`` and
``OBJECTS_SECRET_KEY``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit, urlunsplit
from uuid import uuid4

import pytest

from yardkit.objects import ObjectStore, open_objects


@dataclass(frozen=True)
class Bucket:
    """``url`` names a part of a bucket that no other test uses."""

    url: str
    access_key: str
    secret_key: str

    @property
    def endpoint(self) -> str:
        return parse_qs(urlsplit(self.url).query)["endpoint"][0]

    def through(self, endpoint: str) -> Bucket:
        """Return the same place by way of another address, such as a proxy's."""
        url = self.url.replace(self.endpoint, endpoint)
        return Bucket(url, self.access_key, self.secret_key)

    def open(self, timeout: float = 30.0) -> ObjectStore:
        return open_objects(
            self.url, access_key=self.access_key, secret_key=self.secret_key, timeout=timeout
        )


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Bucket]:
    """Return a bucket that all tests share."""
    if url := os.environ.get("CRAWLYARD_TEST_OBJECTS_URL"):
        keys = (os.environ.get(f"OBJECTS_{kind}_KEY", "") for kind in ("ACCESS", "SECRET"))
        yield Bucket(url, *keys)
        return
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    bucket = Bucket(f"s3://crawlyard?endpoint=http://{host}:{port}", "testing", "testing-canary")
    client = boto3.client(
        "s3",
        endpoint_url=bucket.endpoint,
        region_name="us-east-1",
        aws_access_key_id=bucket.access_key,
        aws_secret_access_key=bucket.secret_key,
    )
    client.create_bucket(Bucket="crawlyard")
    client.close()
    yield bucket
    server.stop()


@pytest.fixture
def s3_bucket(s3_server: Bucket) -> Iterator[Bucket]:
    """Return an empty place of this test's own; its objects are deleted afterwards."""
    parts = urlsplit(s3_server.url)
    path = f"{parts.path.rstrip('/')}/test-{uuid4().hex}/a b"
    url = urlunsplit(parts._replace(path=path))
    bucket = Bucket(url, s3_server.access_key, s3_server.secret_key)
    yield bucket
    whole = s3_server.open()
    below = path.strip("/").removeprefix(parts.path.strip("/")).strip("/")
    whole.delete([info.key for info in whole.list(f"{below}/")])
