"""The configuration files of the seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.routing.engine.files.reader import read_rules
from apps.routing.engine.files.writer import write_rules
from apps.routing.engine.rules import Convert, Failure, RuleSet, Server
from tests.routing.engine.files.rule_sets import HEAD, OUTBOUND, problems_of, read
from tools.requirement_marks import ROOT

SEED = ROOT / "tests" / "routing" / "seed" / "main.yaml"
ORIGINAL = ROOT / "docs" / "seeds" / "002_467697b97a54fc5a.txt"
VALUES = {
    "failure_path": "/var/lib/failed.json",
    "kafka_servers": "kafka-1:9092,kafka-2:9092",
    "redis_url": "redis://:pass@redis:6379/0",
}


@pytest.fixture(scope="module")
def seed() -> RuleSet:
    rules, problems = read_rules(SEED, VALUES)
    assert problems == []
    assert rules is not None
    return rules


def test_the_fixture_is_the_text_of_the_seed() -> None:
    original = {line.strip() for line in ORIGINAL.read_text(encoding="utf-8").splitlines()}
    ours = [line.strip() for line in SEED.read_text(encoding="utf-8").splitlines()]
    # Two lines of our own at the top; the seed's list of includes names another folder.
    strange = [line for line in ours[2:] if line not in original]
    assert strange == []


@pytest.mark.covers("S2.10")
def test_every_key_of_the_main_file_is_read(seed: RuleSet) -> None:
    assert seed.project == "name_of_project"
    assert seed.server == Server(bind="0.0.0.0", port=8526)  # noqa: S104 - of the seed
    assert (seed.limits, seed.terminal_codes) == (-1, (1000, 1101))
    assert seed.failure is not None
    assert [inbound.name for inbound in seed.inbounds] == ["spider_log"]
    assert seed.logging == {}
    assert read(HEAD + "routing: {limits: 7, terminal_codes: ok}").limits == 7
    assert read(HEAD + "routing: {terminal_codes: ok}").terminal_codes == ("ok",)
    log = {"version": 1, "handlers": {"file": {"filename": "/x", "level": "INFO"}}}
    text = HEAD + f"logging: {log}".replace("/x", "{path}")
    assert read(text, {"path": "/x"}).logging == log
    # Nobody goes by it, and whoever writes it is told.
    (told,) = problems_of(text, {"path": "/x"})
    assert (told.code, told.warning) == ("not_applied", True)
    assert "LOG_LEVEL" in told.text


@pytest.mark.covers("S2.14")
def test_placeholders_are_filled_in(seed: RuleSet) -> None:
    assert seed.failure == Failure(path="/var/lib/failed.json", compress=False)
    settings = seed.inbounds[0].init["consumer_settings"]
    assert settings["bootstrap.servers"] == VALUES["kafka_servers"]
    assert {outbound.init["url"] for outbound in seed.outbounds} == {VALUES["redis_url"]}


@pytest.mark.covers("S2.14")
def test_a_placeholder_without_a_value_is_told_with_its_line() -> None:
    rules, problems = read_rules(SEED, {"redis_urls": ""})
    assert rules is None
    told = {(problem.place, problem.code) for problem in problems}
    assert told == {
        ("main.yaml:22", "unknown_placeholder"),
        ("main.yaml:40", "unknown_placeholder"),
        ("main.yaml:66", "unknown_placeholder"),
        ("config.d/sub_config_a.yaml:7", "unknown_placeholder"),
        ("config.d/sub_config_b.yaml:7", "unknown_placeholder"),
        ("config.d/sub_config_b.yaml:13", "unknown_placeholder"),
    }
    assert any("is {redis_urls} meant?" in problem.text for problem in problems)


@pytest.mark.covers("S2.15", "S2.16")
def test_included_files_come_first_in_the_order_of_their_names(seed: RuleSet) -> None:
    names = [outbound.name for outbound in seed.outbounds]
    assert names == ["o_a_1", "o_b_2", "o_b_1", "zongju_captcha_ts3"]
    assert seed.outbounds[1].place == "config.d/sub_config_b.yaml:3"


@pytest.mark.covers("S2.17")
def test_the_inbound_of_the_seed(seed: RuleSet) -> None:
    inbound = seed.inbounds[0]
    assert (inbound.disable, inbound.weight, inbound.threads) == (False, 10, 8)
    # As they are written: comments between them are gone, signs and Chinese are not.
    assert inbound.selector[1:] == (
        "task_type == '找新' and detail_url and province != 'AH' and task_src == 0",
        "task_type == '找新' and province in ['JS', 'TJ', 'ZJ'] and task_result == 1000 "
        "and task_src == 0",
        "task_type == '小微企业补充行业'",
    )
    assert inbound.cls == "kafka.KafkaInbound"
    assert inbound.init["consumer_settings"]["group.id"] == "taskhub-project-ic"
    assert inbound.init["topics"] == ["collie-ic-spider-business-log"]
    assert inbound.convert == tuple(
        Convert(cls=cls)
        for cls in (
            "logstash.RemoveBuildinKeys",
            "ic.ExtractTaskParams",
            "ic.CaptchaExtraItem",
            "ic.ChangeSearchKey",
            "ic.ParseSearchinfoItems",
            "ic.ParseNoticeItem",
        )
    )
    assert inbound.place == "main.yaml:26"


@pytest.mark.covers("S2.17")
def test_what_an_inbound_leaves_out_is_as_the_seed_says() -> None:
    text = HEAD + "inbound:\n- {name: a, class: kafka.KafkaInbound, topics: [t], disable: }"
    inbound = read(text).inbounds[0]
    assert (inbound.disable, inbound.weight, inbound.threads) == (False, 10, 8)
    assert (inbound.selector, inbound.convert, inbound.init) == ((), (), {"topics": ["t"]})


@pytest.mark.covers("S2.24")
def test_the_outbound_of_the_seed(seed: RuleSet) -> None:
    outbound = seed.outbounds[-1]
    assert outbound.cls == "redis_queue.RedisListOutbound"
    assert outbound.init == {"url": VALUES["redis_url"], "key": "captcha_spider"}
    assert outbound.constants == {"task_src": 3, "task_type": "破码"}
    assert outbound.task_params is not None
    assert outbound.task_params[:2] == ("company_name", "company_code")
    assert len(outbound.task_params) == 11
    assert (outbound.priority, outbound.rt_priority) == (1000, 2000)
    assert (outbound.max_lag, outbound.retry_limits, outbound.token_scope) == (-1, 5, "*")
    assert len(outbound.selector) == 1
    assert not outbound.disable


PARAMETERS = """\
url: redis://r
key: k
task_params: [a, b]
task_params_wrapped: true
retry_limits: 3
priority: 10
rt_priority: 20
dont_retry_status: [404, '404', gone]
direct_failback_status: 1500
failback: b
token_scope: province
token_per_second: 2.5
reset_retry_times: true
max_lag: 100
overflow: next
expects_result: false
result_timeout_seconds: 60
"""


@pytest.mark.covers("S2.25")
@pytest.mark.parametrize("indent", ["  ", "    "], ids=["beside init", "in init"])
def test_every_parameter_may_stand_beside_init_and_in_it(indent: str) -> None:
    lines = [indent + line for line in PARAMETERS.splitlines()]
    rest = "\n- {name: b, class: redis_queue.RedisListOutbound}\n"
    head = OUTBOUND + ("  init:\n" if len(indent) == 4 else "")
    outbound = read(head + "\n".join(lines) + rest).outbounds[0]
    assert outbound.init == {"url": "redis://r", "key": "k"}
    assert outbound.constants == {}
    assert (outbound.task_params, outbound.task_params_wrapped) == (("a", "b"), True)
    assert (outbound.retry_limits, outbound.priority, outbound.rt_priority) == (3, 10, 20)
    assert outbound.dont_retry_status == (404, "404", "gone")
    assert (outbound.direct_failback_status, outbound.failback) == ((1500,), "b")
    assert (outbound.token_scope, outbound.token_per_second) == ("province", 2.5)
    assert (outbound.reset_retry_times, outbound.max_lag) == (True, 100)
    assert (outbound.overflow, outbound.expects_result) == ("next", False)
    assert outbound.result_timeout_seconds == 60.0


@pytest.mark.covers("S2.25")
def test_given_in_both_places_a_parameter_must_be_the_same() -> None:
    both = OUTBOUND + "  max_lag: 5\n  url: u\n  init:\n    max_lag: {}\n    url: {}\n"
    assert read(both.format(5, "u")).outbounds[0].max_lag == 5
    told = problems_of(both.format(6, "v"))
    assert [(problem.place, problem.code) for problem in told] == [
        ("main.yaml:8", "contradiction"),
        ("main.yaml:6", "contradiction"),
    ]
    # true is not 1, though Python says so.
    assert [p.code for p in problems_of(both.format("true", "u"))] == ["contradiction"]


def test_constants_may_have_a_place_of_their_own() -> None:
    text = OUTBOUND + "  init: {url: u, key: k}\n  constants: {key: 5, max_lag: x}\n"
    outbound = read(text).outbounds[0]
    assert outbound.init == {"url": "u", "key": "k"}
    assert (outbound.constants, outbound.max_lag) == ({"key": 5, "max_lag": "x"}, -1)


def test_the_seed_is_written_and_read_again(seed: RuleSet, tmp_path: Path) -> None:
    main = tmp_path / "rules.yaml"
    main.write_text(write_rules(seed), encoding="utf-8")
    assert read_rules(main, {}) == (seed, [])
    kept, _ = read_rules(SEED, None)
    assert kept is not None
    assert "url: '{redis_url}'" in write_rules(kept, with_placeholders=True)
