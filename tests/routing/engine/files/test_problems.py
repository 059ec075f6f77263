"""All problems of a rule set are reported at once, each with line and code."""

from __future__ import annotations

import pytest

from apps.routing.engine.files.classes import known_parameters
from apps.routing.engine.files.fields import MAX_PROBLEMS
from apps.routing.engine.files.reader import read_rules
from apps.routing.engine.rules import Problem
from tests.routing.engine.files.rule_sets import HEAD, INBOUND, OUTBOUND, problems_of, read

LIST = "class: redis_queue.RedisListOutbound"


def told(text: str) -> list[tuple[str, str]]:
    return [(problem.place, problem.code) for problem in problems_of(text)]


@pytest.mark.parametrize(
    ("text", "place", "code", "said"),
    [
        ("", "1", "not_rules", "project"),
        ("- a", "1", "not_rules", "project"),
        ("server: {bind: a, port: 1}", "1", "missing", "project is missing"),
        ("project: 5", "1", "wrong_type", "project: a text is needed, this is a whole number; put"),
        ("project: ' a'", "1", "bad_name", "blanks"),
        ("project: ''", "1", "bad_name", "1 to 200"),
        ('project: "a\\nb"', "1", "bad_name", "one line"),
        (f"project: {'a' * 201}", "1", "bad_name", "200"),
        (HEAD + "outbonud: []", "2", "unknown_key", "no key 'outbonud'; is outbound meant?"),
        (HEAD + "server: 5", "2", "wrong_type", "a mapping is needed"),
        (HEAD + "server: {bind: a}", "2", "missing", "port"),
        (HEAD + "server:\n  port: 1", "2", "missing", "bind"),
        (HEAD + "server:\n  bind: a\n  port: 0", "4", "out_of_range", "from 1 to 65535"),
        (HEAD + "server:\n  bind: a\n  port: 70000", "4", "out_of_range", "server.port"),
        (HEAD + "server:\n  bind: a\n  port: '1'", "4", "wrong_type", "this is a text"),
        (HEAD + "server:\n  bind: a\n  port: true", "4", "wrong_type", "true or false"),
        (HEAD + "server: {bind: a, port: 1, host: b}", "2", "unknown_key", "'host'"),
        (HEAD + "routing:\n  limits: 0", "3", "out_of_range", "nothing is routed"),
        (HEAD + "routing:\n  limits: -2", "3", "out_of_range", "from -1"),
        (HEAD + "routing:\n  limits: 1.5", "3", "wrong_type", "a whole number is needed"),
        (HEAD + "routing:\n  terminal_codes:\n  - 1\n  - 1.5", "5", "wrong_type", "codes[1]"),
        (HEAD + "routing:\n  terminal_codes: [true]", "3", "wrong_type", "or a text is needed"),
        (HEAD + "failure: {compress: false}", "2", "missing", "path"),
        (HEAD + "failure: {path: '', compress: false}", "2", "missing", "path"),
        (HEAD + "failure:\n  path: {failure_path}", "3", "wrong_type", "needs quotes: '{name}'"),
        (HEAD + "failure:\n  path: a\n  compress: yes", "4", "wrong_type", "true or false is"),
        (HEAD + "logging: [a]", "2", "wrong_type", "a mapping"),
        (HEAD + "inbound: {a: b}", "2", "wrong_type", "a list is needed, this is a mapping"),
        (HEAD + "outbound:\n- a", "3", "wrong_type", "a mapping with name and class"),
        (HEAD + "outbound:\n- name: a", "3", "missing", "class"),
        (HEAD + f"outbound:\n- {LIST}", "3", "missing", "name"),
        (HEAD + "outbound:\n- name: a\n  class: 5", "4", "wrong_type", "outbound[0].class"),
        (INBOUND + "  threads: 0", "5", "out_of_range", "from 1"),
        (INBOUND + "  weight: 0", "5", "out_of_range", "from 1"),
        (INBOUND + "  weight: '10'", "5", "wrong_type", "weight"),
        (INBOUND + "  thread: 1", "5", "unknown_key", "is threads meant?"),
        (INBOUND + "  place: x", "5", "unknown_key", "'place'"),
        (INBOUND + "  url: x", "5", "unknown_key", "'url'"),
        (INBOUND + "  selector:\n  - a\n  - true", "7", "wrong_type", "selector[1]"),
        (INBOUND + "  selector:\n  - a\n  - ' '", "7", "empty_selector", "a condition"),
        (INBOUND + "  selector: {a: b}", "5", "wrong_type", "a text is needed"),
        (INBOUND + "  convert: [a]", "5", "wrong_type", "a mapping with class"),
        (INBOUND + "  convert:\n  - class: a\n  - init: {}", "7", "missing", "convert[1]"),
        (INBOUND + "  convert:\n  - class: a\n    inti: {}", "7", "unknown_key", "is init meant"),
        (INBOUND + "  topics: [a]\n  init:\n    topics: [b]", "5", "contradiction", "topics"),
        (OUTBOUND + "  disable: 'no'", "5", "wrong_type", "true or false"),
        (OUTBOUND + "  retry_limits: -1", "5", "out_of_range", "from 0"),
        (OUTBOUND + "  max_lag: -2", "5", "out_of_range", "from -1"),
        (OUTBOUND + "  init:\n    max_lag: a", "6", "wrong_type", "outbound[0].init.max_lag"),
        (OUTBOUND + "  priority: 1e3", "5", "wrong_type", "this is a number"),
        (OUTBOUND + "  token_per_second: -1", "5", "out_of_range", "from 0"),
        (OUTBOUND + "  token_per_second: .nan", "5", "wrong_type", "a number is needed"),
        (OUTBOUND + "  token_per_second: 1e999", "5", "out_of_range", "a number from"),
        (OUTBOUND + "  token_scope: ''", "5", "bad_name", "token_scope"),
        (OUTBOUND + "  result_timeout_seconds: 0", "5", "out_of_range", "result"),
        (OUTBOUND + "  overflow: drop", "5", "unknown_value", "hold, next, fail"),
        (OUTBOUND + "  task_params: [a, 5]", "5", "wrong_type", "task_params[1]"),
        (OUTBOUND + "  dont_retry_status: [[1]]", "5", "wrong_type", "this is a list"),
        (OUTBOUND + "  dont_retry_status: 99999999999999999999", "5", "out_of_range", "9223"),
        (OUTBOUND + "  retry_limit: 1", "5", "unknown_key", "is retry_limits meant?"),
        (OUTBOUND + "  keys: 1", "5", "unknown_key", "is key meant?"),
        (OUTBOUND + "  task_src: 1", "5", "unknown_key", "constants stand in init"),
        (OUTBOUND + "  init:\n    selector: x", "6", "misplaced", "stands beside init"),
        (OUTBOUND + "  init: [a]", "5", "wrong_type", "a mapping"),
        (OUTBOUND + "  init:\n    a: 1e999", "6", "out_of_range", "too large"),
        (OUTBOUND + "  failback: a", "5", "own_failback", "its own"),
        (
            OUTBOUND + f"  failback: spare\n- {{name: spares, {LIST}}}",
            "5",
            "unknown_failback",
            "is spares",
        ),
        (OUTBOUND + f"- name: a\n  {LIST}", "5", "duplicate_name", "taken by main.yaml:3"),
        (INBOUND + "- name: a\n  class: x", "5", "duplicate_name", "taken by main.yaml:3"),
    ],
)
def test_each_mistake_has_its_line(text: str, place: str, code: str, said: str) -> None:
    first = problems_of(text)[0]
    assert (first.place, first.code) == (f"main.yaml:{place}", code)
    assert said in str(first)
    assert not first.warning
    assert str(first).startswith(f"main.yaml:{place}: ")


