"""Hypothesis strategies for valid rule sets, and helpers to read short texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from apps.routing.engine.files.reader import read_rules
from apps.routing.engine.rules import (
    Convert,
    Failure,
    Inbound,
    Outbound,
    Overflow,
    Problem,
    RuleSet,
    Server,
)

HEAD = "project: p\n"
OUTBOUND = HEAD + "outbound:\n- name: a\n  class: redis_queue.RedisListOutbound\n"
INBOUND = HEAD + "inbound:\n- name: a\n  class: kafka.KafkaInbound\n"

# Half of a pair and NUL cannot be stored anywhere.
_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
_AWKWARD = st.sampled_from(
    [
        "1000",
        "0o17",
        "0x10",
        "1_000",
        "1e3",
        ".5",
        "yes",
        "NO",
        "on",
        "null",
        "~",
        "true",
        "12:30",
        "2026-01-01",
        "<<",
        "=",
        "",
        " ",
        "- a",
        "a: b",
        "a #b",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        "'",
        '"',
        "'\"",
        "破码",
        "多行\n文本\n",
        "a\n\n  b\n",
        "tab\there",
        "\ufeff",
        "\u2028",
        "\x85",
        "\r\n",
        "🙂",
        "---",
        "...",
        "{redis_url}",
        "{{redis_url}}",
        "{{{x}}",
        "{x}{y}}",
        r"^\d{3}$",
        '{"a": {"b": 1}}',
        "{",
        "}}",
        "{}",
    ]
)
TEXTS = _AWKWARD | st.text(_CHARACTERS, max_size=12) | st.text("{}ab_", max_size=12)
NAMES = (
    (_AWKWARD | st.text(_CHARACTERS, max_size=12))
    .map(lambda text: "".join(c for c in text if c.isprintable()).strip())
    .filter(bool)
)
KEYS = (
    st.sampled_from(
        ["url", "key", "priority", "name", "selector", "init", "constants", "task_src", "place"]
    )
    | TEXTS
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
MAPPINGS = st.dictionaries(KEYS, VALUES, max_size=4)
STATUSES = st.lists(st.integers(-(2**63), 2**63 - 1) | TEXTS, max_size=3).map(tuple)
SELECTORS = st.lists(TEXTS.filter(lambda text: text.strip()), max_size=3).map(tuple)
CLASSES = st.sampled_from(["redis_queue.RedisListOutbound", "kafka.KafkaOutbound"]) | NAMES


def _inbound(name: str) -> st.SearchStrategy[Inbound]:
    return st.builds(
        Inbound,
        name=st.just(name),
        cls=st.just("kafka.KafkaInbound") | NAMES,
        init=MAPPINGS,
        selector=SELECTORS,
        convert=st.lists(st.builds(Convert, cls=NAMES, init=MAPPINGS), max_size=2).map(tuple),
        disable=st.booleans(),
        weight=st.just(10) | st.integers(1, 1000),
        threads=st.just(8) | st.integers(1, 64),
        note=TEXTS,
        place=TEXTS,
    )


def _outbound(name: str, later: list[str]) -> st.SearchStrategy[Outbound]:
    numbers = st.integers(-(2**31) + 1, 2**31 - 1)
    return st.builds(
        Outbound,
        name=st.just(name),
        cls=CLASSES,
        init=MAPPINGS | st.fixed_dictionaries({"url": TEXTS, "key": TEXTS}),
        selector=SELECTORS,
        disable=st.booleans(),
        task_params=st.none() | st.lists(TEXTS, max_size=3).map(tuple),
        task_params_wrapped=st.booleans(),
        constants=MAPPINGS,
        retry_limits=st.just(0) | st.integers(0, 100),
        priority=st.just(1000) | numbers,
        rt_priority=st.just(2000) | numbers,
        dont_retry_status=STATUSES,
        direct_failback_status=STATUSES,
        # Only to those that follow: no circles.
        failback=st.sampled_from(["", *later]),
        token_scope=st.just("*") | NAMES,
        token_per_second=st.just(0.0) | st.floats(0.0, 1e9),
        reset_retry_times=st.booleans(),
        max_lag=st.just(-1) | st.integers(0, 1000),
        overflow=st.sampled_from(Overflow),
        expects_result=st.none() | st.booleans(),
        result_timeout_seconds=st.just(86400.0) | st.floats(0.001, 1e8),
        note=TEXTS,
        place=TEXTS,
    )


@st.composite
def rule_sets(draw: st.DrawFn) -> RuleSet:
    """Generate rule sets without errors; warnings are possible."""
    unique: Any = st.lists(NAMES, max_size=3, unique=True)
    inbounds, outbounds = draw(unique), draw(unique)
    return RuleSet(
        project=draw(NAMES),
        inbounds=tuple(draw(_inbound(name)) for name in inbounds),
        outbounds=tuple(
            draw(_outbound(name, outbounds[number:])) for number, name in enumerate(outbounds, 1)
        ),
        limits=draw(st.just(-1) | st.integers(1, 1000)),
        terminal_codes=draw(STATUSES),
        server=draw(st.none() | st.builds(Server, bind=NAMES, port=st.integers(1, 65535))),
        failure=draw(
            st.none() | st.builds(Failure, path=TEXTS.filter(bool), compress=st.booleans())
        ),
        logging=draw(MAPPINGS),
    )


def read(text: str | bytes, placeholders: Mapping[str, str] | None = None) -> RuleSet:
    """Read a text that has no problem except the warning about ``logging``."""
    rules, problems = read_rules(text, placeholders or {})
    assert spoken(problems) == []
    assert rules is not None
    return rules


def spoken(problems: list[Problem]) -> list[Problem]:
    """Remove the warning that every ``logging`` causes."""
    return [problem for problem in problems if problem.code != "not_applied"]


def problems_of(text: str | bytes, placeholders: Mapping[str, str] | None = None) -> list[Problem]:
    """Return errors and warnings of a text."""
    rules, problems = read_rules(text, placeholders or {})
    assert (rules is None) == any(not problem.warning for problem in problems)
    return problems
