"""Runners as processes of their own, which a test may kill, and a clerk who starts runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.daemon_processes import ROOT, Daemons
from tests.e2e.helper_process import Clerk

# Generous, because it only bounds a failing test: the machine may be busy.
PATIENCE_SECONDS = 90.0


class RunnerHarness:
    """One installation in a folder of its own."""

    def __init__(self, folder: Path, image: str = "", **environment: str) -> None:
        self.image = image
        self.daemons = Daemons(
            folder,
            PYTHONPATH=f"{ROOT}:{ROOT / 'platform'}",
            RUN_NETWORK="none",
            RUN_MEMORY_BYTES=str(128 * 1024**2),
            **({"RUNNER_URL": "docker://"} if image else {}),
            **environment,
        )
        self.daemons.migrate()
        self._clerk = Clerk("tests.jobs.helper_process", self.daemons)

    # --- the runner -----------------------------------------------------------------------------

    def start_runner(self, name: str = "one", *, capacity: int = 4, failpoints: str = "") -> None:
        """Start one; also again, in place of one that was killed."""
        arguments = ("--name", name, "--capacity", str(capacity))
        self.daemons.start(name, "run_runner", *arguments, FAILPOINTS=failpoints)

    def until_killed(self, name: str = "one") -> None:
        """Until the runner has met its failpoint."""
        process = self.daemons.processes[name]
        self.until(lambda: process.poll() is not None, "the runner's end")
        assert process.returncode == -9, self.daemons.log(name)
        del self.daemons.processes[name]

    def kill_runner(self, name: str = "one") -> None:
        """SIGKILL."""
        process = self.daemons.processes.pop(name)
        process.kill()
        process.wait()

    # --- runs -----------------------------------------------------------------------------------

    def start(self, code: str, **fields: Any) -> int:
        """A run of this Python, in a container where the runner makes containers; its id."""
        runs: list[int] = self.start_many(code, 1, **fields)
        return runs[0]

    def start_many(self, code: str, count: int, **fields: Any) -> list[int]:
        """So many runs of one job."""
        command = ["python3", "-c", code]
        runs: list[int] = self.ask(
            "start", command=command, image=self.image, count=count, **fields
        )
        return runs

    def folder(self, run: int) -> Path:
        """Where the run leaves what it makes."""
        return self.daemons.folder / "data" / "runs" / str(run)

    def starts(self, run: int) -> int:
        """How often the run's own code has begun."""
        path = self.folder(run) / "starts"
        return len(path.read_text()) if path.exists() else 0

    def counted(self, *runs: int, wanted: int = 1) -> dict[str, int]:
        """For ``measured``: so many starts of each had to be; those that are not, those beyond."""
        starts = [self.starts(run) for run in runs]
        return {
            "of": wanted * len(runs),
            "lost": sum(max(wanted - each, 0) for each in starts),
            "twice": sum(max(each - wanted, 0) for each in starts),
        }

    def let_go(self, run: int) -> None:
        """A run of ``WAITS`` ends after this."""
        (self.folder(run) / "go").touch()

    def look(self, run: int) -> dict[str, Any]:
        """The run's row and moves."""
        look: dict[str, Any] = self.ask("look", run=run)
        return look

    def until_state(self, run: int, *states: str) -> dict[str, Any]:
        """The run, once it is in one of these states."""

        def there() -> dict[str, Any] | None:
            look = self.look(run)
            return look if look["state"] in states else None

        found: dict[str, Any] = self.until(there, f"run {run} in {states}", run)
        return found

    def until(self, happened: Callable[[], Any], what: str, run: int = 0) -> Any:
        """Wait until it is true; what it was then."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = happened()
            if found:
                return found
            if time.monotonic() > deadline:
                logs = "".join(
                    f"{name} ({process.poll()}):\n{self.daemons.log(name)}"
                    for name, process in self.daemons.processes.items()
                )
                raise AssertionError(f"never happened: {what}; {run and self.look(run)}\n{logs}")
            time.sleep(0.05)

    # --- the clerk ------------------------------------------------------------------------------

    def ask(self, name: str, **arguments: Any) -> Any:
        """What ``tests.jobs.helper_process`` answers."""
        return self._clerk.ask(name, **arguments)

    def end(self) -> None:
        """Everything is over."""
        self.daemons.end()
        self._clerk.close()


# Counts its starts in the run's folder, and ends when it is let go.
WAITS = (
    "import os, pathlib, time\n"
    "folder = pathlib.Path(os.environ['CRAWLYARD_RUN_DIR'])\n"
    "with open(folder / 'starts', 'a') as starts: starts.write('x')\n"
    "print('begun', flush=True)\n"
    "while not (folder / 'go').exists(): time.sleep(0.05)\n"
    "print('done', flush=True)\n"
)
