"""``yardspider describe``: which spiders are found, and what is told of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.yardspider.commands import environment
from yardspider import Spider
from yardspider.description import EXIT_NOTHING, argument_content, argument_helps, plain

SHOP = '''
from yardspider import Spider, SpiderSettings

print("noise")


class Shop(Spider):
    """Products of a shop.

    Arguments:
        city: Where to deliver to,
            by its name.
        pages: Most pages.
    """

    settings = SpiderSettings(speed=3)
    arguments = {"city": str, "pages": 10, "tags": ["a"], "fast": False}


class _Hidden(Spider):
    pass
'''


def describe(folder: Path, *modules: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "yardspider", "describe", *modules],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.covers("SC.5")
def test_it_describes_the_spiders_of_a_folder(tmp_path: Path) -> None:
    package = tmp_path / "shops"
    package.mkdir()
    (package / "shop.py").write_text(SHOP, encoding="utf-8")
    (package / "broken.py").write_text("import nothing_here\nclass A(object): ...\n")
    (tmp_path / "crawl.py").write_text("open('ran', 'w')\n")
    (tmp_path / "test_shop.py").write_text("class T(object): ...\nopen('ran', 'w')\n")
    done = describe(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "noise" in done.stderr
    content = json.loads(done.stdout)
    assert (content["version"], content["kind"]) == (1, "yardspider")
    names = [spider["name"] for spider in content["spiders"]]
    assert names == ["shops.shop:Shop", "yardspider.spiders:SiteSpider"]
    shop = content["spiders"][0]
    assert shop["description"] == "Products of a shop."
    assert shop["settings"] == {"speed": 3}
    assert [(each["name"], each["type"], each["required"]) for each in shop["arguments"]] == [
        ("city", "str", True),
        ("pages", "int", False),
        ("tags", "list", False),
        ("fast", "bool", False),
    ]
    assert shop["arguments"][0]["description"] == "Where to deliver to, by its name."
    (error,) = content["errors"]
    assert error["module"] == "shops.broken"
    assert "No module named 'nothing_here' (broken.py:1)" in error["error"]
    assert not (tmp_path / "ran").exists(), "a script without a class was run"


@pytest.mark.slow("1 s")
def test_a_folder_without_spiders_is_told_apart_from_a_failure(tmp_path: Path) -> None:
    done = describe(tmp_path)
    assert done.returncode == EXIT_NOTHING
    assert json.loads(done.stdout)["spiders"] == []
    named = describe(tmp_path, "yardspider.spiders")
    assert [each["name"] for each in json.loads(named.stdout)["spiders"]] == [
        "yardspider.spiders:SiteSpider"
    ]


def test_declared_defaults_are_below_what_the_job_sets() -> None:
    class Shop(Spider):
        arguments = {"city": str, "pages": 10}

    assert Shop().arguments == {"pages": 10}
    assert Shop({"city": "Ulm", "pages": 2, "zone": 1}).arguments == {
        "city": "Ulm",
        "pages": 2,
        "zone": 1,
    }
    assert Spider({"a": 1}).arguments == {"a": 1}


@pytest.mark.parametrize(
    ("annotation", "default", "kind"),
    [
        ("", None, "str"),
        ("", 3, "int"),
        ("", True, "bool"),
        ("", ("a",), "list"),
        (int, None, "int"),
        ("int | None", None, "int"),
        ("Optional[float]", None, "float"),
        ("list[str]", None, "list"),
        ("dict[str, int] | None", None, "dict"),
        ("str | int", None, "any"),
        ("datetime.date", None, "any"),
    ],
)
def test_types_come_from_annotations_or_defaults(annotation: Any, default: Any, kind: str) -> None:
    content = argument_content(
        "a", annotation=annotation, default=default, required=False, helps={}
    )
    assert content["type"] == kind


def test_help_is_read_from_both_styles_of_docstrings() -> None:
    google = "Crawl.\n\nArgs:\n    a (str): first\n    b: second\n\nReturns:\n    c: not one\n"
    assert argument_helps(google, None) == {"a": "first", "b": "second"}
    assert argument_helps("Crawl.\n\n:param str a: first\n:param b: second") == {
        "a": "first",
        "b": "second",
    }


def test_values_are_such_as_json_can_hold() -> None:
    deep: Any = []
    for _ in range(20):
        deep = [deep]
    value = {"a": {3, 1}, 2: float("inf"), "c": int, "d": "\ud800", "e": Path("x"), "f": deep}
    shown = plain(value)
    assert json.loads(json.dumps(shown)) == shown
    assert (shown["a"], shown["2"], shown["c"], shown["e"]) == ([1, 3], "inf", "builtins.int", "x")
