"""Nobody can forge a log line."""

from __future__ import annotations

import logging
import sys

import pytest

from yardkit.log_lines import OneLineFormatter


def formatted(message: str, *arguments: object, error: bool = False) -> str:
    formatter = OneLineFormatter("%(levelname)s %(message)s")
    caught = sys.exc_info() if error else None
    record = logging.LogRecord("x", logging.INFO, "f", 1, message, arguments, caught)
    return formatter.format(record)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nERROR b", "INFO a\\nERROR b"),
        ("a\r\nb", "INFO a\\r\\nb"),
        ("\x1b[2Jgone", "INFO \\x1b[2Jgone"),
        ("\x00\x7f\x85", "INFO \\x00\\x7f\\x85"),
        ("a\u2028b\u202ec", "INFO a\\u2028b\\u202ec"),
        ("a\tb 中文 é", "INFO a\tb 中文 é"),
    ],
)
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    assert formatted("%s", text) == shown
    assert formatted(text) == shown


def test_a_traceback_keeps_its_lines_and_none_of_them_is_a_record() -> None:
    try:
        raise ValueError("bad\nERROR forged\x1b[0m")
    except ValueError:
        lines = formatted("it failed", error=True).split("\n")
    assert lines[0] == "INFO it failed"
    assert len(lines) > 3
    assert all(line.startswith("    ") for line in lines[1:])
    assert "\x1b" not in "".join(lines)
    assert lines[-1] == "    ERROR forged\\x1b[0m"
