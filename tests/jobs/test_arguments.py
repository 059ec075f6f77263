"""Arguments: what a person typed, and where it is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError

from apps.jobs.arguments import MAX_BYTES, check_arguments, parse_arguments


def refusal(call: Any, value: object) -> str:
    with pytest.raises(ValidationError) as caught:
        call(value)
    return " ".join(caught.value.messages)


def test_an_object_passes_and_nothing_is_an_empty_one() -> None:
    assert parse_arguments('{"start": "https://例子.org/", "depth": 3}') == {
        "start": "https://例子.org/",
        "depth": 3,
    }
    assert parse_arguments("  \n ") == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1,\n "b": }', "Line 2, column 7: a value is missing here."),
        ('{"a": 1\n "b": 2}', "Line 2, column 2: a comma is missing here."),
        ('{"a" 1}', "Line 1, column 6: a colon is missing here."),
        ("{'a': 1}", "Line 1, column 2: a name in double quotes is missing here."),
        ('{"a": "b}', "Line 1, column 7: the string that starts here has no end."),
        ('{"a": 1} x', "Line 1, column 10: there is text after the end of the object."),
        ('{"a": "\\x"}', "Line 1, column 8: no such escape in JSON."),
        ('{"a": NaN}', "NaN is not a JSON value."),
        ('["a"]', "Enter a JSON object"),
        ('"a"', "Enter a JSON object"),
    ],
)
def test_a_refusal_names_the_position(text: str, expected: str) -> None:
    assert expected in refusal(parse_arguments, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": [1, {"b": 1e400}]}', "a[1].b: the number is too large"),
        ('{"a": "x\\u0000y"}', "a: a character that cannot be stored"),
        ('{"a": "\\ud800"}', "a: a character that cannot be stored"),
        ('{"\\u0000": 1}', "a character that cannot be stored"),
        ('{"a": ' + "[" * 60 + "]" * 60 + "}", "Nested more than 20 levels deep."),
        ('{"a": ' + "[" * 20_000 + "]" * 20_000 + "}", "Nested more than 20 levels deep."),
        ('{"a": "' + "x" * MAX_BYTES + '"}', "Longer than 65536 characters"),
        ('{"a": ' + "9" * 5000 + "}", "A number has too many digits."),
    ],
)
def test_what_no_store_could_hold_is_refused(text: str, expected: str) -> None:
    assert expected in refusal(parse_arguments, text)


def test_rest_input_is_checked_alike() -> None:
    assert check_arguments({"a": [1, "b", None, True]}) == {"a": [1, "b", None, True]}
    assert "Longer than" in refusal(check_arguments, {"a": "x" * MAX_BYTES})
