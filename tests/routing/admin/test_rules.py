"""Rules editor: drafts change only edited fields; problems are shown at their fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.access.models import AuditRecord
from apps.configcenter.models import ConfigVersion
from apps.projects.models import Project
from apps.routing.admin import schema
from apps.routing.admin.rule_drafts import form_of as shown
from apps.routing.admin.rule_drafts import read_draft
from apps.routing.engine.files.data import from_data, to_data
from apps.routing.engine.rules import Convert, Failure, Inbound, Overflow, RuleSet, Server
from tests.access.factories import make_project
from tests.routing.admin.editor import editor
from tests.routing.admin.pages import RULES, address, outbound, person, rule_set, save

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project(slug="yard")


FULL = RuleSet(
    project="yard",
    inbounds=(
        Inbound(
            "logs",
            "kafka.KafkaInbound",
            {
                "consumer_settings": {"bootstrap.servers": "{kafka_servers}", "group.id": "yard"},
                "topics": ["1", "business-log"],
            },
            ("a == 1", "b"),
            (
                Convert("logstash.RemoveBuildinKeys"),
                Convert("common.Rename", {"keys": {"a": "b"}, "existing": "keep"}),
                Convert("common.ParseTime", {"keys": ["at"], "formats": ["%Y: %m"]}),
            ),
            disable=True,
            weight=3,
            threads=2,
            note="one\n\ntwo",
        ),
    ),
    outbounds=(
        outbound("rest"),
        outbound(
            "captcha",
            "task_type == '破码'",
            disable=True,
            task_params=("company_name", "7"),
            task_params_wrapped=True,
            constants={"task_src": 3, "task_type": "破码"},
            retry_limits=5,
            priority=1,
            rt_priority=2,
            dont_retry_status=(1001, "gone"),
            direct_failback_status=(1002,),
            failback="rest",
            token_scope="province",
            token_per_second=2.5,
            reset_retry_times=True,
            max_lag=1000,
            overflow=Overflow.NEXT,
            expects_result=False,
            result_timeout_seconds=60.0,
            note="busy",
        ),
    ),
    limits=7,
    terminal_codes=(1000, "done"),
    server=Server("127.0.0.1", 8526),
    failure=Failure("{failure_path}", compress=True),
    logging={"version": 1, "handlers": {"console": {"class": "logging.StreamHandler"}}},
)


# --- drafts -------------------------------------------------------------------------------------


def test_what_nobody_touches_stays_as_it_is(project: Project) -> None:
    # With floats, large numbers and texts like numbers, which a browser would change.
    rules = rule_set(
        outbound("a", "True", constants={"n": 1.0, "big": 2**60, "text": "1000", "x": {"y": []}}),
        outbound("b", dont_retry_status=(1001, "1001", "time out")),
    )
    version = save(project, rules)
    answer = editor(project).save()
    assert answer.json() == {
        "number": version.number,
        "created": False,
        "address": address(RULES, project, version=version.number),
    }


def test_every_field_can_be_typed_as_it_is_shown() -> None:
    """All fields of a full rule set pass through the form unchanged."""
    data = to_data(FULL)
    state = shown(data)
    empty = to_data(RuleSet(project="x"))
    draft = {
        "rules": state["rules"],
        "inbound": [{"from": None, "set": entry} for entry in state["inbound"]],
        "outbound": [{"from": None, "set": entry} for entry in state["outbound"]],
    }
    read = read_draft(empty, json.loads(json.dumps(draft)))
    assert read.wrong == []
    rules, problems = from_data(read.data)
    assert [each for each in problems if not each.warning] == []
    assert rules is not None
    assert plain(to_data(rules)) == plain(data)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e9, 1e9) | TEXTS,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(TEXTS, part, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow("1 s")
@given(st.dictionaries(TEXTS.filter(bool), VALUES, max_size=4), st.lists(TEXTS | st.integers()))
def test_pairs_and_lines_are_read_as_they_are_shown(
    constants: dict[str, Any], statuses: list[int | str]
) -> None:
    rules = RuleSet(
        "x", outbounds=(outbound("a", constants=constants, dont_retry_status=tuple(statuses)),)
    )
    data = to_data(rules)
    typed = {name: shown(data)["outbound"][0][name] for name in ("constants", "dont_retry_status")}
    read = read_draft(data, {"inbound": [], "outbound": [{"from": 0, "set": typed}]})
    assert read.wrong == []
    # As texts: 1 and 1.0 are not the same, though Python says so.
    (before,), (after,) = data["outbound"], read.data["outbound"]
    assert json.dumps(after["constants"]) == json.dumps(before["constants"])
    assert json.dumps(after["dont_retry_status"]) == json.dumps(before["dont_retry_status"])


def plain(data: Any) -> Any:
    """Return the rules without positions in files."""
    if isinstance(data, dict):
        return {name: plain(value) for name, value in data.items() if name != "place"}
    return [plain(value) for value in data] if isinstance(data, list) else data


def test_a_draft_moves_switches_duplicates_and_deletes(project: Project) -> None:
    save(project, rule_set(*(outbound(name, "True") for name in "abc")))
    page = editor(project)
    one, two, _three = page.draft["outbound"]
    page.draft["outbound"] = [two, one, {"from": 0, "set": {"name": "a copy"}}]
    page.type("outbound", 0, disable=True, note="not this week")
    data = page.saved("tidy up")
    found = [(each["name"], each["disable"], each["note"]) for each in data["outbound"]]
    assert found == [("b", True, "not this week"), ("a", False, ""), ("a copy", False, "")]
    assert data["outbound"][2]["init"] == {"url": "{redis_url}", "key": "a"}
    version = ConfigVersion.objects.get(number=2)
    assert version.note == "tidy up"
    assert AuditRecord.objects.filter(action="configcenter.save_version").count() == 2


def test_the_first_rules_of_a_project_are_written_here(project: Project) -> None:
    page = editor(project)
    assert page.form["version"] == 0
    page.draft["inbound"] = [
        {"from": None, "set": {"name": "web", "class": "http.HttpInbound", "selector": ["a == 1"]}}
    ]
    page.draft["outbound"] = [
        {
            "from": None,
            "set": {
                "name": "captcha",
                "class": "redis_queue.RedisListOutbound",
                "init.url": "{redis_url}",
                "init.key": "captcha_spider",
                "selector": ["task_type == '破码'"],
                "task_params": "company_name\n credit_no \n\n1",
                "constants": 'task_src: 3\ntask_type: 破码\n"a: b": "3"\nempty:',
                "retry_limits": "5",
                "dont_retry_status": '1001\n"1002"\ntimeout',
                "expects_result": "false",
                "max_lag": "",
            },
        }
    ]
    page.draft["rules"] = {"routing.terminal_codes": "1000\n1101", "server.port": "8526"}
    assert [(each["of"], each["field"]) for each in page.errors()] == [("rules", "server.bind")]
    page.draft["rules"] |= {"server.bind": "0.0.0.0", "failure.path": "{failure_path}"}  # noqa: S104
    rules, _problems = from_data(page.saved())
    assert rules is not None
    assert rules.project == "yard"
    assert rules.terminal_codes == (1000, 1101)
    assert rules.server == Server("0.0.0.0", 8526)  # noqa: S104
    assert rules.failure == Failure("{failure_path}")
    (made,) = rules.outbounds
    assert made.task_params == ("company_name", "credit_no", "1")
    assert made.constants == {"task_src": 3, "task_type": "破码", "a: b": "3", "empty": ""}
    assert (made.retry_limits, made.max_lag, made.expects_result) == (5, -1, False)
    assert made.dont_retry_status == (1001, "1002", "timeout")


def test_another_class_drops_what_it_does_not_know(project: Project) -> None:
    save(project, rule_set(outbound("a", "True")))
    page = editor(project)
    page.type("outbound", 0, **{"class": "rabbitmq.RabbitQueueOutbound"})
    assert {each["field"] for each in page.errors()} == {"init.queue"}
    page.type("outbound", 0, init__url="{broker_url}", init__queue="spiders", init__key="left over")
    data = page.saved()
    assert data["outbound"][0]["init"] == {"url": "{broker_url}", "queue": "spiders"}


# --- problems -----------------------------------------------------------------------------------


@pytest.mark.slow("4 s")
@pytest.mark.parametrize(
    ("of", "typed", "field", "row"),
    [
        ("outbound", {"name": ""}, "name", None),
        ("outbound", {"name": "rest"}, "name", None),
        ("outbound", {"selector": ["True", "a ==="]}, "selector", 1),
        ("outbound", {"selector": [""]}, "selector", 0),
        ("outbound", {"retry_limits": "many"}, "retry_limits", None),
        ("outbound", {"failback": "nobody"}, "failback", None),
        ("outbound", {"overflow": "explode"}, "overflow", None),
        ("outbound", {"init.key": ""}, "init.key", None),
        ("outbound", {"init.url": "http://host/"}, "init.url", None),
        ("outbound", {"constants": "a: 1\nwhat is this"}, "constants", None),
        ("outbound", {"constants": "a: 1\na: 2"}, "constants", None),
        ("inbound", {"weight": "0"}, "weight", None),
        ("inbound", {"class": "kafka.KafkaInbound"}, "init.consumer_settings", None),
        ("inbound", {"convert": [{"class": "common.Nothing", "init": ""}]}, "convert", 0),
        (
            "inbound",
            {
                "convert": [
                    {"class": "common.ExtractMetadata", "init": ""},
                    {"class": "x", "init": ""},
                ]
            },
            "convert",
            1,
        ),
        ("inbound", {"convert": [{"class": "common.Delete", "init": "no pair"}]}, "convert", 0),
    ],
)
def test_problems_are_shown_at_their_field(
    project: Project, of: str, typed: dict[str, Any], field: str, row: int | None
) -> None:
    save(project)
    page = editor(project)
    page.draft[of][0]["set"].update(typed)
    errors = page.errors()
    assert {(each["of"], each["place"]) for each in errors} <= {(of, 0), (of, 1)}
    assert (field, row) in {(each["field"], each["row"]) for each in errors}, errors
    refused = page.save()
    assert refused.status_code == 422
    assert refused.json()["wrong"]
    assert ConfigVersion.objects.count() == 1


def test_a_wrong_condition_says_which_character(project: Project) -> None:
    save(project)
    page = editor(project)
    page.type("outbound", 0, selector=["任务 == '破码' and and rt"])
    (wrong,) = page.errors()
    assert (wrong["field"], wrong["row"], wrong["offset"]) == ("selector", 0, 15)


def test_the_whole_set_has_problems_of_its_own(project: Project) -> None:
    save(project)
    page = editor(project)
    page.draft["rules"] = {"routing.limits": "0", "project": ""}
    assert {each["field"] for each in page.errors()} == {"routing.limits", "project"}


@pytest.mark.slow("2 s")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b'{"version": 1}',
        b'{"version": "1", "draft": {}}',
        b'{"version": true, "draft": {}}',
        b'{"version": 1, "draft": {"inbound": [], "outbound": [{"from": 99}]}}',
        b'{"version": 1, "draft": {"inbound": [], "outbound": [{"from": true}]}}',
        b'{"version": 1, "draft": {"inbound": [], "outbound": [{"set": {"place": "x"}}]}}',
        b'{"version": 1, "draft": {"inbound": [], "outbound": [{"set": {"name": 3}}]}}',
        b'{"version": 1, "draft": {"inbound": [], "outbound": [{"set": {"selector": "x"}}]}}',
        b'{"version": 1, "draft": {"rules": {"x": ""}, "inbound": [], "outbound": []}}',
    ],
    ids=range(12),
)
def test_nonsense_is_refused(project: Project, body: bytes) -> None:
    save(project)
    client = person(project)
    for name in ("routing_rules_check", "routing_rules_save"):
        answer = client.post(address(name, project), body, content_type="application/json")
        assert answer.status_code == 400
    assert ConfigVersion.objects.count() == 1


# --- the schema ---------------------------------------------------------------------------------


def test_the_form_has_every_field_of_the_rules() -> None:
    data = to_data(
        RuleSet(
            "x",
            (Inbound("i", "http.HttpInbound", convert=(Convert("a"),)),),
            (outbound("o", overflow=Overflow.NEXT),),
            server=Server("a", 1),
            failure=Failure("f"),
        )
    )
    for of in ("inbound", "outbound"):
        assert {*data[of][0]} - {*schema.fields_of(of)} == {"disable"}
    fields = {name.partition(".")[0] for name in schema.fields_of("rules")}
    assert {*data} - fields == {"version", "needs", "inbound", "outbound"}
    inside = {name for name in schema.fields_of("rules") if "." in name}
    wanted = {f"{of}.{name}" for of in ("routing", "server", "failure") for name in data[of]}
    assert inside == wanted


def test_every_class_and_every_parameter_is_offered() -> None:
    found = schema.as_json()
    assert json.loads(json.dumps(found)) == found
    for of in ("inbound", "outbound"):
        for name, fields in found["classes"][of].items():
            assert schema.parameters_of(of, name) is not None, name
            if name.startswith("test."):
                # Of other tests in this process.
                continue
            for each in fields:
                assert each["help"], (name, each["name"])
    assert found["converters"]["common.Rename"] == ["keys", "existing"]
