"""The command as people run it: ends, stops, refusals. Real processes, real HTTP."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.yardspider.commands import command, environment, run
from tests.yardspider.sites import HTML, Reply, serve

SPIDERS = """
import asyncio, sys, time
from yardspider import Request, Spider, SpiderSettings

class Pages(Spider):
    settings = SpiderSettings(speed=0)
    def start(self):
        yield Request(self.arguments["url"])
    def parse(self, response):
        for url in response.links(same_origin=True):
            yield Request(url)
        yield {"url": response.url, "text": response.css("title::text").get()}

class Blocks(Pages):
    def parse(self, response):
        print("blocked", flush=True)
        time.sleep(60)

class Swallows(Pages):
    async def parse(self, response):
        print("blocked", flush=True)
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass

class Raises(Pages):
    def start(self):
        raise RuntimeError("the list is\\nempty")

class Forges(Pages):
    def parse(self, response):
        raise RuntimeError("\\x1b[31mred\\n2026-01-01 forged")

class NeedsMore(Spider):
    def __init__(self, arguments):
        super().__init__(arguments)
        self.shop = self.arguments["shop"]

class NoSpider:
    pass

number = 7
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SPIDERS)
    (tmp_path / "wrong.py").write_text("def f(:\n")
    (tmp_path / "raising.py").write_text("\nx = {}['shop']\n")
    (tmp_path / "needing.py").write_text("import a_module_nobody_has\n")
    return tmp_path


def pages(path: str) -> Reply:
    """A tree of 40 pages and one broken link."""
    number = int("0" + re.sub(r"\D", "", path))
    body = f"<title>{number}</title>"
    if number < 13:
        body += "".join(f"<a href=/{number * 3 + n}>x</a>" for n in (1, 2, 3))
    return (200, HTML, body.encode()) if number != 39 else (404, HTML, b"")


# --- good ends --------------------------------------------------------------------------------


@pytest.mark.slow("2 s")
def test_a_local_run(folder: Path) -> None:
    with serve(pages) as site:
        done = run(
            folder,
            *("run", "shop:Pages", "--local", "--json", "--output", "out.jsonl"),
            *("--argument", f"url={site.url}/", "--set", "concurrency=7"),
        )
    assert (done.status, done.errors) == (0, "")
    assert done.output.count("\n") == 1
    summary = done.summary
    assert (summary["state"], summary["reason"]) == ("exited", "")
    assert (summary["total"], summary["success"], summary["failed"]) == (40, 39, 1)
    assert (summary["left"], summary["pages"], summary["items"]) == (0, 39, 39)
    assert summary["agents"] == {"local": 40}
    assert summary["failures"] == [{"url": f"{site.url}/39", "status": 404, "reason": "HTTP 404"}]
    items = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert sorted(int(item["text"]) for item in items) == list(range(39))
    assert len(site.paths) == 40


@pytest.mark.slow("2 s")
@pytest.mark.covers("S3.19")
def test_a_local_run_works_on_seeds_of_a_file_without_any_service(folder: Path) -> None:
    (folder / "seedy.py").write_text(
        "from yardspider import Seed, SeedSpider\n"
        "class Notes(SeedSpider):\n"
        "    def requests(self, seed):\n"
        "        seed.ignore() if seed.data == 'two' else None\n"
        "        return [Seed('three'), {'seed': seed.data}]\n"
    )
    (folder / "seeds.txt").write_text("one\n\ntwo\n")
    options = ("--set", "initial_seeds=seeds.txt", "--set", "empty_seconds=0.2")
    done = run(folder, "run", "seedy:Notes", "--local", "--json", "--quiet", *options)
    assert done.status == 0, done.errors
    told = {name: count for name, count in done.summary["seeds"].items() if count}
    assert told == {"leased": 3, "succeeded": 2, "ignored": 1, "added": 3, "duplicates": 2}
    people = run(folder, "run", "seedy:Notes", "--local", *options)
    assert "seeds: 3 leased, 2 succeeded, 1 ignored, 3 added, 2 duplicates" in people.output


