"""How a job's pages are fetched: what is refused, in the form and over REST, and what arrives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.jobs.daemon.specs import spec_of
from apps.jobs.models import DownloaderKind, DownloadPolicy, Job, parse_cookies
from apps.jobs.models.options import contradictions
from apps.jobs.models.validators import (
    check_cookies,
    pattern_problem,
    validate_cut_rules,
    validate_encoding,
    validate_header_text,
)
from apps.jobs.states import RunState
from tests.access.factories import Api, make_user
from tests.jobs.factories import make_job, make_project, make_run
from tests.jobs.test_admin import LIST, form, member
from yardkit.protocol import CutRule, DownloaderSettings, DownloaderType, Policy
from yardspider.environment import read_run
from yardspider.settings import SpiderSettings

# Fields, the field that is refused, and what is said: the same in the form and over REST.
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"downloader": "telepathy"}, "downloader", "telepathy"),
    ({"policy": "mine"}, "policy", "mine"),
    ({"agents": -1}, "agents", "greater than or equal to 0"),
    ({"agents": 10_001}, "agents", "10000"),
    ({"timeout_seconds": -1}, "timeout_seconds", "0.1"),
    ({"timeout_seconds": 601}, "timeout_seconds", "600"),
    ({"max_body_bytes": 0}, "max_body_bytes", "1"),
    ({"max_body_bytes": 2**40}, "max_body_bytes", "10737418240"),
    ({"max_redirects": -1}, "max_redirects", "0"),
    ({"max_redirects": 51}, "max_redirects", "50"),
    ({"switch_retries": -1}, "switch_retries", "0"),
    ({"timeout_retries": -1}, "timeout_retries", "0"),
    ({"download_retries": 1001}, "download_retries", "1000"),
    ({"no_answer_seconds": 0.5}, "no_answer_seconds", "1"),
    ({"no_answer_seconds": 86_401}, "no_answer_seconds", "86400"),
    ({"publish_retries": -1}, "publish_retries", "0"),
    ({"publish_retries": 604_801}, "publish_retries", "604800"),
    ({"request_timeout_seconds": 0}, "request_timeout_seconds", "0.1"),
    ({"request_timeout_seconds": 5}, "request_timeout_seconds", "Must be at least the download"),
    ({"timeout_seconds": 60}, "request_timeout_seconds", "download timeout (60 s)"),
    ({"redial": True}, "switch_pattern", "Enter a switch pattern"),
    ({"switch_pattern": "HTTP 403|ban(ned"}, "switch_pattern", "At character 13"),
    ({"switch_pattern": "(?=x)"}, "switch_pattern", "no look-ahead"),
    ({"switch_pattern": "(a{500}){3}"}, "switch_pattern", "repeat"),
    ({"encoding": "klingon"}, "encoding", "is not a known encoding"),
    ({"user_agent": "Møøse 文"}, "user_agent", "Character 7"),
    ({"tls_minimum": "SSLv3"}, "tls_minimum", "SSLv3"),
    ({"tls_minimum": "TLSv1.3", "tls_maximum": "TLSv1.2"}, "tls_maximum", "below the minimum"),
    ({"impersonate": "Chrome 1"}, "impersonate", "Enter a name such as chrome"),
    ({"cut": {}}, "cut", "Enter a JSON list of rules"),
    ({"cut": [{"start": "a"}, {"strat": "b"}]}, "cut", "Rule 2: unknown field “strat”"),
    ({"cut": [{"pattern": "a"}, 7]}, "cut", "Rule 2: must be an object"),
    ({"cut": [{"start_offset": "x"}]}, "cut", "Rule 1: start_offset: Expected `int`"),
    ({"cut": [{"pattern": "x(y"}]}, "cut", "Rule 1: pattern: At character 2"),
    ({"cut": [{"pattern": "x", "end": "y"}]}, "cut", "Rule 1: give either a pattern"),
    ({"cut": [{}]}, "cut", "Rule 1: it cuts nothing"),
    ({"cut": [{"start": "a"}] * 51}, "cut", "51 rules are given, at most 50 are allowed"),
]


def as_form(fields: dict[str, Any]) -> dict[str, Any]:
    """As a browser sends them."""
    typed = {}
    for name, value in fields.items():
        typed[name] = json.dumps(value) if name == "cut" else "on" if value is True else str(value)
    return typed


@pytest.mark.slow("3 s")
@pytest.mark.django_db
@pytest.mark.covers("S1.30")
@pytest.mark.parametrize(("fields", "name", "text"), BAD, ids=str)
def test_bad_input_is_refused_by_field_over_rest(
    fields: dict[str, Any], name: str, text: str
) -> None:
    project = make_project()
    api = Api(make_user(roles={project: Role.EDITOR}))
    body = {"project": project.pk, "name": "pages", "spider": "spiders:Pages"}
    response = api.post("jobs", body | fields)
    assert response.status_code == 400, response.content
    assert list(response.json()["fields"]) == [name]
    assert text in str(response.json()["fields"]), response.content
    assert not Job.objects.exists()


@pytest.mark.slow("30 s")
@pytest.mark.django_db
@pytest.mark.parametrize(("fields", "name", "text"), BAD, ids=str)
def test_bad_input_is_refused_by_field_in_the_form(
    fields: dict[str, Any], name: str, text: str
) -> None:
    project = make_project()
    response = member(project, Role.EDITOR).post(f"{LIST}add/", form(project, **as_form(fields)))
    assert response.status_code == 200
    errors = response.context["adminform"].form.errors
    assert list(errors) == [name]
    assert text in str(errors[name].as_data()) + " ".join(errors[name])
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("pattern", "position", "problem"),
    [
        ("(abc", 1, "never closed"),
        (r"a\(b(c[)]", 5, "never closed"),
        ("a)b", 2, "never opened"),
        ("ab[c", 3, "bracket is never closed"),
        ("ab**", 3, "repeated twice"),
        ("x{2000}", 2, "repeated too often"),
        (r"(a)\1", 4, "no such escape"),
        ("ab[z-a]", 4, "ends before it begins"),
        ("ab\\", 3, "escapes nothing"),
        ("a(?!b)", 2, "no look-ahead"),
        ("*a", 1, "nothing to repeat"),
        ("ab\ud800", 3, "cannot be stored"),
    ],
)
def test_a_bad_expression_is_refused_with_its_position(
    pattern: str, position: int, problem: str
) -> None:
    said = pattern_problem(pattern)
    assert said is not None
    assert said.startswith(f"At character {position}, ")
    assert problem in said


@pytest.mark.parametrize(
    "pattern", ["", "HTTP (403|429)", "验证码", r"\bban(ned)?\b", "(?i)captcha"]
)
def test_good_expressions_pass(pattern: str) -> None:
    assert pattern_problem(pattern) is None


def test_expressions_have_a_size() -> None:
    assert pattern_problem("a" * 1001) == "Longer than 1000 characters."
    assert pattern_problem("a" * 1000) is None


@pytest.mark.parametrize("name", ["utf-8", "gb18030", "shift_jis", "big5"])
def test_encodings_that_exist(name: str) -> None:
    validate_encoding(name)


@pytest.mark.parametrize("name", ["rot13", "base64", "nul\x00", "undefined", "x" * 40, "é"])
def test_what_is_no_encoding_of_texts(name: str) -> None:
    with pytest.raises(ValidationError, match="is not a known encoding"):
        validate_encoding(name)


@pytest.mark.parametrize("text", ["a\nb", "a\x00", " a", "a\r", "文"])
def test_what_no_header_can_carry(text: str) -> None:
    with pytest.raises(ValidationError):
        validate_header_text(text)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"start": "a\x00"}, "start has a character"),
        ({"end": "\ud800"}, "end has a character"),
        ({"start": "a" * 1001}, "start is longer"),
        ({"start": "a", "end_offset": 10**9}, "end_offset must be between"),
        ({"pattern": "a\x00"}, "pattern has a character"),
        ({"\ud800": 1}, "unknown field"),
        ({"trim": "yes"}, "trim: Expected `bool`"),
    ],
)
def test_odd_cut_rules_are_refused(rule: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError) as refused:
        validate_cut_rules([rule])
    assert text in refused.value.messages[0]


def test_good_cut_rules_pass() -> None:
    validate_cut_rules([])
    validate_cut_rules([{"start": "<main", "end": "</main>"}, {"pattern": "(x)"}, {"trim": True}])


@pytest.mark.parametrize(
    "text", ["sid=abc; lang=zh", "Cookie: sid=abc;lang=zh;", '{"sid": "abc", "lang": "zh"}']
)
def test_cookies_are_read_as_browsers_show_them_and_as_json(text: str) -> None:
    assert parse_cookies(text) == {"sid": "abc", "lang": "zh"}


@pytest.mark.parametrize(
    "text",
    [
        "no sign",
        '{"a": 1',
        '{"a": {"b": 1}}',
        "a b=c",
        "a=b c",
        "a=\x01",
        "=x",
        "[" * 9999,
        '{"a": ' + "[" * 101 + "]" * 101 + "}",
    ],
)
def test_what_no_cookie_can_be_is_refused_without_its_value(text: str) -> None:
    with pytest.raises(ValidationError) as refused:
        parse_cookies(text)
    assert "b c" not in str(refused.value)


def test_cookies_have_a_number() -> None:
    with pytest.raises(ValidationError, match="101 cookies are given, at most 100 are allowed"):
        check_cookies({f"c{number}": "x" for number in range(101)})


def test_the_words_are_those_of_the_protocol() -> None:
    # The center alone chooses to replay.
    kinds = set(DownloaderType) - {DownloaderType.REPLAY}
    assert set(DownloaderKind.values) == {kind.value for kind in kinds}
    assert set(DownloadPolicy.values) == {each.value for each in Policy}
    usual, fresh = DownloaderSettings(), Job().download_options()
    assert fresh == usual
    assert contradictions(vars(Job())) == {}


@pytest.mark.slow("1 s")
@pytest.mark.django_db
def test_cookies_are_sealed_and_only_said_to_be_there() -> None:
    project = make_project()
    api = Api(make_user(roles={project: Role.EDITOR}))
    body = {"project": project.pk, "name": "pages", "spider": "spiders:Pages"}
    made = api.post("jobs", body | {"cookies": {"sid": "s3cret"}})
    assert made.status_code == 201, made.content
    pk = made.json()["id"]
    assert made.json()["cookies_set"] is True
    assert "cookies" not in made.json()
    assert "s3cret" not in api.get(f"jobs/{pk}").content.decode()
    assert "s3cret" not in str(Job.objects.filter(pk=pk).values().get())
    assert Job.objects.get(pk=pk).opened_cookies() == {"sid": "s3cret"}
    # Other changes leave them; an empty object removes them.
    assert api.patch(f"jobs/{pk}", {"speed": 2}).json()["cookies_set"] is True
    assert api.patch(f"jobs/{pk}", {"cookies": {}}).json()["cookies_set"] is False
    assert api.patch(f"jobs/{pk}", {"cookies": {"a b": "x"}}).status_code == 400
    assert api.patch(f"jobs/{pk}", {"cookies": "a=b"}).status_code == 400
    for entry in AuditRecord.objects.all():
        assert "s3cret" not in f"{entry.before}{entry.after}"


@pytest.mark.slow("4 s")
@pytest.mark.django_db
def test_the_form_takes_cookies_keeps_them_and_removes_them() -> None:
    project = make_project()
    client = member(project, Role.EDITOR)
    response = client.post(f"{LIST}add/", form(project, cookies="sid=s3cret"))
    assert response.status_code == 302, response.content.decode()
    job = Job.objects.get()
    address = f"{LIST}{job.pk}/change/"
    page = client.get(address).content.decode()
    assert "s3cret" not in page
    assert "stored; leave empty to keep it" in page
    for typed, left in [
        ({"speed": "3"}, {"sid": "s3cret"}),
        ({"cookies": '{"a": "b"}'}, {"a": "b"}),
        ({"cookies-clear": "on"}, {}),
    ]:
        assert client.post(address, form(project, **typed)).status_code == 302
        assert Job.objects.get().opened_cookies() == left
    refused = client.post(address, form(project, cookies="s3cret"))
    assert "Cookie 1 has no “=”" in refused.content.decode()
    assert "s3cret" not in refused.content.decode()


@pytest.mark.django_db
@pytest.mark.covers("S1.13", "S1.30", "S1.36", "S1.42", "S1.44")
def test_everything_a_job_says_reaches_its_run() -> None:
    project = make_project(allowed_networks=["10.1.0.0/16"])
    cut = [{"start": "<main", "end": "</main>"}, {"pattern": "(x)", "trim": True}]
    job = make_job(
        project=project,
        concurrency=7,
        speed=0.5,
        policy="chained",
        agents=3,
        obey_robots=False,
        downloader="impersonate",
        timeout_seconds=20,
        max_body_bytes=1000,
        follow_redirects=False,
        max_redirects=2,
        encoding="gb18030",
        decode_html=True,
        cut=cut,
        use_proxy=True,
        redial=True,
        switch_pattern="HTTP 403",
        switch_retries=5,
        impersonate="safari",
        verify_tls=False,
        tls_minimum="TLSv1.1",
        tls_maximum="TLSv1.2",
        use_cookies=False,
        cookies='{"sid": "x"}',
        request_timeout_seconds=30,
        timeout_retries=0,
        download_retries=2,
        no_answer_seconds=900,
        publish_retries=28_800,
        fed_from_outside=True,
    )
    environment = environment_of(job)
    assert (environment["CRAWLYARD_PROJECT"], environment["CRAWLYARD_JOB"]) == (
        project.slug,
        job.name,
    )
    read = read_run(environment)
    assert (read.policy, read.agents) == (Policy.CHAINED, 3)
    assert read.downloader == DownloaderSettings(
        concurrency=7,
        timeout_seconds=20,
        max_body_bytes=1000,
        max_redirects=2,
        follow_redirects=False,
        user_agent="",
        type=DownloaderType.IMPERSONATE,
        impersonate="safari",
        verify_tls=False,
        tls_minimum="TLSv1.1",
        tls_maximum="TLSv1.2",
        use_cookies=False,
        # The center adds them, from the job: a run need not know them.
        cookies={},
        encoding="gb18030",
        decode_html=True,
        cut=[CutRule(start="<main", end="</main>"), CutRule(pattern="(x)", trim=True)],
        use_proxy=True,
        redial=True,
        switch_pattern="HTTP 403",
        switch_retries=5,
        obey_robots=False,
        allowed_networks=["10.1.0.0/16"],
    )
    settings = SpiderSettings().changed(read.settings, origin="the job")
    assert (settings.concurrency, settings.speed) == (7, 0.5)
    assert (settings.request_timeout_seconds, settings.request_timeout_retries) == (30, 0)
    assert (settings.download_retries, settings.patience_seconds) == (2, 30)
    assert (settings.no_answer_seconds, settings.publish_retries) == (900, 28_800)


@pytest.mark.django_db
def test_what_a_job_leaves_open_is_the_spiders_own() -> None:
    read = read_run(environment_of(make_job()))
    assert read.settings == {}
    assert read.downloader.concurrency == 100
    own = SpiderSettings(speed=2, concurrency=7, request_timeout_seconds=99, download_retries=1)
    assert own.changed(read.settings, origin="x") == own


def environment_of(job: Job) -> dict[str, str]:
    """What the runner gives the process of a run."""
    run = make_run(job=job, state=RunState.STARTING)
    return {"CRAWLYARD_RUN": str(run.pk), **spec_of(run, Path("run")).environment}
