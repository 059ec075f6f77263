"""Commands, variables and tags as people type them."""

from __future__ import annotations

import shlex
from contextlib import suppress

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.jobs.models.execution_rules import validate_command, validate_environment
from apps.jobs.models.typed_texts import (
    format_command,
    format_environment,
    parse_command,
    parse_environment,
    parse_secrets,
    parse_tags,
)

# --- what is typed --------------------------------------------------------------------------------

WORDS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20),
    max_size=8,
)


@settings(deadline=None)
@given(words=WORDS)
def test_a_command_is_shown_as_it_is_read(words: list[str]) -> None:
    validate_command(words)
    assert parse_command(format_command(words)) == words


@pytest.mark.slow("2 s")
@settings(deadline=None)
@given(
    values=st.dictionaries(
        st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True),
        st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=30),
        max_size=8,
    )
)
def test_an_environment_is_shown_as_it_is_read(values: dict[str, str]) -> None:
    assert parse_environment(format_environment(values)) == values


@settings(deadline=None)
@given(text=st.text(max_size=200))
def test_whatever_is_typed_is_read_or_refused(text: str) -> None:
    for parse in (parse_command, parse_environment, parse_secrets, parse_tags):
        with suppress(ValidationError):
            read = parse(text)
            if parse in (parse_environment, parse_secrets):
                validate_environment(read)


@pytest.mark.covers("S1.13")
def test_variables_are_parted_by_spaces_and_line_breaks() -> None:
    assert parse_environment("A=1 B=2\nC=3\r\nD=") == {"A": "1", "B": "2", "C": "3", "D": ""}
    assert parse_environment(r"RE=\d+ PATH_=C:\x") == {"RE": r"\d+", "PATH_": "C:\\x"}
    assert parse_environment("") == {}
    assert parse_secrets("A= a b \r\n\nB=x#y") == {"A": " a b ", "B": "x#y"}
    assert shlex.split("a 'b c'") == parse_command("a 'b c'")
    assert parse_tags(" a,b  a；c，d ") == ["a", "b", "c", "d"]
