"""Unchanged projects with scrapy-playwright and scrapy-impersonate.

What they ask for is done by the job's downloader at an agent, or by themselves and counted.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.markers import CHROMIUM
from tests.yardscrapy.runs import ENVIRONMENT, Reported, Watcher, key, started
from tests.yardscrapy.scrapy_platform import LOOPBACK, PROJECTS, ScrapyPlatform
from tests.yardspider.sites import HTML, Site, serve

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow("starts a center, agents and browsers"),
    pytest.mark.timeout(240),
    pytest.mark.covers("SC.4"),
]

PROJECT = PROJECTS / "companions"
PAGE = b"""<!doctype html><title>t</title><p id=made>before</p>
<script>document.getElementById("made").textContent = "made by a script"</script>"""
BY_SCRIPT = [
    {"path": "/scripted", "text": "made by a script"},
    {"path": "/scripted?plain", "text": "before"},
]
SECONDS = 90.0


@pytest.fixture
def site() -> Iterator[Site]:
    with serve(dict.fromkeys(("/scripted", "/scripted?plain"), (200, HTML, PAGE))) as site:
        yield site


@pytest.fixture(scope="module")
def watcher(platform: ScrapyPlatform) -> Iterator[Watcher]:
    found = Watcher(platform)
    yield found
    found.close()


def words(spider: str, site: Site) -> list[str]:
    """Return what ``crawl`` takes; a project names its browser in its settings."""
    launch = {"executable_path": shutil.which(CHROMIUM) or CHROMIUM, "args": ["--no-sandbox"]}
    options = f"PLAYWRIGHT_LAUNCH_OPTIONS={json.dumps(launch)}"
    return [spider, "-a", f"site={site.url}", "-s", options]


def plain_items(spider: str, site: Site, folder: Path) -> list[dict[str, str]]:
    feed = folder / "plain.jsonl"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "scrapy", "crawl", *words(spider, site)),
            *("-o", f"{feed}:jsonlines"),
        ],
        cwd=PROJECT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return sorted((json.loads(line) for line in feed.read_text().splitlines()), key=key)


def reported_run(
    platform: ScrapyPlatform, watcher: Watcher, site: Site, folder: Path, spider: str, *more: str
) -> Reported:
    """Run a spider as a job whose downloader is the first of ``more``."""
    kind, *settings = more
    downloader = json.dumps({"allowed_networks": LOOPBACK, "type": kind})
    with started(
        platform,
        folder / "run",
        sys.executable,
        *words(spider, site),
        *settings,
        project=PROJECT,
        CRAWLYARD_DOWNLOADER=downloader,
    ) as run:
        status, left, log = run.end(SECONDS)
    assert (status, left["state"]) == (0, "exited"), log
    reported = watcher.of(run.run)
    reported.items.sort(key=key)
    return reported


@pytest.mark.parametrize(
    ("spider", "kind", "setting"),
    [("rendered", "browser", "BROWSER"), ("profiled", "impersonate", "IMPERSONATE")],
)
def test_requests_of_a_companion_go_to_agents_or_are_counted(
    platform: ScrapyPlatform,
    watcher: Watcher,
    site: Site,
    tmp_path: Path,
    spider: str,
    kind: str,
    setting: str,
) -> None:
    name = {"browser": "playwright"}.get(kind, kind)
    plain = plain_items(spider, site, tmp_path)
    assert plain == (
        BY_SCRIPT if kind == "browser" else [{**row, "text": "before"} for row in BY_SCRIPT]
    )
    site.paths.clear()
    direct = reported_run(
        platform, watcher, site, tmp_path, spider, "http", "-s", f"CRAWLYARD_{setting}=direct"
    )
    assert direct.items == plain
    assert direct.last.stats[f"crawlyard/direct_count/{name}"] == 1
    assert direct.last.sent == 1
    by_agents = reported_run(platform, watcher, site, tmp_path, spider, kind)
    assert f"crawlyard/direct_count/{name}" not in by_agents.last.stats
    assert by_agents.last.sent == 2
    # A job has one downloader: its browser renders the other page, too.
    assert by_agents.items[0] == plain[0]
    assert by_agents.items[1]["text"] == ("made by a script" if kind == "browser" else "before")
    # Browsers look for an icon by themselves.
    asked = sorted(path for path in site.paths if path != "/favicon.ico")
    assert asked == ["/scripted", "/scripted", "/scripted?plain", "/scripted?plain"]
