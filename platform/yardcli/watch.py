"""Wait for the end of a run or a build, and follow its log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final

from yardcli.client import Client
from yardcli.errors import Exits
from yardcli.output import note, on_terminal, say

POLL_SECONDS: Final = 1.0
_LINES = 200
_GOOD: Final = frozenset({"exited", "succeeded"})


def wait(
    api: Client, path: str, *, patience: float | None = None, begin: str = ""
) -> dict[str, Any]:
    """Wait until ``path`` (``runs/7``) has ended; return it. Ctrl-C ends only the waiting.

    After ``patience`` seconds it is returned still active. ``begin`` is printed first.
    """
    deadline = None if patience is None else time.monotonic() + patience
    progress = _Progress(path)
    try:
        if begin:
            note(begin)
        while True:
            row: dict[str, Any] = api.get(path)
            progress.show(row)
            if not row["active"] or (deadline is not None and time.monotonic() >= deadline):
                return row
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        progress.clear()
        note(f"\n{path.replace('s/', ' ')} goes on")
        raise
    finally:
        progress.clear()


def outcome_of(row: dict[str, Any]) -> Exits:
    """Return the exit status: 0 for success."""
    return Exits.OK if row["state"] in _GOOD else Exits.NEGATIVE


def follow(api: Client, path: str, *, tail: int, show: Callable[[dict[str, Any]], None]) -> None:
    """Print the last lines of the log of ``path``, and new ones until it has ended."""
    page = api.get(f"{path}/logs", tail=tail)
    last: str | None = None
    while True:
        lines = page["results"]
        for line in lines:
            show(line)
            last = line["ref"]
        if not page["next"]:
            ended = not api.get(path)["active"]
            # Read once more after the end was seen: the last lines were written before it.
            page = _lines_behind(api, path, last)
            if ended and not page["results"]:
                return
            if not page["results"]:
                time.sleep(POLL_SECONDS)
            continue
        page = _lines_behind(api, path, last)


def line_shown(line: dict[str, Any]) -> None:
    """Print ``2026-11-22 08:00:00 ERROR text`` and flush."""
    at = str(line["at"])[:19].replace("T", " ")
    text = f"{at} {line['level'] or '-':<8} {line['text']}"
    if sys.stdout.isatty() and line["level"] in ("ERROR", "CRITICAL", "WARNING"):
        from rich.console import Console
        from rich.text import Text

        from yardcli.output import inert

        style = "yellow" if line["level"] == "WARNING" else "red"
        Console(highlight=False, soft_wrap=True).print(Text(inert(text), style=style))
    else:
        say(text)
    sys.stdout.flush()


def _lines_behind(api: Client, path: str, last: str | None) -> Any:
    if last is None:
        return api.get(f"{path}/logs", tail=_LINES)
    return api.get(f"{path}/logs", after=last, limit=_LINES)


class _Progress:
    """Progress in one line that is overwritten, on a terminal only."""

    def __init__(self, path: str) -> None:
        self._name = path
        self._shown = False
        self._since = time.monotonic()

    def show(self, row: dict[str, Any]) -> None:
        if not on_terminal():
            return
        seconds = int(time.monotonic() - self._since)
        waits = f" ({row['waiting_reason']})" if row.get("waiting_reason") else ""
        sys.stderr.write(f"\r\x1b[K{self._name}: {row['state']}{waits[:60]} {seconds} s")
        sys.stderr.flush()
        self._shown = True

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