@pytest.mark.parametrize(
    ("text", "place", "code"),
    [
        (OUTBOUND + "  direct_failback_status: 5", "5", "no_failback"),
        (
            OUTBOUND + f"  failback: b\n- {{name: b, {LIST}, disable: true}}",
            "5",
            "disabled_failback",
        ),
        (OUTBOUND + "  init:\n    submitter: me", "6", "reserved_key"),
        (OUTBOUND + "  init:\n    task_params_wraped: true", "6", "like_a_parameter"),
        (HEAD + "outbound:\n- name: a\n  class: no.Such", "4", "unknown_class"),
    ],
)
def test_what_may_be_meant_is_warned_of(text: str, place: str, code: str) -> None:
    rules, problems = read_rules(text, {})
    assert rules is not None
    assert [(p.place, p.code, p.warning) for p in problems] == [(f"main.yaml:{place}", code, True)]


def test_everything_is_told_at_once() -> None:
    text = HEAD + (
        "server: {bind: 5, port: x}\nrouting: {limits: a}\nnonsense: 1\n"
        "inbound:\n- {name: a, class: c, threads: 0}\n- 5\n"
        f"outbound:\n- {{name: b, {LIST}, failback: c, init: {{max_lag: x}}}}\n- {{name: b}}\n"
    )
    assert told(text) == [
        ("main.yaml:4", "unknown_key"),
        ("main.yaml:6", "out_of_range"),
        ("main.yaml:7", "wrong_type"),
        ("main.yaml:9", "wrong_type"),
        ("main.yaml:10", "missing"),
        ("main.yaml:9", "unknown_failback"),
        ("main.yaml:3", "wrong_type"),
        ("main.yaml:2", "wrong_type"),
        ("main.yaml:2", "wrong_type"),
    ]


