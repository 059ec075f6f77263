"""manage.py demo: run the whole product on this machine and crawl a sample site."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from crawlyard.demo import history
from crawlyard.demo import job as demo_job
from crawlyard.demo.progress import Progress
from crawlyard.demo.sample_site import SiteServer, write_sample
from crawlyard.supervisor import Supervisor, UnitFailed
from crawlyard.units import box, object_server
from crawlyard.web import check_port
from yardkit.broker import connect
from yardkit.stop import Stop

START_SECONDS = 60.0
LAST_REPORT_SECONDS = 15.0
STORED_SECONDS = 60.0


class Stopped(Exception):
    """A stop was requested."""


class Command(BaseCommand):
    """Start everything, run the sample job, and keep the admin running."""

    help = "Try everything on this machine: a sample site, a sample job, two agents."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--site", type=Path, help="crawl this folder of HTML")
        parser.add_argument("--url", help="crawl this address")
        parser.add_argument("--exit", action="store_true", help="stop when the run has ended")
        parser.add_argument("--json", action="store_true", help="print one JSON object last")
        parser.add_argument("--port", type=int, default=8000, help="port of the admin")
        parser.add_argument("--agents", type=int, default=2, help="number of agents")
        parser.add_argument(
            "--engines",
            choices=("embedded", "configured"),
            default="embedded",
            help="configured: the stores of the settings",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit status 0 only if the run ended by itself and all requests are accounted for."""
        self._talk: TextIO = sys.stderr
        if options["site"] and not options["site"].is_dir():
            raise CommandError(f"--site {options['site']}: no such folder", returncode=2)
        check_port("127.0.0.1", options["port"])
        connect(settings.BROKER_URL, name="crawlyard demo", timeout=5.0).close()
        self._say("preparing the database …")
        call_command("migrate", verbosity=0, interactive=False)
        server = f"http://127.0.0.1:{options['port']}"
        link = demo_job.admin_link(server, renew=options["engines"] == "embedded")
        with Stop() as stop:
            self._stop = stop
            site, address = self._serve_site(options)
            try:
                self._run(options, address, link)
            except Stopped:
                self._say("stopped")
            finally:
                if site is not None:
                    site.stop()

    def _serve_site(self, options: dict[str, Any]) -> tuple[SiteServer | None, str]:
        if options["url"]:
            return None, options["url"]
        folder = options["site"]
        if folder is None:
            folder = settings.DATA_DIR / "sample-site"
            write_sample(folder)
        site = SiteServer(folder)
        return site, site.start()

    def _run(self, options: dict[str, Any], address: str, link: str | None) -> None:
        log_path = settings.DATA_DIR / "demo.log"
        with log_path.open("a", encoding="utf-8") as log:

            def write(name: str, line: str) -> None:
                log.write(f"{name:<10} | {line}\n")
                log.flush()

            units = box(
                host="127.0.0.1",
                port=options["port"],
                agents=options["agents"],
                builds_apart=False,
                objects=object_server(
                    os.environ,
                    url=settings.OBJECTS_URL,
                    public_url=settings.OBJECTS_PUBLIC_URL,
                    listen=settings.OBJECTS_LISTEN,
                ),
            )
            self._supervisor = Supervisor(units, write)
            self._say(f"starting {len(units)} processes; their log is {log_path}")
            self._began = timezone.now()
            self._supervisor.start()
            try:
                self._crawl_and_stay(options, address, link)
            except UnitFailed as failure:
                raise CommandError(str(failure), returncode=2) from failure
            finally:
                self._supervisor.stop()

    def _crawl_and_stay(self, options: dict[str, Any], address: str, link: str | None) -> None:
        admin = f"http://127.0.0.1:{options['port']}/"
        began = self._began
        self._wait_for(lambda: _answers(f"{admin}healthz"), "the web did not answer")
        wanted = options["agents"]
        self._wait_for(lambda: demo_job.agents_since(began) >= wanted, "an agent is missing")
        self._say(f"admin: {admin}  {_link_line(link)}")
        job = demo_job.make_job(url=address, name=_job_name(options))
        run = demo_job.start(job=job)
        self._say(f"run {run.pk} crawls {address}")
        self._watch(run.pk)
        end = self._until_stored(run.pk)
        self._summarise(end)
        if options["json"]:
            self.stdout.write(json.dumps(end.report()))
            self.stdout.flush()
        if options["exit"]:
            if not end.succeeded():
                raise CommandError(
                    "the run did not end with everything accounted for", returncode=1
                )
            return
        if options["engines"] == "embedded" and history.make():
            self._say(f"{history.NAME}: a job with five weeks of made-up runs, to show its yield")
        self._say(f"the run's data: {admin}runs/{run.pk}/data; Ctrl-C ends everything")
        while True:
            self._step(0.2)

    def _step(self, timeout: float) -> None:
        self._supervisor.step(timeout)
        if self._stop.requested:
            raise Stopped

    def _wait_for(self, ready: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self._step(0.1)
            if ready():
                return
        raise CommandError(f"{complaint} within {START_SECONDS:.0f} s", returncode=1)

    def _until_stored(self, run: int) -> demo_job.Progression:
        """Wait until the run's items are in the table, or for a minute."""
        deadline = time.monotonic() + STORED_SECONDS
        while True:
            state = demo_job.look(run)
            if state.stored or time.monotonic() > deadline:
                return state
            self._step(0.3)

    def _watch(self, run: int) -> None:
        progress = Progress(self._talk)
        last_report_by = 0.0
        while True:
            self._step(0.1)
            state = demo_job.look(run)
            books = state.books
            progress.show(
                done=books.success + books.failed,
                total=books.total,
                pages=books.pages,
                state=state.run.get_state_display(),
            )
            if state.ended and not last_report_by:
                last_report_by = time.monotonic() + LAST_REPORT_SECONDS
            if state.over or (last_report_by and time.monotonic() > last_report_by):
                progress.end()
                return

    def _summarise(self, end: demo_job.Progression) -> None:
        report = end.report()
        self._say(
            f"run {report['run']} {report['state']} after {report['seconds']} s: "
            f"{report['pages']} pages; total {report['total']} = "
            f"success {report['success']} + failed {report['failed']} + left {report['left']}; "
            f"{report['agents']} agents used"
        )
        self._say(f"{report['items_stored']} of {report['items']} items are in the dataset")
        if end.run.reason:
            self._say(f"reason: {end.run.reason}")
        for failure in report.get("failures", []):
            self._say(f"failed: {failure['url']}: {failure['reason']}")

    def _say(self, line: str) -> None:
        self._talk.write(f"{line}\n")
        self._talk.flush()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2.0):  # noqa: S310 - own address
            return True
    except (urllib.error.URLError, OSError):
        return False


def _job_name(options: dict[str, Any]) -> str:
    if options["url"]:
        return "Given address"
    return "Given folder" if options["site"] else "Sample site"


def _link_line(link: str | None) -> str:
    if link:
        return f"set your password (link is good once): {link}"
    return "log in with your own name and password"
