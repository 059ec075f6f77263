"""``yardscrapy crawl`` outside the platform, and errors of users."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.yardscrapy.runs import crawl

pytestmark = [pytest.mark.slow("starts interpreters"), pytest.mark.covers("SC.1")]

SPIDER = """
import scrapy
class Words(scrapy.Spider):
    name = "words"
    start_urls = ["data:,hello"]
    def parse(self, response):
        yield {"text": response.text, "word": getattr(self, "word", None)}
"""


def project(folder: Path, *, settings: str = "", spider: str = SPIDER) -> Path:
    package = folder / "words" / "spiders"
    package.mkdir(parents=True)
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = words.settings\n")
    (folder / "words" / "__init__.py").write_text("")
    (folder / "words" / "settings.py").write_text(
        f"SPIDER_MODULES = ['words.spiders']\nTELNETCONSOLE_ENABLED = False\n{settings}\n"
    )
    (package / "__init__.py").write_text("")
    (package / "words.py").write_text(spider)
    return folder


def test_a_plain_run_is_scrapy_crawl(python: str, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", settings="LOG_FORMAT = '<%(message)s>'")
    items = tmp_path / "items.jsonl"
    done = crawl(
        python, "words", "-a", "word=x", "-s", "LOG_LEVEL=INFO", "-o", str(items), cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(items.read_text()) == {"text": "hello", "word": "x"}
    assert "<Spider closed (finished)>" in done.stderr


def test_errors_are_one_clear_line(python: str, tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    missing = crawl(python, "sentences", "-s", "LOG_ENABLED=0", cwd=folder)
    assert missing.returncode == 2
    assert missing.stderr.splitlines()[-1] == (
        "yardscrapy: there is no spider 'sentences' in this project; there are: words"
    )
    nowhere = crawl(python, "words", cwd=tmp_path)
    assert nowhere.returncode == 2
    assert nowhere.stderr.startswith(f"yardscrapy: no Scrapy project in {tmp_path}: ")
    unnamed = crawl(python, cwd=folder)
    assert (unnamed.returncode, "name one spider" in unnamed.stderr) == (2, True)
    argument = crawl(python, "words", "-a", "word", cwd=folder)
    assert (argument.returncode, "-a NAME=VALUE" in argument.stderr) == (2, True)


def test_a_broken_project_says_what_is_broken(python: str, tmp_path: Path) -> None:
    settings = crawl(python, "words", cwd=project(tmp_path / "a", settings="import nowhere"))
    assert settings.returncode == 2
    assert settings.stderr.splitlines()[-1] == (
        "yardscrapy: the project's settings cannot be read: "
        "ModuleNotFoundError: No module named 'nowhere'"
    )
    spider = crawl(python, "words", cwd=project(tmp_path / "b", spider="import nowhere"))
    assert spider.returncode == 2
    assert spider.stderr.splitlines()[-1] == (
        "yardscrapy: the project's spiders cannot be read: "
        "ModuleNotFoundError: No module named 'nowhere'"
    )


def test_a_spider_that_cannot_be_made_fails_the_command(python: str, tmp_path: Path) -> None:
    spider = SPIDER + "    def __init__(self, needed): self.needed = needed\n"
    done = crawl(python, "words", cwd=project(tmp_path / "p", spider=spider))
    assert done.returncode == 2
    assert "missing 1 required positional argument: 'needed'" in done.stderr


def test_the_failure_is_left_for_the_runner(python: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    crawl(python, "words", cwd=tmp_path, CRAWLYARD_RUN_DIR=str(folder))
    left = json.loads((folder / "exit.json").read_text())
    assert (left["state"], left["total"]) == ("failed", 0)
    assert left["reason"].startswith("no Scrapy project in")