@pytest.mark.slow("2 s")
def test_the_summary_for_people(folder: Path) -> None:
    with serve(pages) as site:
        arguments = ["run", "shop:Pages", "--local", "--argument", f"url={site.url}/"]
        told = run(folder, *arguments)
        quiet = run(folder, *arguments, "--quiet")
    first, second = told.output.splitlines()
    assert first.startswith("exited: 39 pages, 40 requests (39 succeeded, 1 failed, 0 left), 39 it")
    assert second == f"failed: {site.url}/39: HTTP 404"
    assert (quiet.status, quiet.output, quiet.errors) == (0, "", "")


@pytest.mark.slow("1 s")
def test_items_and_exit_state_in_the_folder_of_the_run(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "items.jsonl").write_text('{"kept": true}\n')
    with serve(pages) as site:
        done = run(
            folder,
            *("run", "shop:Pages", "--local", "--argument", f"url={site.url}/"),
            env={"CRAWLYARD_RUN_DIR": str(folder / "run")},
        )
    assert done.status == 0
    left = json.loads((folder / "run" / "exit.json").read_text())
    assert (left["state"], left["total"], left["success"], left["left"]) == ("exited", 40, 39, 0)
    lines = (folder / "run" / "items.jsonl").read_text().splitlines()
    assert len(lines) == 40
    assert lines[0] == '{"kept": true}'
    assert sorted(path.name for path in (folder / "run").iterdir()) == ["exit.json", "items.jsonl"]


# --- bad input --------------------------------------------------------------------------------

LOCAL = ["--local"]
URL = ["--argument", "url={site}/"]
BAD = {
    "not local": (["shop:Pages"], {}, "CRAWLYARD_RUN is not set"),
    "no class named": (["shop", *LOCAL], {}, "'shop' names no spider; write module:Class"),
    "odd module": (["../shop:Pages", *LOCAL], {}, "'../shop:Pages' names no spider"),
    "unknown module": (["shopp:Pages", *LOCAL], {}, "no module 'shopp' in "),
    "unknown class": (["shop:Page", *LOCAL], {}, "has no class 'Page'; its spiders: Blocks, "),
    "no spider": (["shop:NoSpider", *LOCAL], {}, "shop:NoSpider is no spider"),
    "no class": (["shop:number", *LOCAL], {}, "shop:number is no spider"),
    "syntax": (["wrong:Pages", *LOCAL], {}, "module wrong cannot be read: invalid syntax (wr"),
    "raising module": (["raising:X", *LOCAL], {}, "KeyError: 'shop' (raising.py:2)"),
    "missing package": (["needing:X", *LOCAL], {}, "needs 'a_module_nobody_has'"),
    "constructor": (["shop:NeedsMore", *LOCAL], {}, "NeedsMore raised KeyError: 'shop' (shop.py:"),
    "site without url": (["yardspider.spiders:SiteSpider", *LOCAL], {}, 'the argument "url"'),
    "unknown setting": (["shop:Pages", *LOCAL, "--set", "sped=1"], {}, "no setting 'sped'"),
    "bad setting": (["shop:Pages", *LOCAL, "--set", "speed=fast"], {}, "--set: Expected `float`"),
    "setting out of range": (["shop:Pages", *LOCAL, "--set", "concurrency=0"], {}, "at least 1"),
    "endless setting": (["shop:Pages", *LOCAL, "--set", "speed=inf"], {}, "speed must be"),
    "no pair": (["shop:Pages", *LOCAL, "--argument", "url"], {}, "write it as KEY=VALUE"),
    "raising start": (
        ["shop:Raises", *LOCAL, *URL],
        {},
        "RuntimeError: the list is empty (shop.py:",
    ),
    "bad url": (["shop:Pages", *LOCAL, "--argument", "url=nowhere"], {}, "URL: 'nowhere'"),
    "no folder": (["shop:Pages", *LOCAL], {"CRAWLYARD_RUN_DIR": "/none"}, "CRAWLYARD_RUN_DIR"),
    "output": (
        ["shop:Pages", *LOCAL, "--output", "no/such/x"],
        {},
        "cannot write no/such/x: No su",
    ),
    "full disk": (["shop:Pages", *LOCAL, "--output", "/dev/full", *URL], {}, "No space left"),
    "downloader": (["shop:Pages", *LOCAL], {"CRAWLYARD_DOWNLOADER": "[]"}, "CRAWLYARD_DOWNLOADER"),
    "bad run": (["shop:Pages"], {"CRAWLYARD_RUN": "x"}, "CRAWLYARD_RUN: 'x' is no whole number"),
    "no token": (["shop:Pages"], {"CRAWLYARD_RUN": "1"}, "CRAWLYARD_RUN_TOKEN: it is not set"),
    "no broker": (
        ["shop:Pages"],
        {"CRAWLYARD_RUN": "1", "CRAWLYARD_RUN_TOKEN": "t"},
        "BROKER_URL: it is not set",
    ),
    "wrong broker": (
        ["shop:Pages"],
        {"CRAWLYARD_RUN": "1", "CRAWLYARD_RUN_TOKEN": "t", "BROKER_URL": "redis://u:sesame@h/"},
        "BROKER_URL: its URL starts with 'redis'://",
    ),
    "arguments": (
        ["shop:Pages"],
        {
            "CRAWLYARD_RUN": "1",
            "CRAWLYARD_RUN_TOKEN": "t",
            "BROKER_URL": "sqlite:///x",
            "CRAWLYARD_ARGUMENTS": "{",
        },
        "CRAWLYARD_ARGUMENTS: Input data was truncated",
    ),
}


