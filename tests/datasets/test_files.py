"""Files that runs keep: complete when all parts are there and have the announced digest."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apps.datasets.models import StoredFile
from apps.datasets.services import files
from apps.datasets.services.files import content, store_chunk
from apps.jobs.models import Run
from tests.datasets.factories import NOW, make_chunks
from tests.jobs.factories import make_run
from yardkit.protocol import FileChunk

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def chunk_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 100 bytes."""
    monkeypatch.setattr(files, "CHUNK_BYTES", 100)


@pytest.fixture
def run() -> Run:
    return make_run()


def chunks_of(run: Run, name: str, data: bytes) -> list[FileChunk]:
    return make_chunks(run, name, data, part_bytes=100)


def changed(chunk: FileChunk, **fields: Any) -> FileChunk:
    return msgspec.structs.replace(chunk, **fields)


def store(*chunks: FileChunk) -> list[str]:
    return [store_chunk(chunk=chunk, now=NOW) for chunk in chunks]


@pytest.mark.covers("DS.12")
@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 1000])
def test_a_file_is_complete_when_all_parts_are_there(run: Run, size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    chunks = chunks_of(run, "images/a.png", data)
    # In any order, some twice.
    assert not any(store(*reversed(chunks[1:]), *chunks[1:2]))
    row = StoredFile.objects.first()
    assert row is None or row.complete_at is None
    assert not any(store(*chunks))
    row = StoredFile.objects.get()
    assert (row.run_number, row.name, row.size, row.parts) == (
        run.pk,
        "images/a.png",
        size,
        len(chunks),
    )
    assert (row.complete_at, row.sha256) == (NOW, hashlib.sha256(data).hexdigest())
    assert b"".join(content(row)) == data
    # Again: nothing changes.
    assert not any(store(*chunks))
    assert StoredFile.objects.count() == 1


@pytest.mark.covers("DS.12")
def test_a_wrong_digest_is_refused_and_its_parts_are_deleted(run: Run, objects: Path) -> None:
    chunks = chunks_of(run, "a.bin", b"x" * 150)
    forged = [changed(chunk, data=b"y" * len(chunk.data)) for chunk in chunks]
    first, second = store(*forged)
    assert not first
    assert second == "a.bin: the parts do not have the digest and size that were announced"
    assert not StoredFile.objects.exists()
    assert not [path for path in objects.rglob("*") if path.is_file()]
    # The right ones can still come.
    assert not any(store(*chunks))
    assert StoredFile.objects.get().complete_at == NOW


def test_content_that_is_stored_is_not_stored_again_under_another_name(
    run: Run, objects: Path
) -> None:
    data = b"z" * 150
    assert not any(store(*chunks_of(run, "a.bin", data)))
    forged = changed(chunks_of(run, "b.bin", data)[0], data=b"?" * 100)
    assert not any(store(forged))
    rows = StoredFile.objects.all()
    assert [b"".join(content(row)) for row in rows] == [data, data]
    assert all(row.complete_at for row in rows)


def test_names_with_new_content_are_files_of_their_own(run: Run) -> None:
    assert not any(store(*chunks_of(run, "a.txt", b"old"), *chunks_of(run, "a.txt", b"new")))
    assert StoredFile.objects.filter(name="a.txt").exclude(complete_at=None).count() == 2


@pytest.mark.covers("DS.12")
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": ""}, "is no name"),
        ({"name": "/etc/passwd"}, "is no name"),
        ({"name": "a/../b"}, "is no name"),
        ({"name": "a//b"}, "is no name"),
        ({"name": "a\0b"}, "is no name"),
        ({"name": "a\u202eb"}, "is no name"),
        ({"name": "n" * 501}, "is no name"),
        ({"content_type": "t" * 101}, "the type is"),
        ({"content_type": "text/html\r\nX: y"}, "the type is"),
        ({"sha256": "../.."}, "no SHA-256"),
        ({"sha256": "A" * 64}, "no SHA-256"),
        ({"size": -1}, "-1 bytes in 2 parts"),
        ({"size": 2**40}, "at most"),
        ({"parts": 3}, "150 bytes in 3 parts"),
        ({"part": 2}, "part 2 has"),
        ({"part": -1}, "part -1 has"),
        ({"part": 1}, "part 1 has 100 bytes"),
        ({"data": b"x"}, "part 0 has 1 bytes"),
        ({"token": "r1.0"}, "the token is not that of"),
        ({"producer": "run:999999"}, "the token is not that of"),
    ],
    ids=str,
)
def test_what_cannot_be_stored_is_refused_with_its_reason(
    run: Run, fields: dict[str, Any], why: str, objects: Path
) -> None:
    chunk = changed(chunks_of(run, "a.bin", b"x" * 150)[0], **fields)
    (reason,) = store(chunk)
    assert why in reason
    assert not StoredFile.objects.exists()
    assert not list(objects.rglob("*")) if objects.exists() else True


def test_parts_that_contradict_each_other_are_refused(run: Run) -> None:
    chunks = chunks_of(run, "a.bin", b"x" * 150)
    other = changed(chunks[0], size=90, parts=1, data=b"x" * 90)
    reasons = store(chunks[0], other)
    assert reasons == ["", "a.bin: size and parts differ from those of an earlier part"]


def test_a_file_of_a_run_that_is_gone_is_refused(run: Run) -> None:
    chunks = chunks_of(run, "a.bin", b"x")
    number = run.pk
    run.delete()
    assert store(*chunks) == [f"run {number} does not exist"]
