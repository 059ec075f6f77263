"""A process with an installation's settings that answers a test's questions, one JSON line each.

Starting Django for each question would take longer than most of the tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

from tests.e2e.daemon_processes import ROOT, Daemons


class ClerkError(Exception):
    """What a question has raised."""


class Clerk:
    """Runs ``module``, which calls ``answer_questions``, from the first question on. Thread-safe.

    Args:
        environment: more than the daemons have.
    """

    def __init__(self, module: str, daemons: Daemons, **environment: str) -> None:
        self._module = module
        self._environment = {
            **daemons.environment,
            "DJANGO_SETTINGS_MODULE": "crawlyard.settings.base",
            **environment,
        }
        self._log = daemons.folder / "clerk.log"
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, question: str, **arguments: Any) -> Any:
        """Raises ``ClerkError``, and ``BrokenPipeError`` when it is dead."""
        with self._lock:
            process = self._process = self._process or self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([question, arguments]) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        if not line:
            raise BrokenPipeError(self._log.read_text(errors="replace")[-3000:])
        told = json.loads(line)
        if "error" in told:
            raise ClerkError(told["error"])
        return told["answer"]

    def close(self) -> None:
        """Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate(timeout=20)

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", self._module],
                env=self._environment,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
