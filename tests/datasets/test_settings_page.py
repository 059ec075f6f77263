"""Page of a dataset's settings: who may change what, and what is said about mistakes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.datasets.engine.checks import ItemChecker
from apps.datasets.engine.schemas import inferred_schema
from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.pages.settings import EXAMPLES, example
from apps.jobs.models import Run
from apps.projects.models import Project
from tests.access.factories import enter, make_user
from tests.datasets.factories import make_items, store
from tests.jobs.factories import make_run

pytestmark = pytest.mark.django_db
VALUES = {
    "key_fields": "url, sku",
    "item_schema": '{"type": "object"}',
    "checks": json.dumps([json.loads(example(name)) for _text, name in EXAMPLES]),
    "keep_days": "30",
    "keep_runs": "",
    "keep_megabytes": "100",
}


@pytest.fixture
def run() -> Run:
    run = make_run()
    store(run, [*make_items(4), {"url": "https://shop.example/last", "price": 3}])
    return run


@pytest.fixture
def dataset(run: Run) -> Dataset:
    return Dataset.objects.get()


def browser(run: Run, role: Role) -> Any:
    return enter(make_user(roles={run.job.project: role}))


@pytest.mark.covers("DS.9", "DS.11")
def test_an_editor_changes_everything_at_once(run: Run, dataset: Dataset) -> None:
    client = browser(run, Role.EDITOR)
    Project.objects.update(keep_runs=7)
    answer = client.post(f"/data/{dataset.pk}/settings", VALUES)
    assert answer.status_code == 302
    dataset.refresh_from_db()
    assert dataset.key_fields == ["url", "sku"]
    assert len(dataset.checks) == len(EXAMPLES)
    assert (dataset.keep_days, dataset.keep_runs, dataset.keep_bytes) == (30, None, 100 << 20)
    entry = AuditRecord.objects.get(action="datasets.change")
    assert entry.after["keep_days"] == 30
    text = client.get(f"/data/{dataset.pk}/settings").content.decode()
    assert "url, sku" in text
    assert 'placeholder="7"' in text
    # Saved again without a change, nothing is recorded.
    client.post(f"/data/{dataset.pk}/settings", VALUES)
    assert AuditRecord.objects.filter(action="datasets.change").count() == 1


@pytest.mark.slow("1 s")
@pytest.mark.covers("DS.9")
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("item_schema", '{"type": "nope"}', "schema: "),
        ("item_schema", '{"type": \n nope}', "Line 2, column 2"),
        ("item_schema", "[]", "Enter a JSON object."),
        ("item_schema", '{"title": "\\u0000"}', "cannot be stored"),
        ("checks", '[{"check": "items_at_least"}]', "Check 1: "),
        ("checks", '[{"check": "nosuch"}]', "Check 1: "),
        ("checks", '[{"check": "pattern", "field": "url", "pattern": "("}]', "Check 1: pattern"),
        ("checks", "[3]", "Check 1: "),
        ("checks", "{}", "Enter a JSON list of checks."),
        ("key_fields", "url,url", "different fields"),
        ("keep_days", "0", "greater than or equal to 1"),
        ("keep_runs", "x", "whole number"),
    ],
)
def test_mistakes_are_named_and_change_nothing(
    run: Run, dataset: Dataset, field: str, value: str, said: str
) -> None:
    answer = browser(run, Role.EDITOR).post(f"/data/{dataset.pk}/settings", VALUES | {field: value})
    assert answer.status_code == 200
    (error,) = answer.context["form"].errors[field]
    assert said in error
    dataset.refresh_from_db()
    assert (dataset.key_fields, dataset.keep_bytes) == ([], None)


def test_a_viewer_reads_and_a_stranger_does_not(run: Run, dataset: Dataset) -> None:
    viewer = browser(run, Role.VIEWER)
    text = viewer.get(f"/data/{dataset.pk}/settings").content.decode()
    assert "do not have permission" in text
    assert viewer.post(f"/data/{dataset.pk}/settings", VALUES).status_code == 403
    stranger = browser(make_run(), Role.ADMIN)
    assert stranger.get(f"/data/{dataset.pk}/settings").status_code == 404
    assert stranger.post(f"/data/{dataset.pk}/settings", VALUES).status_code == 404


@pytest.mark.covers("DS.9")
def test_the_inferred_schema_accepts_the_items_it_comes_from(run: Run) -> None:
    row = DatasetRun.objects.get()
    schema = inferred_schema([(row.stored, row.fields)])
    assert schema["required"] == ["url", "price"]
    assert schema["properties"]["price"] == {"type": "number"}
    assert schema["properties"]["stock"] == {"type": ["integer", "null"]}
    checker = ItemChecker(schema, [])
    for item in [*make_items(4), {"url": "https://shop.example/last", "price": 3}]:
        assert checker.check(item) == ("", None)
    assert checker.check({"url": 3, "price": 1.5})[0]
    assert inferred_schema([]) == {}
