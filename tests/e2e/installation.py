"""A whole installation: web, workers and daemons, each a process of its own, asked over REST."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.e2e.daemon_processes import ROOT, Daemons
from tests.e2e.demo_process import free_port
from tests.e2e.rest import Rest

SPIDERS = ROOT / "tests" / "e2e" / "spiders"
PASSWORD = "a-better-one-4711"
_START_SECONDS = 120.0
# Makes the first superuser and a token that may do everything.
MAKE_ADMIN = f"""
import json
from apps.access.models import User
from apps.access.services import create_token
user = User.objects.create_superuser("admin", "admin@example.com", {PASSWORD!r})
made = create_token(actor=user, user=user, name="end to end", scopes=["*:write"])
print(json.dumps(made.secret))
"""


class Installation:
    """To be used by ``with``, which leaves nothing of it behind.

    Args:
        stores: DATABASE_URL, BROKER_URL, REDIS_URL; none of them is the embedded default.
        settings: more of the environment of every process.
    """

    def __init__(self, folder: Path, stores: Mapping[str, str], **settings: str) -> None:
        self.port = free_port()
        # Of its daemons, and so of the host of its runs: no other installation's.
        self.name = f"test-{os.getpid()}-{self.port}"
        self.address = f"http://127.0.0.1:{self.port}"
        self.daemons = Daemons(
            folder,
            PYTHONPATH=f"{ROOT}:{ROOT / 'platform'}",
            SPIDERS_DIR=str(SPIDERS),
            PUBLIC_URL=self.address,
            GIT_ALLOWED_NETWORKS="127.0.0.0/8",
            REST_RATE="none",
            **stores,
            **settings,
        )
        self.rest: Rest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()

    def start(self, *, agents: int = 2) -> None:
        """Returns when all of it serves."""
        daemons = ("center", "runner", "statistics", "log_ingester", "dataset_writer", "beat")
        self.start_some(*daemons, "worker", agents=agents)

    def start_some(self, *names: str, agents: int = 0) -> None:
        """The web and these daemons; returns when all of them serve."""
        daemons = self.daemons
        daemons.migrate()
        made = daemons.manage("shell", "-v0", "-c", MAKE_ADMIN)
        self.rest = Rest(self.address, json.loads(made.stdout), self.explain)
        ready: dict[str, str] = {}
        for name in names:
            if name == "worker":
                # It takes what was sent before it came as well.
                daemons.start("worker", "run_worker")
            else:
                daemons.start(name, f"run_{name}", "--name", self.name)
                ready[name] = "is running"
        for number in range(1, agents + 1):
            agent = f"agent-{number}"
            daemons.start(agent, "run_agent", "--id", agent, "--name", agent)
            ready[agent] = "serves"
        daemons.start("web", "run_web", "--port", str(self.port))
        ready["web"] = "Uvicorn running"
        for name, words in ready.items():
            daemons.until_logged(name, words, _START_SECONDS)

    def fill(self) -> None:
        """What pages can show of a busy day."""
        self.daemons.manage("shell", "-v0", "-c", "from tests.e2e.sample_rows import fill; fill()")

    def agents_serve(self) -> bool:
        """Whether the center knows of every agent, so that runs are given them."""
        agents = self.rest.rows("/agents")
        return bool(agents) and all(agent["alive"] for agent in agents)

    def explain(self) -> str:
        """The end of every log."""
        parts = []
        for path in sorted(self.daemons.folder.glob("*.log")):
            parts.append(f"--- {path.name}\n{path.read_text(errors='replace')[-4000:]}")
        return "\n".join(parts)

    def tracebacks(self) -> dict[str, str]:
        """What each process has written from its first traceback on."""
        found = {}
        for name in self.daemons.processes:
            _before, separator, rest = self.daemons.log(name).partition("Traceback (most recent")
            if separator:
                found[name] = rest[:3000]
        return found

    def end(self) -> None:
        """Idempotent."""
        self.daemons.end()


Row = dict[str, Any]
