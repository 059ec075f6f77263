"""Writes the column *Measured* of docs/reliability.md from what ``make test-faults`` has kept.

What a run of this checkout has kept goes into docs/faults.json, beside what earlier ones have
measured of other tests: the full size can be run in pieces, and on several machines. A row of the
tables names its tests; what they have measured is added up.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.requirement_marks import ROOT

DOCUMENT = ROOT / "docs" / "reliability.md"
FIGURES = ROOT / "docs" / "faults.json"
KEPT = ROOT / ".pytest_cache" / "faults.jsonl"

# The line that has it.
SUM = "All of them together:"

_LINK = re.compile(r"\[`(\w+)`\]\(\.\./(tests/[\w/]+\.py)\)")

Kept = dict[str, dict[str, Any]]


class FailedError(Exception):
    """A test that a row names has failed: there is nothing to write about it."""


def _results_of(link: tuple[str, str], kept: Kept) -> Iterator[dict[str, Any]]:
    name, path = link
    wanted = re.compile(rf"{re.escape(path)}::(?:\w+::)*test_{name}(?:\[.*)?", re.DOTALL)
    for test, result in kept.items():
        if wanted.fullmatch(test) is None:
            continue
        if not result["passed"]:
            raise FailedError(f"{test} has failed")
        yield result


def _results(row: str, kept: Kept) -> list[dict[str, Any]]:
    return [result for link in _LINK.findall(row) for result in _results_of(link, kept)]


def told(results: list[dict[str, Any]]) -> str:
    """What is said of results: cases, seconds, what was lost, when it went on."""
    cases, seconds = len(results), sum(result["seconds"] for result in results)
    figures = [told for result in results for told in result["measured"]]
    parts = [f"{cases} {'case' if cases == 1 else 'cases'} in {seconds:,.0f} s"]
    of, lost, twice = (sum(each[name] for each in figures) for name in ("of", "lost", "twice"))
    if of:
        parts.append(f"lost {lost:,} of {of:,}, twice {twice:,}")
    back = sorted(each["back_s"] for each in figures if each["back_s"] is not None)
    if back:
        ends = dict.fromkeys((f"{back[0]:.1f}", f"{back[-1]:.1f}"))
        parts.append(f"back after {' to '.join(ends)} s")
    return "; ".join(parts)


def _row_of(results: list[dict[str, Any]]) -> str:
    """The same, and notes."""
    figures = [told for result in results for told in result["measured"]]
    return "; ".join(
        [told(results), *dict.fromkeys(each["note"] for each in figures if each["note"])]
    )


def written(text: str, kept: Kept) -> str:
    """The document with the last column of each row of which something was kept."""
    lines = []
    for line in text.splitlines(keepends=True):
        if line.startswith(SUM):
            line = f"{SUM} {told(list(kept.values()))}.\n"
        results = _results(line, kept) if line.startswith("| ") else []
        if results:
            lacking = [link[0] for link in _LINK.findall(line) if not any(_results_of(link, kept))]
            text = _row_of(results) + (f"; not measured: {', '.join(lacking)}" if lacking else "")
            line = f"{line.rstrip().rstrip('|').rpartition('|')[0]}| {text} |\n"
        lines.append(line)
    return "".join(lines)


def together(figures: Path, kept: Path) -> Kept:
    """What is known of each test: what was kept last, else what the figures have; sorted."""
    known: Kept = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ()
    for line in lines:
        result = json.loads(line)
        known[result.pop("test")] = result
    return dict(sorted(known.items()))


def as_lines(known: Kept) -> str:
    """JSON with a line for each test."""
    lines = (f"{json.dumps(test)}: {json.dumps(result)}" for test, result in known.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    """Write figures and document; 1 where nothing is known or a test has failed."""
    known = together(FIGURES, KEPT)
    if not known:
        print("nothing is kept: make test-faults", file=sys.stderr)
        return 1
    try:
        text = written(DOCUMENT.read_text(encoding="utf-8"), known)
    except FailedError as problem:
        print(problem, file=sys.stderr)
        return 1
    FIGURES.write_text(as_lines(known), encoding="utf-8")
    DOCUMENT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