@pytest.mark.slow("25 s")
@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_one_clear_line(case: str, folder: Path) -> None:
    arguments, env, text = BAD[case]
    env = {"CRAWLYARD_RUN_DIR": str(folder), **env}
    before = {path.name for path in folder.iterdir()}
    with serve(pages) as site:
        arguments = [argument.replace("{site}", site.url) for argument in arguments]
        done = run(folder, "run", *arguments, "--quiet", env=env)
    assert done.status == 2
    assert text in done.errors
    assert done.errors.count("\n") == 1, done.errors
    assert "Traceback" not in done.errors
    assert "sesame" not in done.errors
    after = {path.name for path in folder.iterdir()} - {"__pycache__"} - before
    if env["CRAWLYARD_RUN_DIR"] == str(folder):
        left = json.loads((folder / "exit.json").read_text())
        assert left["state"] == "failed"
        assert text in left["reason"]
    assert after <= {"exit.json", "items.jsonl"}


@pytest.mark.slow("2 s")
def test_an_unreachable_site_fails_the_run(folder: Path) -> None:
    with serve(pages) as site:
        url = site.url
    done = run(
        folder,
        *("run", "shop:Pages", "--local", "--json", "--argument", f"url={url}/"),
        *("--set", "retry_delay_seconds=0.01"),
    )
    assert done.status == 2
    assert done.errors.count("\n") == 1
    assert "run failed: no page could be fetched: refused: " in done.errors
    assert f"({url}/)" in done.errors
    assert done.summary["state"] == "failed"
    assert (done.summary["total"], done.summary["failed"]) == (1, 1)


@pytest.mark.slow("1 s")
def test_no_message_forges_a_log_line(folder: Path) -> None:
    with serve(pages) as site:
        done = run(folder, "run", "shop:Forges", "--local", "--argument", f"url={site.url}/")
    assert done.status == 2
    assert "\x1b" not in done.errors
    assert "\\x1b[31mred 2026-01-01 forged" in done.errors
    assert all(re.match(r"20\d\d-\d\d-\d\d .* ERROR ", line) for line in done.errors.splitlines())


