"""Settings of sources: the seed's file, validation with places, and the text format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command

from apps.configcenter.models import Configuration
from apps.configcenter.services import Unreadable
from apps.sources.engine.settings import Mode, Source, catalog_of
from apps.sources.queries import book, settings_of
from apps.sources.services.configuration import SourcesKind
from tests.access.factories import make_project
from tools.requirement_marks import ROOT
from yardkit.yaml_reader import read_document

KIND = SourcesKind()
SEED_FILE = ROOT / "docs" / "examples" / "crawler-config" / "config.yml"
# Invalid only in combination with other fields.
OF_A_WHOLE = [
    {"kind": "json", "mode": "not_exported"},
    {"base_url": "https://x.example/?a=1"},
    {"rate_limit": 21},
]
NEWS = {"task_id": "t1", "credentials": "vendor", "date_field": "date"}


def problems(data: dict[str, Any]) -> dict[str, str]:
    return {each.place: each.code for each in KIND.check(data)}


def test_a_refusal_says_what_is_taken_and_ends_where_it_ends() -> None:
    source = {"kind": "jsn", "json": {"total": "meta..count"}}
    said = {each.place: each.text for each in KIND.check({"sources": {"shop": source}})}
    assert said["sources.shop.kind"] == "one of: octoparse, json"
    assert said["sources.shop.json.total"].endswith('column 5, token "." (DOT)')


@pytest.mark.covers("S0.28", "S0.29")
def test_the_seeds_own_file_is_read_as_it_stands() -> None:
    raw = SEED_FILE.read_bytes()
    root = read_document(raw).root
    # Example of the seed, section 7.
    assert root == {
        "rabbitmq": {
            "host": "rabbitmq",
            "port": 5672,
            "username": "guest",
            "password": "guest",
            "queue": "job_data",
            "message_ttl": 604_800_000,
        },
        "crawler": {"filter_days": 7, "max_expired_batches": 3, "auto_start": True},
    }
    data = KIND.read(raw, "config.yml")
    assert data == {
        "defaults": {
            "filter_days": 7,
            "max_expired_batches": 3,
            "auto_start": True,
            "queue": "job_data",
            "ttl_seconds": 604_800,
        },
        "sources": {},
        "broker": {"host": "rabbitmq", "port": 5672, "username": "guest"},
    }
    # These equal the platform's defaults.
    assert catalog_of(data).defaults == Source()
    (warning,) = KIND.check(data)
    assert (warning.place, warning.code, warning.warning) == ("broker", "other_broker", True)
    assert "rabbitmq:5672 is not used" in warning.text
    assert "BROKER_URL" in warning.text


@pytest.mark.covers("S0.28")
def test_the_seeds_file_is_applied_by_the_command(
    db: None, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make_project()
    call_command("config", "apply", "sources", str(SEED_FILE), "--project", project.slug)
    assert book(project.pk).defaults.ttl_seconds == 604_800
    active = Configuration.objects.get().active
    assert active is not None
    assert active.data["broker"] == {"host": "rabbitmq", "port": 5672, "username": "guest"}
    assert "rabbitmq:5672 is not used" in capsys.readouterr().err


def test_the_broker_that_is_used_is_no_warning(settings: Any) -> None:
    settings.BROKER_URL = "amqp://guest:guest@rabbitmq:5672/"
    assert problems({"broker": {"host": "rabbitmq", "port": 5672}}) == {}


@pytest.mark.parametrize(
    ("fields", "place", "code"),
    [
        ({"task_id": ""}, "task_id", "missing"),
        ({"task_id": 7}, "task_id", "bad_value"),
        ({"task_id": "a b"}, "task_id", "bad_value"),
        ({"credentials": ""}, "credentials", "missing"),
        ({"kind": "csv"}, "kind", "bad_value"),
        ({"batch_size": 0}, "batch_size", "out_of_range"),
        ({"batch_size": "100"}, "batch_size", "bad_value"),
        ({"batch_size": True}, "batch_size", "bad_value"),
        ({"rate_limit": 21}, "rate_limit", "out_of_range"),
        ({"rate_limit": 0}, "rate_limit", "out_of_range"),
        ({"ttl_seconds": 0}, "ttl_seconds", "out_of_range"),
        ({"filter_days": -1}, "filter_days", "out_of_range"),
        ({"cron": "61 * * * *"}, "cron", "bad_value"),
        ({"time_zone": "Mars/Base"}, "time_zone", "bad_value"),
        ({"date_field": "a["}, "date_field", "bad_value"),
        ({"date_format": "%"}, "date_format", "bad_value"),
        ({"base_url": "ftp://x"}, "base_url", "bad_value"),
        ({"base_url": "https://u:p@x.example"}, "base_url", "bad_value"),
        ({"base_url": "https://x.example/?a=1"}, "base_url", "bad_value"),
        ({"base_url": "http://x.example"}, "base_url", "not_encrypted"),
        ({"queue": "logs"}, "queue", "bad_value"),
        ({"queue": "dead"}, "queue", "bad_value"),
        ({"queue": "run.7.x"}, "queue", "bad_value"),
        ({"queue": "records.p2.news"}, "queue", "bad_value"),
        ({"queue": ""}, "queue", "bad_value"),
        ({"queue": "a b"}, "queue", "bad_value"),
        ({"password": "x"}, "password", "unknown_field"),
        ({"batchsize": 3}, "batchsize", "unknown_field"),
        ({"date_field": ""}, "date_field", "no_date_field"),
        ({"kind": "json"}, "base_url", "missing"),
        ({"kind": "json", "mode": "not_exported"}, "mode", "bad_value"),
        ({"json": {"total": "["}}, "json.total", "bad_path"),
        ({"json": {"totals": "x"}}, "json", "bad_value"),
        ({"kind": "json", "json": {"auth": "bearer"}, "credentials": ""}, "credentials", "missing"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    fields: dict[str, Any], place: str, code: str
) -> None:
    data = {"sources": {"news": {**NEWS, **fields}}}
    assert problems(data)[f"sources.news.{place}"] == code
    if code not in ("missing", "no_date_field", "not_encrypted") and fields not in OF_A_WHOLE:
        # Defaults are validated by the same rules.
        assert problems({"defaults": fields})[f"defaults.{place}"] == code


def test_all_problems_are_told_at_once() -> None:
    data = {
        "source": {},
        "sources": {"Bad Name": NEWS, "news": {**NEWS, "batch_size": 0, "cron": "x"}, "old": 7},
        "broker": [],
    }
    assert problems(data) == {
        "source": "unknown_field",
        "broker": "not_a_mapping",
        "sources.Bad Name": "bad_name",
        "sources.news.batch_size": "out_of_range",
        "sources.news.cron": "bad_value",
        "sources.old": "not_a_mapping",
    }
    assert problems({"sources": []}) == {"sources": "not_a_mapping"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rabbitmq: 5\n", "rabbitmq: expected a mapping"),
        ("rabbitmq: {hots: x}\n", "rabbitmq.hots: unknown"),
        ("rabbitmq: {message_ttl: soon}\n", "rabbitmq.message_ttl: expected the TTL"),
        ("crawler: {filter_day: 7}\n", "crawler.filter_day: unknown"),
        ("- 1\n", "a mapping with defaults"),
        ("a: [\n", "f.yml:2: not valid YAML"),
    ],
)
def test_files_that_cannot_be_read(text: str, said: str) -> None:
    with pytest.raises(Unreadable) as caught:
        KIND.read(text.encode(), "f.yml")
    assert said in str(caught.value)


def test_text_goes_both_ways_and_sections_can_be_mixed() -> None:
    text = (
        "crawler: {filter_days: 3}\n"
        "sources:\n  news: {task_id: t1, credentials: vendor, mode: not_exported}\n  old:\n"
    )
    data = KIND.read(text.encode())
    assert KIND.read(KIND.write(data).encode()) == data
    data["sources"].pop("old")
    assert problems(data) == {}
    found = catalog_of(data).sources["news"]
    assert (found.filter_days, found.mode, found.batch_size) == (3, Mode.NOT_EXPORTED, 100)
    assert KIND.summary(data) == "1 source"


def test_entries_are_merged_into_the_defaults(db: None, make_yard: Callable[..., Any]) -> None:
    harness = make_yard()
    harness.apply(
        {
            "defaults": {"rate_limit": 5, "json": {"total": "n", "records": "rows"}},
            "sources": {
                "a": {**NEWS, "json": {"records": "items"}},
                "b": {**NEWS, "rate_limit": 2},
            },
        }
    )
    a, b = settings_of(harness.project.pk, "a"), settings_of(harness.project.pk, "b")
    assert (a.rate_limit, a.json.total, a.json.records) == (5, "n", "items")
    assert (b.rate_limit, b.json.records) == (2, "rows")


def test_other_records_have_another_content() -> None:
    one = Source(task_id="a", base_url="https://dataapi.octoparse.com")
    assert one.content == Source(task_id="a", base_url="https://dataapi.bazhuayu.com").content
    assert one.content != Source(task_id="b").content


def test_the_list_of_the_old_program_is_refused_with_the_key_that_is_meant() -> None:
    found = {each.place: each.text for each in KIND.check({"tasks": [{"task_id": "t1"}]})}
    assert found["tasks"] == "unknown; did you mean sources?"
