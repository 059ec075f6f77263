"""Lists of more rows than anybody counts."""

from __future__ import annotations

import pytest

from apps.access.admin import lists
from apps.jobs.models import Run
from apps.jobs.states import RunState
from tests.access.factories import enter, make_superuser
from tests.confirmation import confirm
from tests.jobs.factories import make_job, make_run

pytestmark = pytest.mark.django_db

LIST = "/admin/jobs/run/"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MOST_COUNTED", 3)


def test_more_than_are_counted_are_told_so() -> None:
    client = enter(make_superuser())
    job = make_job()
    for _ in range(3):
        make_run(job=job)
    html = client.get(LIST).content.decode()
    assert "3\n\n    \n        runs" in html
    assert "more than" not in html
    make_run(job=job)
    make_run(job=job)
    html = client.get(LIST).content.decode()
    assert "more than 3 runs" in html
    assert html.count('name="_selected_action"') == 5


@pytest.mark.slow("1 s")
def test_who_selects_more_than_are_counted_is_asked_to_narrow_the_list() -> None:
    client = enter(make_superuser())
    job = make_job()
    runs = [make_run(job=job) for _ in range(4)]
    form = {"action": "stop_selected", "select_across": "1", "_selected_action": [runs[0].pk]}
    said = client.post(LIST, form, follow=True).content.decode()
    assert "more than 3 rows are selected. Narrow the list first." in said
    assert Run.objects.filter(state=RunState.QUEUED).count() == 4
    narrowed = f"{LIST}?id__lt={runs[3].pk}"
    said = confirm(client, narrowed, form, follow=True).content.decode()
    assert "3 runs are stopping." in said
