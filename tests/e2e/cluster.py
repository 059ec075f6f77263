"""A cluster to break: every daemon a process of its own, and a clerk who reads its books."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.e2e.daemon_processes import ROOT, Daemons
from tests.e2e.helper_process import Clerk
from tests.e2e.stored_items import items_of_run

SPIDERS = ROOT / "tests" / "e2e" / "spiders"
Look = dict[str, Any]


class Cluster:
    """Statistics, a runner and one center on the given stores, and agents as a test wants them.

    Everything but the agents goes on from test to test; ``restore`` puts it back in order.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self.daemons = Daemons(
            folder,
            PYTHONPATH=f"{ROOT}:{ROOT / 'platform'}",
            SPIDERS_DIR=str(SPIDERS),
            **environment,
        )
        self._numbers = itertools.count(1)
        self._changed: set[str] = set()
        self._clerk = Clerk("tests.e2e.cluster_helper", self.daemons)

    # --- processes ------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when all of it serves."""
        self.daemons.migrate()
        for name in ("statistics", "runner", "center"):
            self.start_daemon(name)
        for name in ("statistics", "runner", "center"):
            self.daemons.until_logged(name, "is running", 90)

    def start_daemon(self, name: str, **environment: str) -> None:
        """``center-2`` is a second center of that name, and so on."""
        kind = name.partition("-")[0]
        self.daemons.start(name, f"run_{kind}", "--name", name, **environment)

    def new_agent(self) -> str:
        """The id for an agent no test has had yet."""
        return f"agent-{next(self._numbers)}"

    def agents(self, count: int, **environment: str) -> list[str]:
        """So many agents of their own for this test's runs; the ids."""
        names = [self.new_agent() for _ in range(count)]
        for name in names:
            self.start_agent(name, **environment)
        self.use_agents(names)
        return names

    def use_agents(self, names: list[str]) -> None:
        """New runs get these and no others, once they have registered."""
        self.until(lambda: all(self.is_registered(name) for name in names), "registration")
        self.ask("only", agents=names)

    def start_agent(self, name: str, **environment: str) -> None:
        """Start one, also again."""
        self.daemons.start_python(
            name, "-m", "apps.agents.downloader", "--id", name, "--name", name, **environment
        )

    def is_registered(self, name: str) -> bool:
        return bool(self.ask("agents").get(name, {}).get("registered"))

    def process(self, name: str) -> psutil.Process:
        return psutil.Process(self.daemons.processes[name].pid)

    def kill(self, name: str) -> None:
        """SIGKILL, and wait for the end."""
        process = self.daemons.processes.pop(name)
        process.kill()
        process.wait()

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end."""
        process = self.process(name)
        process.suspend()
        try:
            yield
        finally:
            process.resume()

    def restart(self, name: str, **environment: str) -> None:
        """A daemon of ``start`` anew, in another environment until ``restore``."""
        self.daemons.stop(name, signal.SIGTERM)
        self.start_daemon(name, **environment)
        self.daemons.until_logged(name, "is running")
        self._changed.add(name)

    def spider(self, run: int) -> psutil.Process:
        """The process of a run, once it is there."""
        pid = self.until(lambda: self.look(run)["pid"], f"the process of run {run}")
        return psutil.Process(pid)

    def restore(self) -> None:
        """The cluster as ``start`` left it: no agents, no other center."""
        for name in list(self.daemons.processes):
            if name.startswith(("agent-", "center-")):
                self.kill(name)
        for name in ("statistics", "runner", "center"):
            process = self.daemons.processes.get(name)
            if process is not None:
                process.send_signal(signal.SIGCONT)
            if name in self._changed or process is None or process.poll() is not None:
                if process is not None:
                    self.kill(name)
                self.start_daemon(name)
                self.daemons.until_logged(name, "is running")
        self._changed.clear()

    def end(self) -> None:
        """Leave nothing behind."""
        self.daemons.end()
        self._clerk.close()

    # --- questions ------------------------------------------------------------------------------

    def ask(self, question: str, **arguments: Any) -> Any:
        """What the clerk answers; see tests/e2e/cluster_helper.py."""
        return self._clerk.ask(question, **arguments)

    def crawl(
        self,
        url: str,
        spider: str = "Patient",
        *,
        policy: str = "random",
        agents: int = 0,
        window: int = 10,
        keep_pages: str = "failed",
    ) -> int:
        """Start a run; its id. ``agents``: how many it asks for, 0 leaves it to the policy."""
        run: int = self.ask(
            "start",
            url=url,
            spider=spider,
            policy=policy,
            agents=agents,
            window=window,
            keep_pages=keep_pages,
        )
        return run

    def look(self, run: int) -> Look:
        """The run, its books and its centers' now."""
        look: Look = self.ask("look", run=run)
        return look

    def end_of(self, run: int, seconds: float = 90.0) -> Look:
        """The run when it has ended and its last report is stored."""

        def ended() -> Look | None:
            look = self.look(run)
            over = look["ended"] and (look["books"]["final"] or not look["reported"])
            return look if over else None

        look: Look = self.until(ended, f"the end of run {run}", seconds)
        return look

    def seconds_to_new_pages(self, run: int, window: int = 10, limit: float = 60.0) -> float:
        """From now until more pages have come than can have been on their way already."""
        began = time.monotonic()
        wanted = self.look(run)["books"]["success"] + window

        def have_come() -> bool:
            look = self.look(run)
            return bool(look["books"]["success"] > wanted or look["ended"])

        self.until(have_come, f"new pages of run {run}", limit)
        return time.monotonic() - began

    def items(self, run: int) -> list[str]:
        """The address of each item the run has stored."""
        return [item["url"] for item in items_of_run(self.daemons, run)]

    def until(self, happened: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
        """Wait until it is true; what it was then."""
        deadline = time.monotonic() + seconds
        while not (answer := happened()):
            assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s\n{self.logs()}"
            time.sleep(0.05)
        return answer

    def logs(self) -> str:
        """The end of every log."""
        parts = []
        folder = self.daemons.folder
        for path in (*sorted(folder.rglob("*.log")), *sorted(folder.rglob("log.txt"))):
            parts.append(f"--- {path}\n{path.read_text(errors='replace')[-3000:]}")
        return "\n".join(parts)
