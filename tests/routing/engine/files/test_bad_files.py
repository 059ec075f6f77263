"""Hostile or truncated files are rejected with a line number, and quickly."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.routing.engine.files.data import from_data
from apps.routing.engine.files.entries import OUTBOUND_KEYS
from apps.routing.engine.files.folder import MAX_FILE_BYTES
from apps.routing.engine.files.reader import MAX_VALUES, read_rules
from apps.routing.engine.files.ruleset import MAIN_KEYS
from apps.routing.engine.files.writer import write_rules
from tests.routing.engine.files.rule_sets import HEAD, INBOUND, OUTBOUND, problems_of, rule_sets


def bomb(width: int = 9, depth: int = 9) -> str:
    """Return YAML in which each alias repeats the line before many times."""
    rows = ["  a0: &a0 [" + "x, " * width + "x]\n"]
    for n in range(1, depth):
        rows.append(f"  a{n}: &a{n} [" + f"*a{n - 1}, " * width + f"*a{n - 1}]\n")
    return HEAD + "logging:\n" + "".join(rows)


REFUSED: list[tuple[str | bytes, int, str]] = [
    (bomb(), 8, "too_many_values"),
    (HEAD + "logging:\n  a: &a [x]\n  b: [" + "*a, " * 1001 + "]\n", 4, "too_many_aliases"),
    (HEAD + "logging: &a {b: *a}", 2, "no_anchor"),
    (HEAD + "logging: *nobody", 2, "no_anchor"),
    (HEAD + "logging: " + "[" * 100_000, 2, "too_deep"),
    (HEAD + "logging: " + "{a: " * 100_000, 2, "too_deep"),
    ("- " * 400_000, 1, "too_deep"),
    ("? " * 400_000, 1, "bad_name"),
    (HEAD + "logging: " + "[" * 1000 + "]" * 1000, 2, "too_deep"),
    (HEAD + "logging: [" + "x," * 450_000 + "]", 2, "too_many_values"),
    ("#" * (10 * 1024 * 1024), 1, "too_large"),
    (HEAD + "x: " + "a" * (10 * 1024 * 1024), 1, "too_large"),
    (b"\xff" * (10 * 1024 * 1024), 1, "too_large"),
    (HEAD + "a: 1\nproject: q\n", 3, "duplicate_key"),
    (OUTBOUND + "  init:\n    url: a\n    url: b\n", 7, "duplicate_key"),
    (OUTBOUND + "  <<: {max_lag: 5}\n", 5, "merge_key"),
    (HEAD + "x: &x {max_lag: 5}\noutbound:\n- <<: *x\n  name: a\n", 4, "merge_key"),
    (HEAD + "logging: !!python/object/apply:os.system [ls]", 2, "tag"),
    (HEAD + "logging: !!python/name:os.system", 2, "tag"),
    (HEAD + "logging: !!str a", 2, "tag"),
    (HEAD + "logging: !include /etc/passwd", 2, "tag"),
    (HEAD + "---\nproject: q\n", 2, "second_document"),
    (HEAD + "%YAML 1.1\n---\na: b", 2, "second_document"),
    (HEAD + "5: a", 2, "name_without_quotes"),
    (HEAD + "null: a", 2, "name_without_quotes"),
    (HEAD + "true: a", 2, "name_without_quotes"),
    (HEAD + "? [a]\n: b", 2, "bad_name"),
    (HEAD + "? {a: b}\n: b", 2, "bad_name"),
    (OUTBOUND + "\tmax_lag: 5", 5, "not_yaml"),
    (OUTBOUND + "    max_lag: 5", 5, "not_yaml"),
    (OUTBOUND + "  note: 'a", 5, "not_yaml"),
    (OUTBOUND + "  note: a: b", 5, "not_yaml"),
    (OUTBOUND + "  note: @a", 5, "not_yaml"),
    (OUTBOUND + "  note: a\x00", 5, "control_character"),
    (OUTBOUND + '  note: "a\\0"', 5, "bad_character"),
    (OUTBOUND + '  note: "\\ud800"', 5, "not_yaml"),
    (OUTBOUND + "  note: \x1b[31m", 5, "control_character"),
    (OUTBOUND.encode() + b"  note: \xff", 5, "not_utf8"),
    (OUTBOUND.encode() + b"  note: \xed\xa0\x80", 5, "not_utf8"),
    (OUTBOUND.encode() + "  note: 破".encode()[:-1], 5, "not_utf8"),
    (OUTBOUND + "  note: \ud800", 5, "not_utf8"),
    (OUTBOUND.encode("utf-16"), 1, "not_utf8"),
    (OUTBOUND.encode("gb18030") + "  note: 破码".encode("gb18030"), 5, "not_utf8"),
    (OUTBOUND + f"  max_lag: {'9' * 100_000}", 5, "too_many_digits"),
    (HEAD + f"x{'y' * 200_000}: 1", 2, "not_yaml"),
    (HEAD + f"? x{'y' * 200_000}\n: 1", 2, "unknown_key"),
    (OUTBOUND + f"  note: {'y' * 200_000}", 5, "too_long"),
    (
        OUTBOUND + "  init: {" + "".join(f"a{n}: &b{n} x, " for n in range(60)) + "<<: 1}",
        5,
        "merge_key",
    ),
]


@pytest.mark.slow("5 s")
@pytest.mark.parametrize(("raw", "line", "code"), REFUSED, ids=lambda value: repr(value)[:40])
def test_bad_files_are_refused_with_their_line(raw: str | bytes, line: int, code: str) -> None:
    started = time.process_time()
    found = problems_of(raw)
    # Processor time of this process: other load does not count.
    assert time.process_time() - started < 10
    assert (found[0].place, found[0].code) == (f"main.yaml:{line}", code)
    assert len(str(found[0])) < 1000


def test_a_quoted_merge_key_is_a_name() -> None:
    text = OUTBOUND + "  init:\n    '<<': 5\n"
    rules, _ = read_rules(text, {})
    assert rules is not None
    assert rules.outbounds[0].constants == {"<<": 5}


def test_an_alias_may_stand_for_a_part() -> None:
    text = INBOUND + "  selector: &s [a, b]\n- {name: b, class: x, selector: *s}\n"
    rules, problems = read_rules(text, {})
    assert (problems, rules and rules.inbounds[1].selector) == ([], ("a", "b"))


LARGE: list[Callable[[], str]] = [
    lambda: HEAD + "".join(f"key_{n}: 1\n" for n in range(90_000)),
    lambda: OUTBOUND + "  init:\n" + "".join(f"    key_{n}: 1\n" for n in range(90_000)),
    lambda: HEAD + "outbound:\n" + "- {name: a, class: b, max_lagg: 1}\n" * 20_000,
    lambda: HEAD + "outbound:\n" + "- {name: a, class: b, failback: c}\n" * 20_000,
    lambda: OUTBOUND + "  selector:\n" + "  - ''\n" * 180_000,
    lambda: OUTBOUND + "  url: '" + "{a" * 40_000 + "'\n",
    lambda: OUTBOUND + "  url: '" + "{" * 99_000 + "'\n",
    lambda: HEAD + "include: [" + "x.yaml," * 90_000 + "]\n",
    lambda: HEAD + "logging:\n  a: &a ['{x}', '{y}']\n  b: [" + "*a," * 900 + "]\n",
]


@pytest.mark.slow("15 s")
@pytest.mark.parametrize("make", LARGE)
def test_large_files_take_their_time_and_no_more(make: Callable[[], str]) -> None:
    text = make()
    assert len(text) < MAX_FILE_BYTES
    started = time.process_time()
    read_rules(text, {"x": "y" * 50_000})
    # Far from what a square of the size would take.
    assert time.process_time() - started < 20


@pytest.mark.slow("2 s")
def test_the_limit_of_values_leaves_room_for_a_thousand_outbounds() -> None:
    entry = (
        "- {{name: o{n}, class: redis_queue.RedisListOutbound, selector: [a, b, c, d, e], "
        "init: {{url: u, key: k, task_params: [a, b, c, d, e, f, g, h, i, j, k], task_src: 3, "
        "task_type: x}}}}\n"
    )
    text = HEAD + "outbound:\n" + "".join(entry.format(n=n) for n in range(3000))
    rules, problems = read_rules(text, {})
    assert problems == []
    assert rules is not None
    assert len(rules.outbounds) == 3000
    assert MAX_VALUES > 3000 * 40


QUIET = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
PIECES = st.sampled_from(
    [
        *HEAD.split(" "),
        *OUTBOUND.splitlines(keepends=True),
        *INBOUND.splitlines(keepends=True),
        *"[]{}:-,&*!<>|'#%@`~?\n\t\"",
        *("selector", "init", "class", "name", " ", "<<", "{x}", "a"),
        "\n",
        "  ",
        "\ufeff",
        "\x85",
        "破",
    ]
)


@QUIET
@given(pieces=st.lists(PIECES, max_size=30))
def test_whatever_is_put_together_is_read_or_refused(pieces: list[str]) -> None:
    for head in ("", HEAD, OUTBOUND, INBOUND):
        for problem in problems_of(head + "".join(pieces)):
            assert problem.place.startswith("main.yaml:")
            assert problem.code


@pytest.mark.slow("3 s")
@QUIET
@given(rules=rule_sets(), data=st.data())
def test_a_file_that_was_cut_or_changed_is_read_or_refused(
    rules: object, data: st.DataObject
) -> None:
    raw = bytearray(write_rules(rules).encode())  # type: ignore[arg-type]
    at = data.draw(st.integers(0, len(raw) - 1))
    problems_of(bytes(raw[:at]))
    raw[at] = data.draw(st.integers(0, 255))
    problems_of(bytes(raw))


@QUIET
@given(
    data=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([*MAIN_KEYS, *OUTBOUND_KEYS, "version", "needs", "convert"])
                | st.text(max_size=3)
                | st.integers(),
                inner,
                max_size=5,
            )
        ),
        max_leaves=20,
    )
)
def test_whatever_data_comes_is_read_or_refused(data: object) -> None:
    kept = data if isinstance(data, dict) else {"outbound": [data], "inbound": [data]}
    for given_data in (data, {"project": "p", **kept, "version": 1, "needs": 1}):
        rules, problems = from_data(given_data)
        assert (rules is None) == any(not problem.warning for problem in problems)
