"""manage.py check_input KIND FILE.json: validate each input of a list."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from crawlyard.checks_of_input import KINDS


class Command(BaseCommand):
    """Print one answer for each input, in order; JSON lines with --json."""

    help = "Check each string of a JSON list: addresses, clone URLs, selectors or tags."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("kind", choices=sorted(KINDS))
        parser.add_argument("file", type=Path, help="a JSON list of strings")
        parser.add_argument("--json", action="store_true", help="one JSON object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit status 0 when every input was answered, 2 for an invalid file."""
        check = KINDS[options["kind"]]
        for value in _inputs(options["file"]):
            began = time.perf_counter()
            answer = check(value)
            row = {
                "input": value,
                "accepted": answer.accepted,
                "reason": answer.reason,
                "position": answer.position,
                "ms": round((time.perf_counter() - began) * 1000, 3),
            }
            if options["json"]:
                self.stdout.write(json.dumps(row, ensure_ascii=True))
            else:
                verdict = "accepted" if answer.accepted else f"refused: {answer.reason}"
                self.stdout.write(f"{value!r}: {verdict}")


def _inputs(path: Path) -> list[str]:
    """Read the file. Raises ``CommandError`` with exit status 2, the problem and its position."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", returncode=2) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: not UTF-8 at byte {error.start}", returncode=2) from error
    except json.JSONDecodeError as error:
        raise CommandError(
            f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}", returncode=2
        ) from error
    except RecursionError as error:
        raise CommandError(f"{path}: nested too deep", returncode=2) from error
    if not isinstance(values, list):
        raise CommandError(f"{path}: a JSON list of strings is needed", returncode=2)
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise CommandError(f"{path}: entry {index} is no string", returncode=2)
    return values
