"""A real router starts runs for items."""

from __future__ import annotations

import json

import pytest

from apps.jobs.models import Run
from apps.jobs.states import OverlapPolicy
from apps.routing.models import RoutedItem
from apps.routing.queries import reconcile_items
from tests.jobs.factories import make_job
from tests.routing.daemon.routers import Router, inbound

STARTS = {"name": "starts", "class": "jobs.StartRunOutbound", "selector": ["a"]}


def test_each_item_starts_one_run_of_its_project(router: Router) -> None:
    job = make_job(project=router.project, overlap=OverlapPolicy.QUEUE)
    init = {"job": job.name, "arguments": {"page": "a"}}
    router.use([inbound("in.jsonl")], [STARTS | {"init": init}])
    router.put({"a": 1}, {"a": 2})
    # Delivery ends the item, because no result is expected.
    router.until(lambda: router.states() == {"succeeded": 2}, "two runs")
    assert sorted(run.arguments["page"] for run in Run.objects.filter(job=job)) == [1, 2]
    assert reconcile_items(router.project.pk).holds


@pytest.mark.covers("S2.13")
def test_an_item_that_the_job_refuses_fails_and_is_in_the_failure_file(router: Router) -> None:
    job = make_job(project=router.project, enabled=False)
    router.use(
        [inbound("in.jsonl")],
        [STARTS | {"init": {"job": job.name}}],
        failure={"path": "refused.jsonl", "compress": False},
    )
    router.put({"a": 1})
    router.until(lambda: router.states() == {"failed": 1}, "the refusal")
    item = RoutedItem.objects.get(project=router.project)
    assert any("is disabled" in step.detail for step in item.story)
    (line,) = (router.folder / "failures" / "refused.jsonl").read_text("utf-8").splitlines()
    told = json.loads(line)
    assert told["task_uuid"] == str(item.task_uuid)
    assert told["state"] == "failed"
    assert told["item"]["a"] == 1
    assert not Run.objects.exists()
