"""Checks of items and of whole runs: settings, what they find, and how they say it."""

from __future__ import annotations

from typing import Any

import pytest

from apps.datasets.engine.checks import (
    MOST_CHECKS,
    BadChecks,
    ItemChecker,
    RunFacts,
    check_schema,
    evaluate,
    read_checks,
)
from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.services.ingestion import store_items
from tests.datasets.factories import NOW, make_batch, make_items, store
from tests.jobs.factories import make_run

SCHEMA = {
    "type": "object",
    "required": ["url", "price"],
    "properties": {
        "price": {"type": "number", "minimum": 0},
        "offers": {"type": "array", "items": {"properties": {"seller": {"type": "string"}}}},
    },
}


def outcome(setting: dict[str, Any], **facts: Any) -> tuple[bool, str]:
    (result,) = evaluate(read_checks([setting]), RunFacts(**({"stored": 100} | facts)))
    assert result.check == setting["check"]
    return result.ok, result.text


# --- settings ---------------------------------------------------------------------------------


@pytest.mark.covers("DS.9")
@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({}, "Check 2: .*check"),
        ({"check": "no such"}, "Check 2: .*no such"),
        ({"check": "items_at_least"}, "Check 2: .*value"),
        ({"check": "items_at_least", "value": "x"}, "Check 2: .*int"),
        ({"check": "items_at_least", "value": -1}, "Check 2: value must not be negative"),
        ({"check": "items_at_least", "value": 1, "more": 2}, "Check 2: .*more"),
        ({"check": "fill_rate", "field": "a", "value": 95}, "between 0 and 1"),
        ({"check": "fill_rate", "field": "", "value": 0.5}, "field is empty"),
        ({"check": "range", "field": "a"}, "range needs min or max"),
        ({"check": "range", "field": "a", "min": 2, "max": 1}, "min is larger than max"),
        ({"check": "change", "percent": 0}, "percent must be larger than 0"),
        ({"check": "schema", "action": "delete"}, "action is reject or flag, not “delete”"),
        ({"check": "pattern", "field": "a", "pattern": "("}, "Check 2: pattern: "),
        ({"check": "duplicates_at_most", "value": -1}, "value must not be negative"),
    ],
    ids=str,
)
def test_wrong_settings_are_named_with_their_number(setting: dict[str, Any], why: str) -> None:
    with pytest.raises(BadChecks, match=why):
        read_checks([{"check": "items_at_least", "value": 1}, setting])


