"""The object server and the client of signed addresses."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.plugins.object_server import SECRET, ServedFolder
from tests.plugins.s3_server import Bucket
from yardkit.object_client import (
    AddressExpired,
    ObjectClient,
    ObjectGone,
    StoreAway,
    TransferFailed,
    sha256_of,
)
from yardkit.objects.signing import AddressSigner

KEY = "bodies/p1/run-7/b1"


@pytest.fixture
def client() -> Iterator[ObjectClient]:
    client = ObjectClient(timeout_seconds=5)
    yield client
    client.close()


def put(client: ObjectClient, address: str, content: bytes) -> None:
    client.put(address, content, len(content), sha256_of(content))


def asked(method: str, address: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """Send a request as it is, dots and all."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=5)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, f"{parts.path}?{parts.query}", body or None, named)
    response = connection.getresponse()
    status, content = response.status, response.read()
    connection.close()
    return status, content


@pytest.mark.covers("OB.1")
@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
def test_an_object_is_put_got_and_deleted(
    served_folder: ServedFolder, client: ObjectClient, size: int
) -> None:
    store, content = served_folder.store, bytes(range(250)) * (size // 250) + b"x" * (size % 250)
    put(client, store.sign("PUT", KEY, 60), content)
    assert store.get(KEY) == content
    address = store.sign("GET", KEY, 60)
    assert b"".join(client.get(address)) == content
    if size > 10:
        assert asked("GET", address, Range="bytes=1-10") == (206, content[1:11])
    client.delete(store.sign("DELETE", KEY, 60))
    client.delete(store.sign("DELETE", KEY, 60))
    assert served_folder.files() == []
    with pytest.raises(ObjectGone, match="404"):
        list(client.get(address))


@pytest.mark.covers("OB.1")
def test_an_object_is_written_once_and_with_its_digest(
    served_folder: ServedFolder, client: ObjectClient
) -> None:
    address = served_folder.store.sign("PUT", KEY, 60)
    with pytest.raises(StoreAway, match="digest"):
        client.put(address, b"abc", 3, sha256_of(b"abd"))
    assert served_folder.files() == []
    put(client, address, b"abc")
    with pytest.raises(StoreAway, match="exists"):
        put(client, address, b"abc")
    assert served_folder.store.get(KEY) == b"abc"
    assert asked("PUT", address, b"x", Content_Length=str(6 * 1024**3))[0] in (409, 413)
    other = served_folder.store.sign("PUT", f"{KEY}2", 60)
    parts = urlsplit(other)
    connection = http.client.HTTPConnection(parts.netloc, timeout=5)
    connection.putrequest("PUT", f"{parts.path}?{parts.query}")
    connection.putheader("Content-Length", str(6 * 1024**3))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    assert list((served_folder.folder / ".incomplete").iterdir()) == []


@pytest.mark.covers("OB.1")
def test_no_other_address_gives_access(served_folder: ServedFolder, client: ObjectClient) -> None:
    store = served_folder.store
    (served_folder.folder.parent / "secret").write_text("s3cret")
    store.put(KEY, b"content")
    store.put("datasets/p1/d", b"items")
    good = store.sign("GET", KEY, 60)
    signer = AddressSigner(served_folder.url, SECRET)
    expired = signer.sign("GET", KEY, int(time.time()) - 1)
    foreign = AddressSigner(served_folder.url, "of another installation").sign("GET", KEY, 2**33)
    for address in (
        good.replace("run-7", "run-8"),
        good.replace("b1", "../../p1/run-7/b1"),
        good.replace("bodies/p1/run-7/b1", "../secret"),
        good.replace("bodies/p1/run-7/b1", "%2e%2e/secret"),
        good.replace("bodies/p1/run-7/b1", "datasets/p1/d"),
        good.replace("bodies/p1/run-7/b1", ""),
        good.replace("bodies/p1/run-7/b1", "bodies/"),
        good.partition("?")[0],
        f"{good}&x=1",
        expired,
        foreign,
        store.sign("PUT", KEY, 60),
        store.sign("DELETE", KEY, 60),
    ):
        assert asked("GET", address)[0] == 403, address
        with pytest.raises((AddressExpired, ObjectGone)):
            list(client.get(address))
    for method in ("PUT", "DELETE", "POST", "HEAD", "OPTIONS", "PROPFIND"):
        assert asked(method, good)[0] == 403
    assert store.get(KEY) == b"content"
    root = urlsplit(served_folder.url)
    for path in ("/", "/objects", "/objects/", "/objects/bodies/"):
        assert asked("GET", f"http://{root.netloc}{path}")[0] == 403


def test_a_proxy_may_cut_the_path(served_folder: ServedFolder, client: ObjectClient) -> None:
    served_folder.store.put(KEY, b"content")
    address = served_folder.store.sign("GET", KEY, 60).replace("/objects/", "/")
    assert b"".join(client.get(address)) == b"content"


def test_errors_of_the_store_and_of_the_network(
    served_folder: ServedFolder, client: ObjectClient
) -> None:
    address = served_folder.store.sign("PUT", KEY, 60)
    served_folder.broken = 507
    with pytest.raises(StoreAway, match=r"507.*the disk is full"):
        put(client, address, b"abc")
    served_folder.broken = 0
    put(client, address, b"abc")
    with pytest.raises(StoreAway, match="does not answer"):
        put(client, "http://127.0.0.1:1/objects/a?e=1&s=2", b"abc")
    client.close()
    with pytest.raises(TransferFailed, match="closed"):
        put(client, address, b"abc")


def test_a_kept_connection_that_the_server_has_closed(
    served_folder: ServedFolder, client: ObjectClient
) -> None:
    store = served_folder.store
    put(client, store.sign("PUT", KEY, 60), b"abc")
    for connection in client._idle[("http", urlsplit(served_folder.url).netloc)]:
        connection.sock.shutdown(2)
    assert b"".join(client.get(store.sign("GET", KEY, 60))) == b"abc"


def test_a_full_disk_is_said_and_nothing_is_left(
    served_folder: ServedFolder, client: ObjectClient, tmp_path: Path
) -> None:
    (served_folder.folder / "bodies").parent.mkdir(parents=True, exist_ok=True)
    (served_folder.folder / "bodies").write_text("a file where a folder belongs")
    with pytest.raises(StoreAway, match="507"):
        put(client, served_folder.store.sign("PUT", KEY, 60), b"abc")
    assert list((served_folder.folder / ".incomplete").iterdir()) == []


@pytest.mark.covers("OB.1")
def test_the_client_on_s3(s3_bucket: Bucket, client: ObjectClient) -> None:
    store = s3_bucket.open()
    put(client, store.sign("PUT", KEY, 60), b"abc" * 100_000)
    assert b"".join(client.get(store.sign("GET", KEY, 60))) == b"abc" * 100_000
    client.delete(store.sign("DELETE", KEY, 60))
    with pytest.raises(ObjectGone):
        list(client.get(store.sign("GET", KEY, 60)))