def test_of_very_many_problems_the_first_are_told() -> None:
    found = problems_of(HEAD + "outbound:\n" + "- 5\n" * 5000)
    assert len(found) == MAX_PROBLEMS + 1
    assert found[-1].code == "too_many_problems"
    warned = OUTBOUND + "  init:\n" + "".join(f"    task_param{n}: 1\n" for n in range(5000))
    rules, problems = read_rules(warned, {})
    assert rules is not None
    assert len(problems) == MAX_PROBLEMS


@pytest.mark.parametrize(
    ("links", "circles"),
    [
        ("ab bc c", []),
        ("ab ba", ["a"]),
        ("ab bc ca", ["a"]),
        ("ab bc cb", ["b"]),
        ("ab ba cd dc ea", ["a", "c"]),
    ],
)
def test_failbacks_in_a_circle(links: str, circles: list[str]) -> None:
    entries = [f"- {{name: {link[0]}, {LIST}, failback: '{link[1:]}'}}" for link in links.split()]
    found = problems_of(HEAD + "outbound:\n" + "\n".join(entries))
    lines = {link[0]: number for number, link in enumerate(links.split(), 3)}
    assert [(problem.place, problem.code) for problem in found] == [
        (f"main.yaml:{lines[name]}", "failback_circle") for name in circles
    ]
    if circles == ["b"]:
        assert "'b' -> 'c' -> 'b'" in found[0].text


@pytest.mark.slow("2 s")
def test_a_long_circle_is_found_without_recursion() -> None:
    count = 5000
    entries = "".join(
        f"- {{name: n{n}, {LIST}, failback: n{(n + 1) % count}}}\n" for n in range(count)
    )
    assert told(HEAD + "outbound:\n" + entries) == [("main.yaml:3", "failback_circle")]


def no_quotes(text: str) -> tuple[str, str, int] | None:
    offset = text.find('"')
    return None if offset < 0 else ("bad_selector", "no quotes here", offset)


def test_selectors_are_checked_where_they_stand() -> None:
    text = OUTBOUND + "  selector:\n  - fine\n  - 'a == \"b\"'\n"
    rules, problems = read_rules(text.encode(), {}, name="x.yml", check_selector=no_quotes)
    assert rules is None
    assert problems == [
        Problem("x.yml:7", "bad_selector", "outbound[0].selector[1]: no quotes here", 5)
    ]


def test_braces_in_selectors_and_notes_mean_nothing() -> None:
    text = OUTBOUND + "  selector: \"k == '{x}' and j == '{{y}}'\"\n  note: '{x}'\n"
    outbound = read(text).outbounds[0]
    assert outbound.selector == ("k == '{x}' and j == '{{y}}'",)
    assert outbound.note == "{x}"
    log = read(HEAD + "logging: {format: '{asctime} {message}', file: '{f}'}", {"f": "/x"}).logging
    assert log == {"format": "{asctime} {message}", "file": "/x"}


def test_a_placeholder_alone_may_stand_for_a_number_or_a_truth_value() -> None:
    text = OUTBOUND + "  max_lag: '{lag}'\n  disable: '{off}'\n  init: {c: '{lag}'}\n"
    outbound = read(text, {"lag": "50", "off": "true"}).outbounds[0]
    assert (outbound.max_lag, outbound.disable) == (50, True)
    assert outbound.constants == {"c": "50"}, "what a constant is nobody but the file can say"
    assert [problem.code for problem in problems_of(text, {"lag": "x", "off": "9" * 99})] == [
        "wrong_type",
        "wrong_type",
    ]


def test_passwords_are_in_no_problem() -> None:
    values = {"secret": "hunter2", "redis_url": "redis://:hunter2@r"}
    text = OUTBOUND + (
        "  max_lag: '{secret}'\n  overflow: '{secret}'\n  url: '{redis_url}'\n"
        "  token_scope: '{secret} '\n  init: {url: 'redis://:hunter2@x', priority: '{redis_url}'}\n"
    )
    problems = problems_of(text, values)
    assert len(problems) == 5
    assert not [problem for problem in problems if "hunter2" in str(problem)]


def test_classes_of_others_may_be_known() -> None:
    def parameters(cls: str) -> frozenset[str] | None:
        if cls == "broken.Registry":
            raise LookupError(cls)
        return frozenset({"bucket"}) if cls == "s3.Outbound" else known_parameters(cls)

    text = HEAD + "outbound:\n- {name: a, class: s3.Outbound, init: {bucket: b, c: 1}}\n"
    text += "- {name: b, class: broken.Registry, init: {x: 1, max_lag: 5}}\n"
    rules, problems = read_rules(text, {}, class_parameters=parameters)
    assert rules is not None
    first, second = rules.outbounds
    assert (first.init, first.constants) == ({"bucket": "b"}, {"c": 1})
    assert (second.init, second.max_lag) == ({"x": 1}, 5)
    assert [(problem.place, problem.code) for problem in problems] == [
        ("main.yaml:4", "unknown_class")
    ]