def test_the_number_of_checks_is_limited() -> None:
    with pytest.raises(BadChecks, match="at most 100 checks"):
        read_checks([{"check": "items_at_least", "value": 1}] * (MOST_CHECKS + 1))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "no such"}, "schema: "),
        ({"$ref": "https://schemas.example/a.json"}, "schema: "),
        ({"pattern": "("}, "schema: "),
        ({"description": "x" * 300_000}, "schema: larger than"),
    ],
    ids=["type", "reference", "pattern", "size"],
)
def test_a_schema_that_cannot_be_used_says_why(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(BadChecks, match=why):
        check_schema(schema)
    check_schema({})
    check_schema(SCHEMA)


# --- items ------------------------------------------------------------------------------------


@pytest.mark.covers("DS.9")
def test_items_that_do_not_match_the_schema_are_rejected_with_field_and_rule() -> None:
    checker = ItemChecker(SCHEMA, [])
    assert checker.check({"url": "a", "price": 1.5}) == ("", None)
    assert checker.check({"url": "a", "price": "x"}) == ("price: type", None)
    assert checker.check({"url": "b", "price": -1}) == ("price: minimum", None)
    assert checker.check({"url": "c", "price": 1, "offers": [{}, {"seller": 5}]}) == (
        "offers.seller: type",
        None,
    )
    assert checker.check({"url": "d"}) == ('"price" is a required property', None)


@pytest.mark.covers("DS.9")
def test_items_are_flagged_by_patterns_and_if_asked_by_the_schema() -> None:
    pattern = {"check": "pattern", "field": "url", "pattern": "https://.*"}
    checker = ItemChecker(SCHEMA, [{"check": "schema", "action": "flag"}, pattern])
    assert checker.check({"url": "https://a", "price": 1}) == ("", None)
    assert checker.check({"url": "http://a", "price": 1}) == ("", "url: does not match the pattern")
    assert checker.check({"url": 5, "price": "x"}) == (
        "",
        "price: type, url: does not match the pattern",
    )
    # A missing value is the matter of the schema and of the fill rate.
    assert ItemChecker({}, [pattern]).check({"url": None}) == ("", None)


def test_rules_of_runs_cost_nothing_for_each_item() -> None:
    assert not ItemChecker({}, [{"check": "items_at_least", "value": 1}]).has_work


@pytest.mark.django_db
@pytest.mark.covers("DS.9", "DS.2")
def test_the_writer_rejects_and_flags_by_the_settings_of_the_dataset() -> None:
    run = make_run()
    store(run, make_items(1))
    pattern = {"check": "pattern", "field": "title", "pattern": "Product .*"}
    Dataset.objects.update(item_schema=SCHEMA, checks=[pattern])
    items = [*make_items(2, 2), {"url": "a"}, *make_items(1, 4, title="Bad")]
    store(run, items, first=2)
    row = DatasetRun.objects.get()
    assert (row.stored, row.rejected, row.flagged) == (4, 1, 1)
    assert row.reasons == {'"price" is a required property': 1}


@pytest.mark.django_db
def test_settings_of_another_version_reject_nothing(caplog: pytest.LogCaptureFixture) -> None:
    run = make_run()
    store(run, make_items(1))
    Dataset.objects.update(checks=[{"check": "of the future"}])
    assert store_items(messages=[make_batch(run, make_items(2), first=2)], now=NOW) == []
    assert DatasetRun.objects.get().stored == 3
    assert "the checks of a dataset cannot be used" in caplog.text


# --- runs -------------------------------------------------------------------------------------


@pytest.mark.covers("DS.9")
@pytest.mark.parametrize(
    ("setting", "facts", "ok", "text"),
    [
        ({"check": "items_at_least", "value": 100}, {}, True, "100 items, at least 100 expected"),
        ({"check": "items_at_least", "value": 101}, {}, False, "100 items"),
        (
            {"check": "fill_rate", "field": "price", "value": 0.95},
            {"filled": {"price": 95}},
            True,
            "price has a value in 95.0%, expected 95.0%",
        ),
        ({"check": "fill_rate", "field": "price", "value": 0.5}, {}, False, "in 0.0%"),
        ({"check": "fill_rate", "field": "price", "value": 0.5}, {"stored": 0}, False, "in 0.0%"),
        (
            {"check": "range", "field": "price", "min": 0, "max": 10},
            {"limits": {"price": (0.0, 10.0)}},
            True,
            "price lies between 0 and 10, expected from 0 to 10",
        ),
        (
            {"check": "range", "field": "price", "min": 0},
            {"limits": {"price": (-1.0, 10.0)}},
            False,
            "between -1 and 10, expected at least 0",
        ),
        (
            {"check": "range", "field": "price", "max": 9},
            {"limits": {"price": (0.0, 10.0)}},
            False,
            "expected at most 9",
        ),
        ({"check": "range", "field": "price", "max": 9}, {}, True, "price has no values"),
        (
            {"check": "range", "field": "price", "max": 9},
            {"filled": {"price": 3}},
            False,
            "price has values that are no numbers",
        ),
        ({"check": "rejected_at_most", "value": 0}, {}, True, "0.0% of the items rejected"),
        (
            {"check": "rejected_at_most", "value": 0.01},
            {"stored": 90, "rejected": 10},
            False,
            "10.0% of the items rejected, at most 1.0% expected",
        ),
        ({"check": "rejected_at_most", "value": 0.1}, {"stored": 0}, True, "0.0%"),
        ({"check": "flagged_at_most", "value": 0.05}, {"flagged": 6}, False, "6.0% of the items"),
        ({"check": "duplicates_at_most", "value": 0}, {"duplicates": 0}, True, "0 items with"),
        ({"check": "duplicates_at_most", "value": 2}, {"duplicates": 3}, False, "3 items with"),
        ({"check": "duplicates_at_most", "value": 2}, {}, False, "the dataset has no key"),
        (
            {"check": "change", "percent": 50},
            {"earlier": [100, 10]},
            True,
            "2 earlier runs, 3 are needed",
        ),
        (
            {"check": "change", "percent": 50},
            {"earlier": [200, 190, 210, 200]},
            True,
            "100 items, -50 % against the usual 200; 50 % allowed",
        ),
        ({"check": "change", "percent": 49}, {"earlier": [200] * 3}, False, "-50 %"),
        ({"check": "change", "percent": 50}, {"earlier": [20] * 3}, False, r"+400 %"),
        ({"check": "change", "percent": 50}, {"earlier": [0] * 3}, False, "+100 %"),
        ({"check": "change", "percent": 50}, {"stored": 0, "earlier": [0] * 3}, True, "+0 %"),
        # Only the last ten count.
        ({"check": "change", "percent": 5}, {"earlier": [100] * 10 + [1] * 90}, True, "usual 100"),
    ],
    ids=str,
)
def test_rules_of_a_run(
    setting: dict[str, Any], facts: dict[str, Any], ok: bool, text: str
) -> None:
    found, said = outcome(setting, **facts)
    assert found is ok
    assert text in said


def test_checks_of_single_items_have_no_outcome_of_their_own() -> None:
    checks = read_checks([{"check": "schema"}, {"check": "pattern", "field": "a", "pattern": "b"}])
    assert evaluate(checks, RunFacts(stored=1)) == []
