"""Writes docs/coverage.md: every requirement line with its tests, or why it has none."""

from __future__ import annotations

import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tools.requirement_marks import ROOT, Mark, MarkError, requirement_ids, scan

OUTPUT = ROOT / "docs" / "coverage.md"
REASONS = ROOT / "docs" / "coverage-reasons.toml"

_RANGE = re.compile(r"^([A-Z]+\d*)\.(\d+)(?:-(\d+))?$")
_HEAD = """\
# Which requirement is proved by which test

Written by `make coverage-doc` from the `covers` marks of the tests and from
[coverage-reasons.toml](coverage-reasons.toml); do not edit. The lines themselves:
[requirements.md](requirements.md).
"""


def _expand(ranges: list[str]) -> Iterator[str]:
    for text in ranges:
        match = _RANGE.match(text)
        if match is None:
            raise MarkError(f"coverage-reasons.toml: {text!r} is neither an id nor a range of ids")
        seed, first, last = match[1], int(match[2]), int(match[3] or match[2])
        yield from (f"{seed}.{number}" for number in range(first, last + 1))


def load_reasons(known: set[str], tested: set[str], path: Path = REASONS) -> dict[str, str]:
    """Why a line has no test, by id.

    Raises:
        MarkError: an unknown id, an id with two reasons, or an entry whose lines all have tests.
    """
    reasons: dict[str, str] = {}
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("reason", []):
        ids = list(_expand(entry["ids"]))
        if tested.issuperset(ids):
            raise MarkError(f"coverage-reasons.toml: {entry['ids']} have tests now, drop the entry")
        for requirement in ids:
            if requirement not in known:
                raise MarkError(f"coverage-reasons.toml: there is no requirement {requirement}")
            if requirement in reasons:
                raise MarkError(f"coverage-reasons.toml: {requirement} has two reasons")
            reasons[requirement] = entry["why"]
    return reasons


def marks_by_id(marks: list[Mark], known: set[str]) -> dict[str, list[Mark]]:
    """Marks grouped by requirement; raises ``MarkError`` for an unknown id."""
    grouped: dict[str, list[Mark]] = defaultdict(list)
    for mark in marks:
        for requirement in mark.ids:
            if requirement not in known:
                raise MarkError(f"{mark.path}:{mark.line}: there is no requirement {requirement!r}")
            grouped[requirement].append(mark)
    return grouped


def render(ids: list[str], tests: dict[str, list[Mark]], reasons: dict[str, str]) -> str:
    """The document. Raises ``MarkError`` for ids with neither a test nor a reason."""
    unexplained = [one for one in ids if one not in tests and one not in reasons]
    if unexplained:
        raise MarkError(
            f"neither a test nor a reason in coverage-reasons.toml: {', '.join(unexplained)}"
        )
    seeds: dict[str, list[str]] = defaultdict(list)
    for one in ids:
        seeds[one.split(".")[0]].append(one)
    lines = [_HEAD, "| Seed | Lines | With tests | Without |", "|---|---:|---:|---:|"]
    for seed, own in seeds.items():
        proved = sum(one in tests for one in own)
        lines.append(f"| {seed} | {len(own)} | {proved} | {len(own) - proved} |")
    lines.append(f"| all | {len(ids)} | {len(tests)} | {len(ids) - len(tests)} |")
    for seed, own in seeds.items():
        lines += [
            "",
            f"## {seed}",
            "",
            "| Line | Tests, or the reason why there is none |",
            "|---|---|",
        ]
        lines += [f"| {one} | {_cell(tests.get(one), reasons.get(one, ''))} |" for one in own]
    return "\n".join(lines) + "\n"


def _cell(marks: list[Mark] | None, reason: str) -> str:
    if not marks:
        return f"*{reason}*"
    links = dict.fromkeys(_link(mark) for mark in marks)
    return "<br>".join(links)


def _link(mark: Mark) -> str:
    relative = mark.path.relative_to(ROOT)
    shown = f"{relative.relative_to('tests')}" + (f"::{mark.name}" if mark.name else "")
    return f"[{shown}](../{relative.as_posix()})"


def document() -> str:
    """The text that docs/coverage.md must have."""
    ids = requirement_ids()
    known = set(ids)
    tests = marks_by_id(scan(), known)
    return render(ids, tests, load_reasons(known, set(tests)))


def main() -> int:
    """Write the document; exit status 1 with one line when the marks are wrong."""
    try:
        OUTPUT.write_text(document(), encoding="utf-8")
    except MarkError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
