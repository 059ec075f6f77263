"""OBJECTS_URL: where items are kept, and what is said of an address that names no store."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawlyard.settings.objects import objects
from yardkit.env import Env, EnvError

FOLDER = Path("/var/lib/crawl yard/objects")


def read(**given: str) -> tuple[str, ...]:
    return objects(Env(given), FOLDER)


def test_in_the_data_folder_by_default() -> None:
    assert read() == ("file:///var/lib/crawl%20yard/objects", "", "", "", "127.0.0.1:8010")


def test_keys_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary\n")
    url = "s3://bucket/items?endpoint=https://minio:9000"
    found = read(
        OBJECTS_URL=url, OBJECTS_ACCESS_KEY="me", OBJECTS_SECRET_KEY_FILE=str(tmp_path / "secret")
    )
    assert found == (url, "me", "canary", "", "127.0.0.1:8010")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"OBJECTS_URL": "objects"}, "use file:///folder or s3://bucket"),
        ({"OBJECTS_URL": "s3://me:canary@bucket"}, "use OBJECTS_ACCESS_KEY"),
        ({"OBJECTS_SECRET_KEY": "canary", "OBJECTS_URL": "s3://bucket"}, "belong together"),
    ],
)
def test_what_names_no_store(given: dict[str, str], said: str) -> None:
    with pytest.raises(EnvError, match=said) as told:
        read(**given)
    assert str(told.value).startswith("OBJECTS_URL: ")
    assert "canary" not in str(told.value)
