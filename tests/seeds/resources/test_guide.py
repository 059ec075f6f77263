"""The tutorial of docs/resources.md is followed here: its spider, its test, its file."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

from apps.seeds.engine.resource_files import FileFormat, opened, read_resources

GUIDE = (Path(__file__).parents[3] / "docs" / "resources.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", GUIDE, re.DOTALL | re.MULTILINE)
    return [dedent(each) for each in found]


def test_the_spider_and_its_test_work() -> None:
    spider, test = blocks("python")
    names: dict[str, Any] = {}
    exec(spider, names)  # noqa: S102 - our own documentation
    exec(test, names)  # noqa: S102
    sent = names["result"].requests[0].headers
    assert dict(sent)["Authorization"] == "Basic YW5uOng="


def test_the_file_is_taken() -> None:
    found = read_resources(blocks("")[0], FileFormat.CSV)
    assert [each.name for each in found] == ["ann", "bob"]
    assert opened(found[0].secret) == {"user": "ann@example.com", "password": "correct-horse"}
