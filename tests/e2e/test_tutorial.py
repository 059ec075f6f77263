"""docs/tutorial.md, followed line by line: its commands are typed, its answers must come."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.chromium import SLOW, field, watch
from tests.e2e.demo_process import free_port
from tools.requirement_marks import ROOT

TEXT = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
PASSWORD = "a-better-one-4711"
KILLED = "downloader --id agent-1"


def blocks(section: int, language: str) -> list[str]:
    """The fenced texts of a language in a numbered section, as they stand there."""
    found = re.search(rf"^## {section}\. .*?(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert found is not None
    return re.findall(rf"^```{language}\n(.*?)^```$", found[0], re.DOTALL | re.MULTILINE)


def commands(section: int, number: int = 0) -> list[str]:
    """The commands of a block of shell, without what the reader is told beside them."""
    lines = blocks(section, "sh")[number].replace("\\\n", " ").splitlines()
    return [re.sub(r"\s+#.*", "", line) for line in lines]


@dataclass
class Reader:
    """Somebody with a home folder and a terminal in the clone, whose ports may be others."""

    home: Path
    port: int
    site_port: int

    def __post_init__(self) -> None:
        self.background: list[subprocess.Popen[bytes]] = []
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "CRAWLYARD_DATA": str(self.home / "data"),
            "ARGS": f"--port {self.port}",
        }

    def own(self, text: str) -> str:
        """The same text with the ports of this test: others have the usual ones."""
        return text.replace(":8000", f":{self.port}").replace("8123", str(self.site_port))

    def types(self, command: str, *, answers: str = "", status: int = 0) -> str:
        """What a command prints; ``answers`` is what a person types when it asks."""
        done = subprocess.run(
            ["/bin/bash", "-c", self.own(command)],
            cwd=ROOT,
            env=self.environment,
            input=answers,
            capture_output=True,
            text=True,
            timeout=240,
            # A program that asks for a secret would ask the terminal of these tests.
            start_new_session=True,
            check=False,
        )
        assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def leaves_running(self, command: str, log: Path) -> subprocess.Popen[bytes]:
        """Start it in a terminal of its own."""
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["/bin/bash", "-c", f"{self.own(command)}"],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.background.append(process)
        return process

    def presses_ctrl_c(self) -> None:
        """In every terminal; the terminal sends it to all that run there."""
        for process in reversed(self.background):
            os.killpg(process.pid, signal.SIGINT)
        for process in self.background:
            process.wait(60)


def until(happened: Callable[[], object], log: Path, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-6000:]
        time.sleep(0.2)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path / "home", free_port(), free_port())
    reader.home.mkdir()
    try:
        yield reader
    finally:
        for process in reader.background:
            for each in family(process.pid):
                each.kill()
            process.kill()
            process.wait()


def family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def makes_a_site_and_a_spider(reader: Reader) -> None:
    script = blocks(1, "sh")[0]
    reader.leaves_running(script, reader.home / "site.log")
    until(lambda: (reader.home / "tutorial/site/page-60.html").exists(), reader.home / "site.log")
    spiders = reader.home / "tutorial" / "spiders"
    spiders.mkdir()
    (spiders / "books.py").write_text(reader.own(blocks(2, "python")[0]))
    tried = [line for line in commands(2) if line != "make install"]
    report = json.loads(reader.types("\n".join(tried)).splitlines()[-1])
    assert (report["total"], report["success"], report["failed"], report["items"]) == (
        10,
        10,
        0,
        100,
    )
    assert '"total":10,"success":10,"failed":0' in TEXT
    assert len((spiders / "books.jsonl").read_text().splitlines()) == 100


def starts_the_platform(reader: Reader) -> tuple[Path, str]:
    """The log of its terminal, and the link for the first administrator."""
    log = reader.home / "up.log"
    reader.leaves_running(commands(3)[0], log)
    until(lambda: "Ctrl-C stops" in log.read_text(), log)
    link = re.search(r"(http\S+/welcome/#\S+)", log.read_text())
    assert link is not None, log.read_text()
    return log, link[1]


def makes_a_project_and_a_job(page: Page, link: str) -> None:
    page.goto(link)
    page.locator("#id_username").fill("admin")
    page.locator("#id_password").fill(PASSWORD)
    page.locator("#id_again").fill(PASSWORD)
    page.locator("#id_again").press("Enter")
    page.wait_for_url(lambda url: "/welcome/" not in url)
    expect(page.locator("body")).to_contain_text("Needs attention")
    expect(page.locator("body")).to_contain_text("Nothing")
    page.goto("/admin/projects/project/add/")
    for name, value in (("name", "Shop"), ("slug", "shop"), ("allowed_networks", "127.0.0.0/8")):
        field(page, name).fill(value)
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_url("**/project/")
    page.goto("/admin/jobs/job/add/")
    field(page, "project").select_option(label="Shop")
    field(page, "name").fill("books")
    field(page, "spider").fill("books:Books")
    page.get_by_role("button", name="Save and continue editing").click()
    page.wait_for_url("**/change/")


def starts_a_run(page: Page) -> None:
    page.get_by_role("button", name="Start").first.click()
    page.wait_for_url(re.compile(r"/runs/\d+$"))
    state = page.locator("#run [data-state]").first
    expect(state).to_have_attribute("data-state", "exited", timeout=180_000)
    run = page.locator("#run")
    expect(run).to_contain_text("All requests accounted for.")


def makes_a_token(page: Page) -> str:
    page.goto("/admin/access/apitoken/add/")
    field(page, "name").fill("tutorial")
    page.get_by_label("Write: everything", exact=True).check()
    page.get_by_role("button", name="Save", exact=True).click()
    token = page.locator("#new-token").inner_text()
    assert token.startswith("cy_")
    return token


def looks_at_the_data(reader: Reader) -> None:
    stats, get = commands(6)
    stored = {"stored": 600, "rejected": 0, "in_flight": 0}
    until(
        lambda: (
            json.loads(reader.types(f"{stats} -o json"))["accounting"] | stored
            == json.loads(reader.types(f"{stats} -o json"))["accounting"]
        ),
        reader.home / "up.log",
        60,
    )
    reader.types(get)
    lines = (reader.home / "tutorial" / "books.csv").read_text().splitlines()
    assert len(lines) == 601
    assert "Book 600" in lines[-1]
    key, change, again, compare = commands(6, 1)
    assert json.loads(reader.types(key))["key_fields"] == ["title"]
    reader.types(change)
    reader.types(again)

    def compared() -> bool:
        found = json.loads(reader.types(f"{compare} -o json"))
        return (found["new"], found["changed"], found["removed"], found["added"]) == (3, 1, 1, 0)

    until(compared, reader.home / "up.log", 60)
    said = reader.types(compare)
    assert "7.50" in said
    assert "6.90" in said


def works_in_a_terminal(reader: Reader, token: str) -> None:
    login, runs, start, logs, counters = commands(5)
    reader.types(login, answers=f"{token}\n")
    assert "books" in reader.types(runs)
    reader.types(start)
    lines = reader.types(logs).splitlines()
    assert "60 requests succeeded, 0 failed; 60 pages, 600 items" in lines[-1]
    assert "60" in reader.types(counters)
    looks_at_the_data(reader)
    patch, schedule = commands(7)
    assert json.loads(reader.types(patch))["cron"] == "*/5 * * * *"
    assert "UTC" in reader.types(schedule)


def routes_work(reader: Reader) -> None:
    (reader.home / "tutorial" / "rules.yaml").write_text(blocks(8, "yaml")[0])
    typed = commands(8)
    statuses = [1 if "exit status 1" in line else 0 for line in blocks(8, "sh")[0].splitlines()]
    said = [
        reader.types(command, status=status)
        for command, status in zip(typed, statuses, strict=True)
    ]
    assert "The task matches a condition of late_pages." in said[2]
    assert "No rule matches the task." in said[3]
    project = re.search(r"^id\s+(\d+)", said[4], re.MULTILINE)
    assert project is not None, said[4]
    assert f"routing/projects/{project[1]}/task" in typed[5]
    items = typed[6]
    until(lambda: "delivered" in reader.types(items), reader.home / "up.log", 30)
    until(lambda: "item" in reader.types(typed[7]), reader.home / "up.log", 30)


def breaks_an_agent(reader: Reader, log: Path) -> None:
    unschedule, start, kill, agents = commands(9)
    assert json.loads(reader.types(unschedule))["cron"] == ""
    runs = ".venv/bin/crawlyard runs list -o json"
    until(lambda: all(not each["active"] for each in json.loads(reader.types(runs))), log, 180)
    run = json.loads(reader.types(f"{start} -o json"))["id"]
    assert KILLED in kill
    time.sleep(5)
    # pkill would kill those of other tests, too.
    agent = next(
        each for each in family(reader.background[1].pid) if KILLED in " ".join(each.cmdline())
    )
    agent.kill()
    # Without times, levels, and where the data folder is.
    said = [
        line.partition("| ")[2].removesuffix(".../data/broker.sqlite3")
        for line in blocks(9, "text")[0].splitlines()
    ]
    assert len(said) == 4
    until(lambda: all(line in log.read_text() for line in said), log, 60)
    assert "agent-1" in reader.types(agents)
    show = f".venv/bin/crawlyard api GET runs/{run}"

    def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = json.loads(reader.types(show))
        return None if found["active"] else found

    until(ended, log, 180)
    books = json.loads(reader.types(f".venv/bin/crawlyard runs counters {run} -o json"))
    assert (books["total"], books["success"], books["failed"]) == (60, 60, 0), books


@pytest.mark.browser
@pytest.mark.long("the demo, the command line, the pages: each is tried on its own")
@pytest.mark.timeout(900)
def test_the_first_hour(reader: Reader, browser: Browser, problems: list[str]) -> None:
    makes_a_site_and_a_spider(reader)
    log, link = starts_the_platform(reader)
    context = browser.new_context(base_url=f"http://127.0.0.1:{reader.port}")
    context.set_default_timeout(SLOW)
    page = context.new_page()
    watch(page, problems)
    makes_a_project_and_a_job(page, link)
    starts_a_run(page)
    works_in_a_terminal(reader, makes_a_token(page))
    routes_work(reader)
    breaks_an_agent(reader, log)
    page.goto("/admin/")
    page.get_by_role("link", name="System health").first.click()
    expect(page.locator("body")).to_contain_text("All parts are OK.")
    context.close()
    reader.presses_ctrl_c()
    assert problems == []
