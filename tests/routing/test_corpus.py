"""Hostile input: conditions that try to escape the language, and invalid items."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.configcenter.models import ConfigVersion
from apps.routing.engine.converters.registry import BUILT_IN as CONVERTERS
from apps.routing.engine.inbounds import registry as inbounds
from apps.routing.engine.outbounds import registry as outbounds
from apps.routing.engine.rules import Problem
from apps.routing.engine.selector import SelectorError, compile_selector
from apps.routing.services.configuration import RoutingKind
from tests.access.factories import make_project
from tools.requirement_marks import ROOT

CORPUS = json.loads(
    (ROOT / "tests" / "data" / "corpus" / "expressions.json").read_text(encoding="utf-8")
)
BAD = ("escape", "exhaust")
# A condition should take 10 ms at most; a busy machine gets ten times that.
MOST_SECONDS = 0.1

pytestmark = pytest.mark.covers("S2.20")


def texts_of(group: str, marker: Path) -> list[str]:
    return [text.replace("MARKER_FILE", str(marker)) for text in CORPUS[group]]


def rules(selectors: list[str]) -> dict[str, Any]:
    init = {"url": "redis://r:6379/0", "key": "k"}
    return {
        "version": 1,
        "needs": 1,
        "project": "p",
        "inbound": [
            {"name": "i", "class": "redis_queue.RedisListInbound", "init": init}
            | {"selector": selectors}
        ],
        "outbound": [
            {"name": "o", "class": "redis_queue.RedisListOutbound", "init": init}
            | {"selector": selectors}
        ],
    }


def errors(data: dict[str, Any]) -> list[Problem]:
    return [each for each in RoutingKind().check(data) if not each.warning]


# --- conditions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("group", BAD)
def test_each_is_refused_with_its_place_where_rules_are_saved(group: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for text in texts_of(group, marker):
        found = errors(rules([text]))
        places = {each.place for each in found}
        assert places == {"inbound[0].selector[0]", "outbound[0].selector[0]"}, text[:100]
        for each in found:
            assert each.code
            # Other strings cannot be stored at all, so they never become a condition.
            if each.code != "bad_character":
                assert each.offset is not None
                assert 0 <= each.offset <= len(text)
    assert not marker.exists()


def test_the_seeds_conditions_are_taken() -> None:
    assert errors(rules(CORPUS["good"])) == []


HEAD = """project: p
outbound:
- name: o
  class: redis_queue.RedisListOutbound
  init: {url: 'redis://r', key: k}
  selector:
"""


def refusal_of_file(file: Path, texts: list[str]) -> str:
    file.write_text(
        HEAD + "".join(f"  - {json.dumps(text, ensure_ascii=False)}\n" for text in texts), "utf-8"
    )
    with pytest.raises(CommandError) as refused:
        call_command("config", "apply", "routing", str(file), "--project", "p")
    assert refused.value.returncode == 2
    return str(refused.value)


@pytest.mark.django_db
@pytest.mark.parametrize("group", BAD)
def test_each_is_refused_with_its_line_in_a_file(group: str, tmp_path: Path) -> None:
    make_project(slug="p")
    marker, file = tmp_path / "marker", tmp_path / "main.yaml"
    first = HEAD.count("\n") + 1
    texts = texts_of(group, marker)
    # A character that YAML does not allow is the only reported problem.
    held = [text for text in texts if not re.search("[\x00\ud800-\udfff]", text)]
    told = refusal_of_file(file, held)
    for number in range(len(held)):
        assert f"main.yaml:{first + number}: " in told
    for text in set(texts) - set(held):
        assert f"main.yaml:{first}: " in refusal_of_file(file, [text])
    assert not marker.exists()
    assert not ConfigVersion.objects.exists()


def test_no_condition_takes_long_to_refuse_or_to_answer() -> None:
    item = {"company_name": "x" * 100_000, "task_params": {"province": "GD"}, "task_result": 1000}
    item |= {f"key{number}": "值" * 100 for number in range(1000)}
    slowest = 0.0
    for group in ("good", *BAD):
        for text in CORPUS[group]:
            slowest = max(slowest, min(seconds_of(text, item) for _ in range(3)))
    assert slowest < MOST_SECONDS


def seconds_of(text: str, item: dict[str, Any]) -> float:
    """Return the CPU seconds for compiling or for evaluating a condition, whichever is longer."""
    began = time.thread_time()
    try:
        selector = compile_selector(text)
    except SelectorError:
        return time.thread_time() - began
    compiled = time.thread_time()
    selector.matches(item)
    return max(compiled - began, time.thread_time() - compiled)


# --- rules ----------------------------------------------------------------------------------------

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(
        ["redis://:p@h:6379/0", "{redis_url}", "{broker_url}", "amqp://", "http://[::1", "a == 1"]
    )
)
WORDS = (
    "name", "class", "init", "selector", "disable", "weight", "threads", "convert", "task_params",
    "constants", "max_lag", "failback", "url", "key", "queue", "topics", "topic", "path", "follow",
    "consumer_settings", "producer_settings", "job", "arguments", "headers", "batch", "keys",
    "bootstrap.servers", "values", "note", "place", "token_scope", "x",
)  # fmt: skip
KEYS = st.sampled_from(WORDS) | st.text(max_size=3)
ANYTHING = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from([*inbounds.names(), *outbounds.names(), *CONVERTERS, "no.Where"])


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    known = {"name": draw(st.text(max_size=3)), "class": draw(NAMES), "init": draw(ANYTHING)}
    return known | draw(st.dictionaries(KEYS, ANYTHING, max_size=4))


@pytest.mark.slow("4 s")
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(entries(), max_size=2),
    st.lists(entries(), max_size=2),
    st.lists(entries(), max_size=2),
    ANYTHING,
)
def test_whatever_rules_are_made_of_they_are_checked(
    ins: list[dict[str, Any]], outs: list[dict[str, Any]], converts: list[Any], failure: Any
) -> None:
    head = {"version": 1, "needs": 1, "project": "p", "failure": failure}
    for each in ins:
        each.setdefault("convert", converts)
    for problem in RoutingKind().check(head | {"inbound": ins, "outbound": outs}):
        assert problem.place
        assert problem.code
        assert problem.text
