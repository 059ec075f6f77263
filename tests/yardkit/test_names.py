"""Rules of names: their lengths, and what ends a name."""

import re

import pytest

from yardkit import names


@pytest.mark.parametrize(
    ("rule", "longest"),
    [(names.AGENT_ID, 64), (names.IDENTIFIER, 32), (names.SLUG, 64), (names.SERIES, 64)],
)
def test_a_name_ends_at_its_limit(rule: re.Pattern[str], longest: int) -> None:
    assert rule.fullmatch("a" * longest)
    assert not rule.fullmatch("a" * (longest + 1))
    assert not rule.fullmatch("")
    assert not rule.fullmatch("a\n")


@pytest.mark.parametrize("name", ["queue", "queue.ready", "q_1.r2"])
def test_a_series_has_parts(name: str) -> None:
    assert names.SERIES.fullmatch(name)


@pytest.mark.parametrize("name", ["Queue", "queue.", ".ready", "queue..ready", "1q"])
def test_other_series_are_refused(name: str) -> None:
    assert not names.SERIES.fullmatch(name)


def test_names_and_values_of_headers() -> None:
    assert names.is_token("X-Api_Key", 9)
    assert not names.is_token("X-Api_Key", 8)
    assert not any(names.is_token(name, 9) for name in ("", "a b", "a:", "é", "a\n", None, 7))
    assert names.is_header_value("", 0)
    assert names.is_header_value("a\tb ~", 5)
    assert not any(names.is_header_value(value, 5) for value in ("a\n", "é", "123456", None))


def test_names_of_variables() -> None:
    assert names.is_variable("_PATH1", 6)
    assert not any(names.is_variable(name, 6) for name in ("1A", "A-B", "Ä", "", "A\n", "ABCDEFG"))
