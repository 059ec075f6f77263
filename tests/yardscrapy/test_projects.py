"""Given Scrapy projects, unchanged, on recorded pages: `make test-scrapy PROJECTS=folder`.

Plain Scrapy takes the pages through a proxy, with its own handlers; the platform's run takes them
from agents that replay. Politeness is off on both sides, by the command line. Items that Scrapy
cannot write as JSON, such as bytes, are compared by the texts of their fields, from XML.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.yardscrapy.recording_proxy import recording_proxy
from tests.yardscrapy.runs import ENVIRONMENT, Reported, Watcher, key, started
from tests.yardscrapy.scrapy_platform import PROJECTS, ScrapyPlatform

pytestmark = [
    pytest.mark.slow("starts a center and agents"),
    pytest.mark.covers("SC.7", "OB.5"),
    pytest.mark.timeout(900),
]

# And plain Scrapy must use the proxy, also where the project turns proxies off.
_SETTINGS = (
    *("-s", "DOWNLOAD_DELAY=0", "-s", "AUTOTHROTTLE_ENABLED=0"),
    *("-s", "HTTPCACHE_ENABLED=0", "-s", "HTTPPROXY_ENABLED=1"),
)
_RUN_SECONDS = 400.0


@dataclass(frozen=True)
class Case:
    """One spider: its project, what ``crawl`` takes, and the project's recording."""

    project: Path
    words: tuple[str, ...]
    recording: Path

    @property
    def python(self) -> str:
        """The project's own interpreter, if it has one."""
        own = self.project / ".venv" / "bin" / "python"
        return str(own) if own.exists() else sys.executable

    def __str__(self) -> str:
        return f"{self.project.name}-{self.words[0]}"


def cases() -> list[Case]:
    """Each spider of each project that has a recording: our own, or those of PROJECTS.

    ``spiders.txt`` beside the pages lists spiders with their options; else all are tried.
    """
    folder = Path(os.environ.get("SCRAPY_PROJECTS") or PROJECTS).resolve()
    recordings = Path(os.environ.get("SCRAPY_RECORDINGS") or folder).resolve()
    found = []
    for config in sorted(folder.glob("*/scrapy.cfg")):
        project = config.parent
        recording = recordings / project.name
        if recording == project:
            recording = project / "recording"
        if not recording.is_dir():
            continue
        listed = recording / "spiders.txt"
        lines = listed.read_text().splitlines() if listed.exists() else _listed(project)
        found += [Case(project, tuple(shlex.split(line)), recording) for line in lines if line]
    return found


def _listed(project: Path) -> list[str]:
    python = Case(project, (), project).python
    done = subprocess.run(
        [python, "-m", "scrapy", "list"],
        cwd=project,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.fixture(scope="module")
def platforms(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[Path, tuple[ScrapyPlatform, Watcher]]]:
    made: dict[Path, tuple[ScrapyPlatform, Watcher]] = {}
    yield made
    for platform, watcher in made.values():
        watcher.close()
        platform.close()


@pytest.fixture
def replaying(
    case: Case,
    platforms: dict[Path, tuple[ScrapyPlatform, Watcher]],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[ScrapyPlatform, Watcher]:
    """Center and agents that replay the project's recording."""
    if case.recording not in platforms:
        folder = tmp_path_factory.mktemp("platform")
        platform = ScrapyPlatform(folder, replay=case.recording)
        platforms[case.recording] = platform, Watcher(platform)
    return platforms[case.recording]


def feeds(folder: Path) -> list[str]:
    """Return the options of ``crawl`` that write the items.

    XML first: the exporter of JSON lines raises at the first item with bytes.
    """
    return ["-o", f"{folder / 'items.xml'}:xml", "-o", f"{folder / 'items.jsonl'}:jsonlines"]


def exported(folder: Path) -> list[str]:
    """Return the sorted items of the feeds, as JSON or as the texts of their fields."""
    lines = (folder / "items.jsonl").read_text().splitlines()
    if lines:
        return sorted(key(json.loads(line)) for line in lines)
    root = ElementTree.parse(folder / "items.xml").getroot()  # noqa: S314 - our own file
    return sorted(key(of_xml(item)) for item in root)


def of_xml(element: ElementTree.Element) -> Any:
    """Return what Scrapy has written as XML, with texts for all that is neither dict nor list."""
    if not len(element):
        text = element.text or ""
        return ast.literal_eval(text).decode() if re.match("b['\"]", text) else text
    if all(child.tag == "value" for child in element):
        return [of_xml(child) for child in element]
    return {child.tag: of_xml(child) for child in element}


def texts(value: Any) -> Any:
    """Return a stored value as ``of_xml`` has it."""
    if isinstance(value, dict):
        return {name: texts(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [texts(inner) for inner in value]
    return str(value)


def stored_alike(item: dict[str, Any]) -> str:
    """Return an item with its dates as we store them: feeds have a blank before the time."""
    return re.sub(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d)", r"\1T\2", key(item))


@pytest.mark.parametrize("case", cases(), ids=str)
def test_items_equal_those_of_plain_scrapy(
    case: Case, replaying: tuple[ScrapyPlatform, Watcher], tmp_path: Path
) -> None:
    platform, watcher = replaying
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    words = (*case.words, *_SETTINGS)
    with recording_proxy(case.recording, tmp_path) as address:
        done = subprocess.run(
            [case.python, "-m", "scrapy", "crawl", *words, *feeds(plain)],
            cwd=case.project,
            env={**ENVIRONMENT, "http_proxy": address, "https_proxy": address},
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    run_words = (*words, *feeds(ours))
    with started(platform, tmp_path / "run", case.python, *run_words, project=case.project) as run:
        _, left, log = run.end(_RUN_SECONDS)
    expected = exported(plain)
    assert expected, done.stderr
    assert exported(ours) == expected, log
    assert left["state"] == "exited", log
    reported: Reported = watcher.of(run.run)
    assert len(reported.items) == len(expected)
    is_json = (plain / "items.jsonl").stat().st_size
    stored = sorted(stored_alike(item if is_json else texts(item)) for item in reported.items)
    assert stored == sorted(stored_alike(json.loads(line)) for line in expected)
