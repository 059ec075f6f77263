"""Objects in a backup: those of the moment at which the databases are read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from crawlyard.backup.freeze import frozen
from crawlyard.backup.parts import BackupPart, PartKind
from yardkit.objects import open_objects


def part(folder: Path) -> BackupPart:
    return BackupPart("objects", PartKind.FOLDER, "OBJECTS_URL", str(folder), immutable=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_is_deleted_while_it_is_copied_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    store = open_objects(f"file://{folder}")
    keys = ["datasets/p1/d1/a", "datasets/p1/d1/deep/b", "c"]
    for key in keys:
        store.put(key, key.encode())
    with frozen([part(folder)], tmp_path / "scratch") as moment:
        store.delete(keys)
        store.put("later", b"x")
        assert contents(moment.folders[folder]) == {key: key.encode() for key in keys}
        # Nobody else takes the links for objects.
        assert [info.key for info in store.list("")] == ["later"]
    assert list(contents(folder)) == ["later"]


def test_a_disk_without_links_is_copied_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_paths: object, **_options: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    open_objects(f"file://{tmp_path}").put("a", b"1")
    monkeypatch.setattr(os, "link", refused)
    with frozen([part(tmp_path)], tmp_path / "scratch") as moment:
        assert moment.folders[tmp_path] == tmp_path


def test_links_of_a_killed_backup_are_deleted_after_a_day(tmp_path: Path) -> None:
    for name, seconds in (("new", 3600), ("old", 25 * 3600)):
        left = tmp_path / f".backup-{name}"
        left.mkdir()
        (left / "a").write_bytes(b"")
        at = left.stat().st_mtime - seconds
        os.utime(left, (at, at))
    with frozen([part(tmp_path)], tmp_path / "scratch"):
        pass
    assert [path.name for path in tmp_path.glob(".backup-*")] == [".backup-new"]


def test_an_installation_without_objects(tmp_path: Path) -> None:
    with frozen([part(tmp_path / "none")], tmp_path / "scratch") as moment:
        assert moment.folders == {}
