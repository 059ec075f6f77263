"""Object stores: one contract for a folder and for a bucket of S3."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from yardkit.objects import (
    BadObjectsURL,
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    ObjectStoreUnavailable,
    open_objects,
)
from yardkit.objects.base import PART_BYTES, checked, probe

_numbers = count(1)
ACCESS = {"access_key": "testing", "secret_key": "testing-secret"}


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Address of a server of S3: a real one that is named, or moto's."""
    if url := os.environ.get("CRAWLYARD_TEST_S3_ENDPOINT"):
        yield url
        return
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def make_bucket(endpoint: str, name: str) -> None:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=os.environ.get("CRAWLYARD_TEST_S3_KEY", ACCESS["access_key"]),
        aws_secret_access_key=os.environ.get("CRAWLYARD_TEST_S3_SECRET", ACCESS["secret_key"]),
        config=Config(signature_version="s3v4"),
    )
    client.create_bucket(Bucket=name)


def open_bucket(endpoint: str, name: str, prefix: str = "") -> ObjectStore:
    return open_objects(
        f"s3://{name}{prefix}?endpoint={endpoint}",
        access_key=os.environ.get("CRAWLYARD_TEST_S3_KEY", ACCESS["access_key"]),
        secret_key=os.environ.get("CRAWLYARD_TEST_S3_SECRET", ACCESS["secret_key"]),
    )


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_objects(f"file://{tmp_path}/a%20folder")
    endpoint = request.getfixturevalue("s3_server")
    name = f"crawlyard-{os.getpid()}-{next(_numbers)}"
    make_bucket(endpoint, name)
    return open_bucket(endpoint, name, "/a/prefix")


@pytest.mark.covers("DS.4")
def test_an_object_comes_back_as_it_was_put(store: ObjectStore) -> None:
    content = bytes(range(256)) * 10
    store.put("a/b.bin", content)
    assert store.get("a/b.bin") == content
    assert b"".join(store.stream("a/b.bin")) == content
    assert b"".join(store.stream("a/b.bin", 100, 50)) == content[100:150]
    assert b"".join(store.stream("a/b.bin", 2500)) == content[2500:]
    assert b"".join(store.stream("a/b.bin", 0, 0)) == b""
    info = store.head("a/b.bin")
    assert (info.key, info.size) == ("a/b.bin", 2560)
    assert abs(info.modified_at.timestamp() - time.time()) < 60


def test_a_later_put_replaces_and_create_refuses(store: ObjectStore) -> None:
    store.put("a", b"1")
    store.put("a", b"22")
    assert store.get("a") == b"22"
    with pytest.raises(ObjectExists, match="a"):
        store.put("a", b"333", create=True)
    assert store.get("a") == b"22"
    store.put("b", b"4", create=True)
    assert store.get("b") == b"4"


def test_only_one_of_many_creates_it(store: ObjectStore) -> None:
    taken = []

    def create(number: int) -> None:
        try:
            store.put("one", str(number).encode(), create=True)
        except ObjectExists:
            return
        taken.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1
    assert store.get("one") == str(taken[0]).encode()


def test_what_is_missing_is_named(store: ObjectStore) -> None:
    for call in (store.get, store.head, lambda key: list(store.stream(key))):
        with pytest.raises(ObjectMissing, match="no/thing"):
            call("no/thing")
    store.delete(["no/thing"])


def test_list_and_delete(store: ObjectStore) -> None:
    for name in ("d/1", "d/2", "d/e/3", "dd/4"):
        store.put(name, name.encode())
    assert {info.key: info.size for info in store.list("d/")} == {"d/1": 3, "d/2": 3, "d/e/3": 5}
    store.delete(["d/1", "d/e/3", "d/never"])
    assert [info.key for info in store.list("d/")] == ["d/2"]
    assert list(store.list("empty/")) == []


def test_a_large_object_is_streamed_in_parts(store: ObjectStore) -> None:
    part = os.urandom(PART_BYTES // 2)
    assert store.put_stream("large", (part for _ in range(5))) == 5 * len(part)
    assert store.head("large").size == 5 * len(part)
    assert b"".join(store.stream("large", len(part), len(part))) == part


def test_a_stream_that_breaks_leaves_nothing(store: ObjectStore) -> None:
    def broken() -> Iterator[bytes]:
        yield os.urandom(PART_BYTES + 1)
        raise RuntimeError("the source is gone")

    with pytest.raises((RuntimeError, ObjectStoreUnavailable), match="gone"):
        store.put_stream("half", broken())
    with pytest.raises(ObjectMissing):
        store.head("half")
    assert list(store.list("half/")) == []


def test_arrow_reads_and_others_find_it(store: ObjectStore) -> None:
    store.put("t/x.bin", b"content")
    filesystem, root = store.arrow()
    with filesystem.open_input_stream(f"{root}/t/x.bin") as file:
        assert file.read() == b"content"
    assert store.location("t/x.bin").endswith("/t/x.bin")
    path = store.local_path("t/x.bin")
    assert path is None or path.read_bytes() == b"content"


def test_the_probe_leaves_nothing(store: ObjectStore) -> None:
    probe(store, "here")
    assert list(store.list("probes/")) == []


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/./b", "a\\b", "a\nb", "x" * 901]
)
def test_bad_keys_are_refused(store: ObjectStore, key: str) -> None:
    with pytest.raises(ValueError, match="no key"):
        checked(key)
    with pytest.raises(ValueError, match="no key"):
        store.put(key, b"")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "file:///folder"),
        ("file://host/path", "file:///folder"),
        ("file:///", "file:///folder"),
        ("ftp://x/y", "file:///folder"),
        ("s3://B_/x", "no name of a bucket"),
        ("s3://bucket/../x", "not understood"),
        ("s3://key:secret@bucket/x", "OBJECTS_ACCESS_KEY"),
        ("s3://bucket/x?regoin=eu", "regoin"),
        ("s3://bucket/x?endpoint=host:9000", "not understood"),
        ("s3://bucket/x?path_style=yes", "not understood"),
    ],
)
def test_bad_urls_say_why(url: str, said: str) -> None:
    with pytest.raises(BadObjectsURL, match=said) as caught:
        open_objects(url)
    assert "secret" not in str(caught.value).replace("OBJECTS_SECRET_KEY", "")


def test_half_a_pair_of_keys_is_refused() -> None:
    with pytest.raises(BadObjectsURL, match="belong together"):
        open_objects("s3://bucket/x", access_key="one")


def test_a_server_that_is_away_fails_soon(unused_tcp_port: int) -> None:
    store = open_objects(f"s3://bucket?endpoint=http://127.0.0.1:{unused_tcp_port}", **ACCESS)
    with pytest.raises(ObjectStoreUnavailable, match="bucket"):
        store.put("a", b"1")


def test_a_folder_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = open_objects(f"file://{tmp_path}/file/below")
    with pytest.raises(ObjectStoreUnavailable, match="below"):
        store.put("a", b"1")


def test_a_full_disk_leaves_the_old_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_objects(f"file://{tmp_path}")
    store.put("a", b"old")

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("yardkit.objects.folder.os.fsync", full)
    with pytest.raises(ObjectStoreUnavailable, match="No space left"):
        store.put("a", b"new")
    assert store.get("a") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
