"""Object stores: one contract for a folder and for a bucket of S3."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.s3_server import Bucket
from yardkit.objects import BadObjectsURL, ObjectExists, ObjectMissing, ObjectStore, open_objects
from yardkit.objects.base import PART_BYTES, checked, probe
from yardkit.objects.folder import INCOMPLETE


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_objects(f"file://{tmp_path}/a%20folder")
    bucket: Bucket = request.getfixturevalue("s3_bucket")
    return bucket.open()


@pytest.mark.covers("DS.4")
def test_an_object_comes_back_as_it_was_put(store: ObjectStore) -> None:
    content = bytes(range(256)) * 10
    store.put("a/b.bin", content)
    assert store.get("a/b.bin") == content
    assert b"".join(store.stream("a/b.bin")) == content
    assert b"".join(store.stream("a/b.bin", 100, 50)) == content[100:150]
    assert b"".join(store.stream("a/b.bin", 2500)) == content[2500:]
    assert b"".join(store.stream("a/b.bin", 0, 0)) == b""
    assert b"".join(store.stream("a/b.bin", 2550, 50)) == content[2550:]
    for start, length in ((2560, 10), (9999, 10), (2560, None)):
        assert b"".join(store.stream("a/b.bin", start, length)) == b""
    with pytest.raises(ValueError, match="-1"):
        store.stream("a/b.bin", -1)
    info = store.head("a/b.bin")
    assert (info.key, info.size) == ("a/b.bin", 2560)
    assert abs(info.modified_at.timestamp() - time.time()) < 60


def test_an_empty_object(store: ObjectStore) -> None:
    store.put("empty", b"", create=True)
    assert store.put_stream("streamed", iter(())) == 0
    for key in ("empty", "streamed"):
        assert store.get(key) == b""
        assert list(store.stream(key, 0, 10)) == []
        assert store.head(key).size == 0


def test_names_with_any_letters(store: ObjectStore) -> None:
    keys = sorted(f"d/{name}" for name in ("a b", "a%20b", "c#d", "e?f", "g+h", "_day=1", "价格"))
    for key in keys:
        store.put(key, key.encode())
    assert sorted(info.key for info in store.list("d/")) == keys
    assert [store.get(key).decode() for key in keys] == keys
    store.delete(keys)
    assert list(store.list("d/")) == []


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
    store.put("a/file", b"")
    calls = (store.get, store.head, store.stream, lambda key: store.stream(key, 5, 0))
    for call in calls:
        # A folder is no object, and nothing is below an object.
        for key in ("a", "a/file/below"):
            with pytest.raises(ObjectMissing, match=key):
                call(key)
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
    assert sorted(info.key for info in store.list("")) == ["d/2", "dd/4"]
    with pytest.raises(ValueError, match="slash"):
        list(store.list("d"))


def test_a_large_object_is_streamed_in_parts(store: ObjectStore) -> None:
    part = os.urandom(PART_BYTES // 2)
    assert store.put_stream("large", (part for _ in range(5))) == 5 * len(part)
    assert store.head("large").size == 5 * len(part)
    assert b"".join(store.stream("large", len(part), len(part))) == part


def test_a_stream_that_breaks_leaves_nothing(store: ObjectStore) -> None:
    def broken() -> Iterator[bytes]:
        yield os.urandom(PART_BYTES + 1)
        raise RuntimeError("the source is gone")

    for content in (None, b"old"):
        if content is not None:
            store.put("half", content)
        with pytest.raises(RuntimeError, match="the source is gone"):
            store.put_stream("half", broken())
        if content is None:
            with pytest.raises(ObjectMissing):
                store.head("half")
        else:
            assert store.get("half") == content


def test_arrow_reads_and_others_find_it(store: ObjectStore) -> None:
    store.put("t/x.bin", b"content")
    filesystem, root = store.arrow()
    with filesystem.open_input_stream(f"{root}/t/x.bin") as file:
        assert file.read() == b"content"
    assert store.location("t/x.bin").endswith("/t/x.bin")
    assert store.location("t/x.bin").partition("://")[2].startswith(f"{root}/")
    path = store.local_path("t/x.bin")
    assert path is None or path.read_bytes() == b"content"


def test_the_probe_leaves_nothing(store: ObjectStore) -> None:
    probe(store, "here")
    assert list(store.list("probes/")) == []


@pytest.mark.parametrize(
    "key",
    [
        *("", "/a", "a/", "a//b", "../a", "a/./b", ".hidden", "a/.b", "a\\b", "a\nb", "\ud800"),
        *("x" * 256, "x/" * 450 + "x"),
    ],
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
        ("s3://bucket/x?endpoint=http://secret@host", "not understood"),
        ("s3://bucket/x?endpoint=http://host/path", "not understood"),
        ("s3://bucket/x?region=a%20b", "not understood"),
    ],
)
def test_bad_urls_say_why(url: str, said: str) -> None:
    with pytest.raises(BadObjectsURL, match=said) as caught:
        open_objects(url)
    assert "secret" not in str(caught.value).replace("OBJECTS_SECRET_KEY", "")


def test_half_a_pair_of_keys_is_refused() -> None:
    with pytest.raises(BadObjectsURL, match="belong together"):
        open_objects("s3://bucket/x", access_key="one")


def test_the_usual_variables_complete_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://ceph:7480/")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    found = open_objects("s3://bucket/x").iceberg_properties()
    assert (found["s3.endpoint"], found["s3.region"]) == ("http://ceph:7480", "eu-west-1")
    named = open_objects("s3://bucket/x?endpoint=https://minio&region=here").iceberg_properties()
    assert (named["s3.endpoint"], named["s3.region"]) == ("https://minio", "here")


def test_concurrent_writers_and_deleters_of_one_folder(tmp_path: Path) -> None:
    """A folder that becomes empty is removed, also while another thread writes into it."""
    store = open_objects(f"file://{tmp_path}")
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            for turn in range(100):
                key = f"a/b/{number}-{turn}"
                store.put(key, b"x")
                store.delete([key])
        except Exception as error:  # noqa: BLE001 - of any kind
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [path.name for path in tmp_path.iterdir()] == [INCOMPLETE]
    assert list((tmp_path / INCOMPLETE).iterdir()) == []
