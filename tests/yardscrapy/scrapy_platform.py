"""Broker, center and agents as processes, and crawls of Scrapy projects with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.daemon_processes import ROOT, Daemons

PROJECTS = Path(__file__).parent / "projects"
LOOPBACK = ["127.0.0.0/8"]
# A host of this machine that the center is polite to: it has a rule.
POLITE_HOST = "127.0.0.2"
ADDONS = {"yardscrapy.addon.CrawlyardAddon": 100_000}
# One process makes them all: it takes two seconds to start.
# More than all tests with five versions of Scrapy take.
_RUNS = 200
_MAKE_RUNS = f"""
import json
from django.conf import settings
from apps.agents.hosts.models import HostRule
from apps.jobs.states import RunState
from tests.jobs.factories import make_job, make_project, make_run
from yardkit.tokens import sign_run_token
HostRule.objects.create(host={POLITE_HOST!r}, requests_per_second=100, concurrency=10)
project = make_project(allowed_networks={LOOPBACK!r})
jobs = [make_job(project=project) for _ in range({_RUNS})]
runs = [make_run(job=job, state=RunState.RUNNING).pk for job in jobs]
print(json.dumps([[run, sign_run_token(settings.SECRET_KEY, run)] for run in runs]))
"""


@dataclass(frozen=True)
class Crawled:
    """End of a crawl."""

    status: int
    items: list[dict[str, Any]]
    log: str
    stats: dict[str, Any]

    def item(self, path: str) -> dict[str, Any]:
        """Return the only item of a path."""
        (found,) = (item for item in self.items if item["url"].endswith(path))
        return found


class ScrapyPlatform:
    """Everything that a run needs.

    Args:
        path: folder of modules that only center and agents have.
        broker_url: instead of the embedded broker.
        replay: recording that the agents answer from, without limits of hosts.
    """

    def __init__(
        self,
        folder: Path,
        *,
        agents: int = 2,
        path: Path | None = None,
        broker_url: str = "",
        replay: Path | None = None,
    ) -> None:
        self.folder = folder
        self._replay = ["--replay", str(replay)] if replay else []
        unlimited = {"HOST_REQUESTS_PER_SECOND": "0", "HOST_CONCURRENCY": "0"} if replay else {}
        self.broker_url = broker_url or f"sqlite:///{folder / 'broker.sqlite3'}"
        self.daemons = Daemons(
            folder / "daemons",
            BROKER_URL=self.broker_url,
            PYTHONPATH=":".join(map(str, (ROOT, ROOT / "platform", *([path] if path else [])))),
            **unlimited,
        )
        self.daemons.migrate()
        self.daemons.start("center", "run_center", "--name", "center")
        self.agents = [f"agent-{number}" for number in range(1, agents + 1)]
        for agent in self.agents:
            self.start_agent(agent)
        self.daemons.until_logged("center", "is running")
        for agent in self.agents:
            self.daemons.until_logged(agent, "serves")
        made = self.daemons.manage("shell", "-v0", "-c", _MAKE_RUNS)
        self._runs: list[list[str]] = json.loads(made.stdout)
        self._crawls = 0

    def start_agent(self, agent: str) -> None:
        """Start an agent, also one that was killed."""
        self.daemons.start(agent, "run_agent", "--id", agent, "--name", agent, *self._replay)

    def run(self, **environment: str) -> dict[str, str]:
        """Return the environment of a new run."""
        run, token = self._runs.pop()
        return {
            "BROKER_URL": self.broker_url,
            "CRAWLYARD_RUN": str(run),
            "CRAWLYARD_RUN_TOKEN": token,
            "CRAWLYARD_BOOT": "b1",
            "CRAWLYARD_AGENTS": str(len(self.agents)),
            "CRAWLYARD_DOWNLOADER": json.dumps({"allowed_networks": LOOPBACK}),
            **environment,
        }

    def crawl(
        self,
        spider: str,
        *arguments: str,
        python: str = sys.executable,
        project: str = "shop",
        environment: dict[str, str] | None = None,
    ) -> Crawled:
        """Run ``scrapy crawl`` in a project; with the environment of a run unless one is given."""
        self._crawls += 1
        items = self.folder / f"items-{self._crawls}.jsonl"
        stats = self.folder / f"stats-{self._crawls}.json"
        addons = json.dumps(ADDONS)
        done = subprocess.run(
            [
                *(python, "-m", "tests.yardscrapy.scrapy_command", str(stats)),
                *(
                    "crawl",
                    spider,
                    *arguments,
                    "-s",
                    f"ADDONS={addons}",
                    "-o",
                    f"{items}:jsonlines",
                ),
            ],
            cwd=PROJECTS / project,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
                **(self.run() if environment is None else environment),
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert stats.exists(), done.stdout + done.stderr
        lines = items.read_text().splitlines() if items.exists() else []
        return Crawled(
            done.returncode,
            [json.loads(line) for line in lines],
            done.stderr,
            json.loads(stats.read_text()),
        )

    def close(self) -> None:
        """End every process."""
        self.daemons.end()
