"""Object stores that are away, slow, full, or die in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

from tests.plugins.s3_server import Bucket
from tests.yardkit.broker_proxy import Proxy
from yardkit.objects import ObjectMissing, ObjectStore, ObjectStoreUnavailable, open_objects
from yardkit.objects.base import PART_BYTES
from yardkit.objects.folder import INCOMPLETE, INCOMPLETE_SECONDS

TIMEOUT = 2.0
# Of a test that waits for an answer on a busy machine.
LATE = 1.5

Call = Callable[[ObjectStore], object]
CALLS: dict[str, Call] = {
    "put": lambda store: store.put("a", b"1"),
    "create": lambda store: store.put("b", b"1", create=True),
    "put_stream": lambda store: store.put_stream("a", [bytes(PART_BYTES)] * 3),
    "get": lambda store: store.get("a"),
    "stream": lambda store: store.stream("a"),
    "head": lambda store: store.head("a"),
    "list": lambda store: list(store.list("d/")),
    "delete": lambda store: store.delete(["a", "b"]),
}


@pytest.fixture
def proxy(s3_bucket: Bucket) -> Iterator[Proxy]:
    parts = urlsplit(s3_bucket.endpoint)
    with Proxy(str(parts.hostname), parts.port or 80) as proxy:
        yield proxy


@pytest.fixture
def store(proxy: Proxy, s3_bucket: Bucket) -> ObjectStore:
    return s3_bucket.through(f"http://127.0.0.1:{proxy.port}").open()


@pytest.mark.parametrize("name", CALLS)
def test_a_server_that_is_away_fails_soon(name: str, unused_tcp_port: int) -> None:
    store = Bucket(
        f"s3://bucket?endpoint=http://127.0.0.1:{unused_tcp_port}", "key-canary", "canary"
    ).open(TIMEOUT)
    begun = time.monotonic()
    with pytest.raises(ObjectStoreUnavailable, match="bucket") as caught:
        CALLS[name](store)
    assert time.monotonic() - begun < TIMEOUT + LATE
    assert "canary" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.fault
@pytest.mark.parametrize("name", CALLS)
def test_no_call_outlasts_the_timeout(name: str, s3_bucket: Bucket, proxy: Proxy) -> None:
    store = s3_bucket.through(f"http://127.0.0.1:{proxy.port}").open(TIMEOUT)
    s3_bucket.open().put("a", b"1")
    proxy.freeze(frozen=True)
    begun = time.monotonic()
    with pytest.raises(ObjectStoreUnavailable):
        CALLS[name](store)
    assert time.monotonic() - begun < TIMEOUT + LATE
    proxy.freeze(frozen=False)


@pytest.mark.fault
def test_neither_arrow_nor_iceberg_outlasts_the_timeout(s3_bucket: Bucket, proxy: Proxy) -> None:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    # They count in whole seconds.
    timeout = 3 * TIMEOUT
    store = s3_bucket.through(f"http://127.0.0.1:{proxy.port}").open(timeout)
    s3_bucket.open().put("a", b"1")
    filesystem, root = store.arrow()
    files = PyArrowFileIO(dict(store.iceberg_properties()))
    assert filesystem.open_input_file(f"{root}/a").read() == b"1"
    assert files.new_input(store.location("a")).open().read() == b"1"
    proxy.freeze(frozen=True)
    for call in (
        lambda: filesystem.open_input_file(f"{root}/a").read(),
        lambda: files.new_input(store.location("a")).open().read(),
    ):
        begun = time.monotonic()
        with pytest.raises(OSError, match="AWS Error"):
            call()
        assert time.monotonic() - begun < timeout + 2 * LATE
    proxy.freeze(frozen=False)


@pytest.mark.fault
def test_a_connection_cut_in_the_middle_of_a_put_is_made_again(
    store: ObjectStore, proxy: Proxy
) -> None:
    part = os.urandom(PART_BYTES)

    def chunks() -> Iterator[bytes]:
        for _ in range(4):
            yield part
            proxy.cut()

    assert store.put_stream("a", chunks()) == 4 * PART_BYTES
    assert store.get("a") == part * 4


@pytest.mark.fault
def test_a_server_that_goes_away_in_the_middle_of_a_put_leaves_the_old_object(
    store: ObjectStore, proxy: Proxy
) -> None:
    store.put("a", b"old")

    def chunks() -> Iterator[bytes]:
        yield os.urandom(PART_BYTES)
        yield os.urandom(PART_BYTES)
        proxy.shut()
        yield os.urandom(PART_BYTES)

    for key in ("a", "new"):
        with pytest.raises(ObjectStoreUnavailable):
            store.put_stream(key, chunks())
        proxy.open()
    assert store.get("a") == b"old"
    with pytest.raises(ObjectMissing):
        store.head("new")


@pytest.mark.fault
def test_a_stream_goes_on_after_a_cut(store: ObjectStore, proxy: Proxy) -> None:
    content = os.urandom(3 * PART_BYTES)
    store.put("a", content)
    got = b""
    for chunk in store.stream("a"):
        got += chunk
        proxy.cut()
    assert got == content


@pytest.mark.fault
def test_an_object_that_changes_while_it_is_streamed_is_not_mixed(s3_bucket: Bucket) -> None:
    store = s3_bucket.open()
    store.put("a", bytes(2 * PART_BYTES))
    chunks = store.stream("a")
    next(chunks)
    store.put("a", b"1" * 2 * PART_BYTES)
    with pytest.raises(ObjectStoreUnavailable):
        next(chunks)


@pytest.mark.parametrize(
    ("status", "code"), [(507, "XMinioStorageFull"), (403, "AccessDenied"), (404, "NoSuchBucket")]
)
def test_what_the_server_refuses_is_said(status: int, code: str) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = f"<Error><Code>{code}</Code><Key>canary</Key></Error>".encode()
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"s3://bucket?endpoint=http://127.0.0.1:{server.server_port}"
        with pytest.raises(ObjectStoreUnavailable, match=code) as caught:
            Bucket(url, "testing", "canary").open(TIMEOUT).put("a", b"1")
        server.shutdown()
    assert "canary" not in str(caught.value)


FORKED = """
import os, sys
from yardkit.objects import open_objects
store = open_objects(sys.argv[1], access_key="a", secret_key="b", timeout=1.0)
used = sys.argv[2] == "used"
if used:
    try:
        store.head("a")
    except Exception:
        pass
