"""``yardscrapy describe``: the spiders of a Scrapy project, without a crawl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.requirement_marks import ROOT
from yardspider.description import EXIT_NOTHING

SPIDERS = '''
from __future__ import annotations

import datetime
from typing import ClassVar, Optional

import scrapy

print("noise")


class Base(scrapy.Spider):
    """Base.

    :param until: last day
    """

    def __init__(self, until: Optional[str] = None, *args, **kwargs):
        super().__init__(*args, **kwargs)


class Quotes(Base):
    """Quotes by tag."""

    name = "quotes"
    tag: str = "humor"
    table: ClassVar[dict] = {}
    start_urls: list[str] = ["http://site.example/"]
    custom_settings = {"DOWNLOAD_DELAY": 1, "SINCE": datetime.date(2020, 1, 1)}

    def __init__(self, pages: int, sample=False, *args, **kwargs):
        """
        Args:
            pages: how many
        """
        super().__init__(*args, **kwargs)

    @classmethod
    def from_crawler(cls, crawler, *args, since="2020-01-01", **kwargs):
        return super().from_crawler(crawler, *args, **kwargs)


class Strict(Base):
    name = "strict"

    def __init__(self, day):
        super().__init__()
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "scrapy.cfg": "[settings]\ndefault = shop.settings\n",
        "shop/__init__.py": "",
        "shop/settings.py": "SPIDER_MODULES = ['shop.spiders']\nROBOTSTXT_OBEY = True\n",
        "shop/spiders/__init__.py": "",
        "shop/spiders/a_broken.py": "import nothing_here\n",
        "shop/spiders/b_exits.py": "raise SystemExit('no')\n",
        "shop/spiders/more/__init__.py": "",
        "shop/spiders/more/quotes.py": SPIDERS,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def describe(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "yardscrapy.describe"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "platform"), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.covers("SC.5")
def test_spiders_arguments_and_settings_are_described(project: Path) -> None:
    done = describe(project)
    assert done.returncode == 0, done.stderr
    assert "noise" in done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    assert (content["version"], content["kind"]) == (1, "scrapy")
    assert content["settings"]["ROBOTSTXT_OBEY"] is True
    quotes, strict = content["spiders"]
    assert (quotes["name"], quotes["class"]) == ("quotes", "shop.spiders.more.quotes.Quotes")
    assert quotes["description"] == "Quotes by tag."
    assert quotes["settings"] == {"DOWNLOAD_DELAY": 1, "SINCE": "2020-01-01"}
    arguments = {each.pop("name"): each for each in quotes["arguments"]}
    assert {
        name: (each["type"], each["default"], each["required"], each["description"])
        for name, each in arguments.items()
    } == {
        "tag": ("str", "humor", False, ""),
        "pages": ("int", None, True, "how many"),
        "sample": ("bool", False, False, ""),
        "until": ("str", None, False, "last day"),
        "since": ("str", "2020-01-01", False, ""),
    }
    # Its constructor passes nothing on, so its base's argument is none of its own.
    assert [each["name"] for each in strict["arguments"]] == ["day"]
    assert [error["module"] for error in content["errors"]] == [
        "shop.spiders.a_broken",
        "shop.spiders.b_exits",
    ]


@pytest.mark.slow("2 s")
def test_two_spiders_of_one_name_and_a_loader_of_the_projects_own(project: Path) -> None:
    (project / "shop/spiders/more/again.py").write_text(
        "import scrapy\nclass Again(scrapy.Spider):\n    name = 'quotes'\n"
    )
    errors = json.loads(describe(project).stdout)["errors"]
    assert any("another spider is named 'quotes'" in error["error"] for error in errors)
    (project / "shop/loader.py").write_text(
        "from scrapy.spiderloader import SpiderLoader\nclass Own(SpiderLoader): ...\n"
    )
    with (project / "shop/settings.py").open("a") as file:
        file.write("SPIDER_LOADER_CLASS = 'shop.loader.Own'\n")
    content = json.loads(describe(project).stdout)
    # Scrapy's own loader gives up at the broken module.
    assert content["spiders"] == []
    (error,) = content["errors"]
    assert "nothing_here" in error["error"]


@pytest.mark.slow("3 s")
def test_a_folder_without_a_project_is_told_apart(tmp_path: Path, project: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (project / "scrapy.cfg").unlink()
    done = describe(empty)
    assert (done.returncode, done.stdout) == (EXIT_NOTHING, "")
    named = describe(project, SCRAPY_SETTINGS_MODULE="shop.settings")
    assert len(json.loads(named.stdout)["spiders"]) == 2
    broken = describe(project, SCRAPY_SETTINGS_MODULE="shop.nothing")
    assert json.loads(broken.stdout)["errors"][0]["module"] == "settings"