@pytest.mark.slow("1 s")
def test_help_says_how(folder: Path) -> None:
    assert run(folder, "run", "--help").status == 0
    assert run(folder, "crawl").status == 2


# --- stopping ---------------------------------------------------------------------------------


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=environment(CRAWLYARD_RUN_DIR=str(folder)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow("6 s")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"]
)
def test_a_signal_stops_the_run_with_its_books_in_order(
    number: signal.Signals, status: int, folder: Path
) -> None:
    busy = threading.Semaphore(0)
    hold = threading.Event()

    def slow(path: str) -> Reply:
        if path.endswith(("7", "8")):
            busy.release()
            hold.wait(30)
        return pages(path)

    with serve(slow) as site:
        arguments = ("--argument", f"url={site.url}/", "--output", "out.jsonl")
        with started(folder, "run", "shop:Pages", "--local", "--json", *arguments) as process:
            assert busy.acquire(timeout=30)
            began = time.monotonic()
            process.send_signal(number)
            output, errors = process.communicate(timeout=30)
            took = time.monotonic() - began
        hold.set()
    assert process.returncode == status
    assert took < 5
    assert "Traceback" not in errors
    assert f"stopped by {number.name}" in errors
    summary = json.loads(output)
    assert summary["state"] == "stopped"
    assert summary["left"] > 0
    assert summary["total"] == summary["success"] + summary["failed"] + summary["left"]
    left = json.loads((folder / "exit.json").read_text())
    assert left == summary
    assert len((folder / "out.jsonl").read_text().splitlines()) == summary["items"]


@pytest.mark.slow("10 s")
@pytest.mark.parametrize("spider", ["Blocks", "Swallows"])
def test_a_callback_that_does_not_return_cannot_hold_up_the_stop(spider: str, folder: Path) -> None:
    with serve(pages) as site:
        arguments = ("--argument", f"url={site.url}/")
        with started(folder, "run", f"shop:{spider}", "--local", *arguments) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "blocked\n"
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
            took = time.monotonic() - began
    assert process.returncode == 143, errors
    assert took < 5
    assert "Traceback" not in errors
    assert json.loads((folder / "exit.json").read_text())["state"] == "stopped"


@pytest.mark.slow("2 s")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux: parent death signal")
def test_a_run_may_die_with_its_parent(folder: Path) -> None:
    """The parent is killed; the run gets SIGTERM from the kernel and ends in order."""
    parent = (
        "import subprocess, sys; "
        "print(subprocess.Popen(sys.argv[1:], stdout=sys.stdout).pid, flush=True); "
        "sys.stdin.read()"
    )
    hold = threading.Event()

    def slow(path: str) -> Reply:
        hold.wait(30)
        return pages(path)

    with serve(slow) as site:
        child = command("run", "shop:Pages", "--local", "--argument", f"url={site.url}/")
        process = subprocess.Popen(
            [sys.executable, "-c", parent, *child],
            cwd=folder,
            env=environment(CRAWLYARD_RUN_DIR=str(folder), CRAWLYARD_DIE_WITH_PARENT="1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert int(process.stdout.readline()) > 0
            wait_until(lambda: site.paths)
            process.kill()
            wait_until((folder / "exit.json").exists)
            # The pipe closes when the run, its last holder, is gone.
            process.stdout.read()
        finally:
            process.kill()
            process.communicate()
            hold.set()
    assert json.loads((folder / "exit.json").read_text())["state"] == "stopped"


def wait_until(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_the_sdk_needs_no_django(folder: Path) -> None:
    program = (
        "import sys, yardspider.cli, yardspider.testing, yardspider.spiders, "
        "yardspider.transports.local, yardspider.transports.remote; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'django', 'apps'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