if not os.fork():
    try:
        store.head("a")
    except Exception as error:
        print(type(error).__name__, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(
    ("before", "raised"), [("used", "RuntimeError"), ("unused", "ObjectStoreUnavailable")]
)
def test_a_forked_process_does_not_hang(before: str, raised: str, unused_tcp_port: int) -> None:
    """obstore's threads do not survive a fork: a call in the child would wait for them."""
    url = f"s3://bucket?endpoint=http://127.0.0.1:{unused_tcp_port}"
    words = [sys.executable, "-c", FORKED, url, before]
    ended = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
    assert ended.stdout.split() == [raised]


# --- folders --------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = open_objects(f"file://{tmp_path}/file/below")
    with pytest.raises(ObjectStoreUnavailable, match="below"):
        store.put("a", b"1")
    store = open_objects(f"file://{tmp_path}")
    with pytest.raises(ObjectStoreUnavailable, match="file/below"):
        store.put("file/below", b"1")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """File system of 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("a small disk can be mounted by root only")
    made = tmp_path / "small"
    made.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(made)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here")
    yield made
    subprocess.run(["umount", str(made)], check=True)


@pytest.mark.fault
def test_a_full_disk_leaves_the_old_object(small: Path) -> None:
    store = open_objects(f"file://{small}")
    store.put("a", b"old")
    for key in ("a", "new"):
        with pytest.raises(ObjectStoreUnavailable, match="No space left"):
            store.put_stream(key, (bytes(10_000) for _ in range(100)))
    assert [(info.key, info.size) for info in store.list("")] == [("a", 3)]
    assert list((small / INCOMPLETE).iterdir()) == []
    store.put("a", bytes(100_000))


def test_an_object_and_its_new_folders_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    store = open_objects(f"file://{tmp_path}/objects")
    store.put("a/b/c", b"1")
    written = synced.index(next(name for name in synced if len(name) == 32))
    assert synced[:written] == [tmp_path.name, "objects"]
    assert synced[written + 1 :] == ["objects", "a", "b"]


KILLED = """
import os, signal, sys
from yardkit.objects import open_objects
def chunks():
    yield b"1" * 1000
    os.kill(os.getpid(), signal.SIGKILL)
open_objects(sys.argv[1]).put_stream("a", chunks())
"""


@pytest.mark.fault
def test_a_killed_writer_leaves_the_old_object_and_nothing_for_long(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    open_objects(url).put("a", b"old")
    ended = subprocess.run([sys.executable, "-c", KILLED, url], check=False)
    assert ended.returncode == -signal.SIGKILL
    store = open_objects(url)
    assert store.get("a") == b"old"
    [left] = (tmp_path / INCOMPLETE).iterdir()
    store.put("b", b"1")
    assert left.exists()
    old = time.time() - INCOMPLETE_SECONDS - 60
    os.utime(left, (old, old))
    open_objects(url).put("b", b"1")
    assert list((tmp_path / INCOMPLETE).iterdir()) == []
    assert sorted(info.key for info in store.list("")) == ["a", "b"]
