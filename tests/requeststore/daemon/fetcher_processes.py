"""Fetchers as processes, between real stores, and what a test needs around them."""

from __future__ import annotations

import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.e2e import helper_process
from tests.e2e.daemon_processes import ROOT, Daemons

# Generous, because it only bounds a failing test.
PATIENCE_SECONDS = 40.0
RULES = {"page": {"fields": {"title": {"css": "h1"}, "price": {"css": ".price", "as": "integer"}}}}


class Clerk(helper_process.Clerk):
    """A process that may be killed."""

    def __init__(self, daemons: Daemons, **environment: str) -> None:
        super().__init__("tests.requeststore.daemon.helper_process", daemons, **environment)


class Plant:
    """A database, a broker, a store and a clerk, with one project; fetchers as a test wants."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.daemons = Daemons(
            folder,
            **{
                "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
                "BROKER_URL": f"sqlite:///{folder / 'broker.sqlite3'}",
                "SECRET_KEY": secrets.token_urlsafe(50),
                **environment,
            },
        )
        self.daemons.migrate()
        self.clerk = Clerk(self.daemons)
        self.project: int = self.ask("project", networks=["127.0.0.0/8"])
        self.bizzes: dict[str, Any] = {}
        self.version = 0

    def close(self) -> None:
        self.daemons.end()
        self.clerk.close()

    def ask(self, question: str, **arguments: Any) -> Any:
        return self.clerk.ask(question, **arguments)

    def save(self, **bizzes: dict[str, Any] | None) -> None:
        """Change some bizzes; None removes one."""
        for name, biz in bizzes.items():
            if biz is None:
                del self.bizzes[name]
            else:
                self.bizzes[name] = {"rules": RULES, **biz}
        self.version = self.ask("save", number=self.project, bizzes=self.bizzes)

    def submit(self, biz: str, *urls: str, **fields: Any) -> list[str]:
        requests = [{"url": url, "rule": "page", **fields} for url in urls]
        ids: list[str] = self.ask("submit", number=self.project, biz=biz, requests=requests)
        return ids

    def flags(self, biz: str) -> dict[str, int]:
        found: dict[str, int] = self.ask("flags", number=self.project, biz=biz)
        return found

    def find(self, biz: str, *ids: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("find", number=self.project, biz=biz, ids=ids)
        return found

    def waiting(self, biz: str) -> list[int | None]:
        found: list[int | None] = self.ask("waiting", number=self.project, biz=biz)
        return found

    def until(
        self, condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS
    ) -> Any:
        """Wait until it holds; what it was then."""
        deadline = time.monotonic() + seconds
        while not (answer := condition()):
            assert time.monotonic() < deadline, f"never happened: {what}\n{self.logs()}"
            time.sleep(0.05)
        return answer

    def until_killed(self, name: str = "f1") -> None:
        """Wait until a failpoint has killed it."""
        process = self.daemons.processes[name]
        self.until(lambda: process.poll() is not None, f"the end of {name}")
        status = self.daemons.processes.pop(name).returncode
        assert status == -signal.SIGKILL, (status, self.logs())

    def until_flags(
        self, biz: str, expected: dict[int, int], seconds: float = PATIENCE_SECONDS
    ) -> None:
        wanted = {str(flag): count for flag, count in expected.items()}
        last: dict[str, int] = {}

        def same() -> bool:
            last.clear()
            last.update(self.flags(biz))
            return last == wanted

        deadline = time.monotonic() + seconds
        while not same():
            assert time.monotonic() < deadline, f"{last} is not {wanted}\n{self.logs()}"
            time.sleep(0.05)

    def logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-4000:]}"
            for path in self.folder.glob("*.log")
        )

    # --- fetchers -----------------------------------------------------------------------------

    def start(self, name: str = "f1", **environment: str) -> subprocess.Popen[bytes]:
        return self.daemons.start(name, "run_fetcher", "--name", name, **environment)

    def stop(self, name: str = "f1") -> float:
        """In good order; the seconds it took."""
        status, seconds = self.daemons.stop(name, signal.SIGTERM)
        assert status == 0, self.logs()
        return seconds

    def kill(self, name: str = "f1") -> None:
        process = self.daemons.processes.pop(name)
        process.kill()
        process.wait()

    def detail(self, name: str = "f1") -> dict[str, Any]:
        found: dict[str, Any] = self.ask("detail", name=name)
        return found

    # --- records ------------------------------------------------------------------------------

    def rows(self, biz: str, *fields: str) -> list[tuple[Any, ...]]:
        """Of the dataset, in the order of requests; ``request_id`` and ``position`` are fields."""
        self.daemons.manage("run_dataset_writer", "--once")
        found = self.ask("items", number=self.project, biz=biz)
        rows = sorted(found, key=lambda row: (row["request_id"], row["position"]))
        return [tuple(row.get(field) for field in fields) for row in rows]

    def recorded(self, biz: str) -> list[str]:
        """The ids of the requests that have records, one for each record."""
        return [str(number) for (number,) in self.rows(biz, "request_id")]


def urls(site: str, numbers: Sequence[int], kind: str = "p") -> list[str]:
    """Of pages of the site."""
    return [f"{site}/{kind}/{number}" for number in numbers]
