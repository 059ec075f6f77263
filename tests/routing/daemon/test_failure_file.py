"""An unwritable failure file stops only the items of its project that need a line in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.utils import timezone

from apps.configcenter.services import activate
from apps.projects.models import Project
from apps.routing.daemon import failure_file
from apps.routing.engine.outbounds.base import refused
from apps.routing.models import RoutedItem
from apps.routing.queries import reconcile_items, routing_status
from tests.access.factories import make_project
from tests.routing.daemon.routers import Router, inbound, outbound, save_rules

FAILURE = {"path": "failed.jsonl", "compress": False}


@pytest.fixture
def file(router: Router) -> Path:
    """A path that cannot be written, because it is not a failure file. ``unlink`` repairs it."""
    found = router.folder / "failures" / "failed.jsonl"
    found.parent.mkdir()
    found.write_text("other things\n")
    return found


@pytest.fixture
def other(router: Router) -> Project:
    """Another project of the same router, without a failure file."""
    made = make_project()
    rules = [inbound("other.jsonl")], [outbound("other", "a == 1")]
    version = save_rules(made, *rules, router.clock)
    activate(version=version, actor=None, now=router.clock.now())
    return made


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def problem(router: Router, project: Project) -> str:
    router.daemon.reporter.timers.hasten("report")
    router.daemon.step()
    return routing_status(project.pk, timezone.now()).file_problem


def come_again(router: Router) -> None:
    """Expire the leases of waiting items, and have a router claim them."""
    waiting = RoutedItem.objects.get(state="received")
    RoutedItem.objects.filter(pk=waiting.pk).update(due_at=timezone.now())
    router.daemon.backlog.timers.hasten("claim")

    def was_taken() -> bool:
        return RoutedItem.objects.get(pk=waiting.pk).generation > waiting.generation

    router.until(was_taken, "a claim")


def test_what_cannot_be_ended_waits_and_holds_up_nobody_else(
    router: Router, file: Path, other: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [outbound("o", "a == 1"), outbound("p", "a == 2")]
    router.use([inbound("in.jsonl")], rules, failure=FAILURE)
    router.target("p").answer = lambda sent: refused("too_large", "it is too large")
    router.put({"a": 1}, {"a": 2})
    router.until(lambda: router.states() == {"dispatched": 1, "received": 1}, "the first")
    # The outage is of the file, not of the database.
    assert not router.daemon.pipeline.outage.lasting
    assert "holds other things" in problem(router, router.project)
    router.put({"a": 1}, file="other.jsonl")
    router.until(lambda: len(router.target("other").messages) == 1, "the other project")
    assert problem(router, other) == ""
    # Without the pause it is tried each time; failed writes do not count as attempts of the item.
    monkeypatch.setattr(failure_file, "REST_SECONDS", 0.0)
    for _ in range(12):
        come_again(router)
        assert router.states() == {"dispatched": 1, "received": 1}
    assert RoutedItem.objects.get(state="received").attempts == 1
    file.unlink()
    come_again(router)
    assert router.states() == {"dispatched": 1, "failed": 1}
    (line,) = lines(file)
    assert line["state"] == "failed"
    assert problem(router, router.project) == ""
    assert len(router.target("o").messages) == 1
    assert reconcile_items(router.project.pk).holds


def test_an_item_that_ends_routers_is_not_spared(router: Router, file: Path) -> None:
    router.use([inbound("in.jsonl")], [outbound("o", "a == 1")], failure=FAILURE)
    router.put({"a": 2})
    router.until(lambda: router.states() == {"received": 1}, "the item")
    RoutedItem.objects.update(attempts=20)
    come_again(router)
    assert RoutedItem.objects.get().attempts == 21


@pytest.mark.parametrize("end", ["poison", "result"])
def test_what_ends_as_it_comes_goes_back_and_holds_up_nobody_else(
    router: Router, file: Path, other: Project, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(failure_file, "REST_SECONDS", 0.0)
    router.use([inbound("in.jsonl")], [outbound("o", "a == 1")], failure=FAILURE)
    router.put({"a": 1})
    router.until(lambda: router.states() == {"dispatched": 1}, "dispatch")
    (message,) = router.target("o").messages
    router.put("{no item" if end == "poison" else {"task_result": 7, "task_params": message})
    router.until(lambda: problem(router, router.project), "the problem")
    router.put({"a": 1}, file="other.jsonl")
    router.until(lambda: len(router.target("other").messages) == 1, "the other project")
    assert not router.daemon.pipeline.outage.lasting
    assert router.states() == {"dispatched": 1}
    file.unlink()
    ends = {"dispatched": 1, "dead": 1} if end == "poison" else {"failed": 1}
    router.until(lambda: router.states() == ends, "the end")
    assert len(lines(file)) == 1
    assert reconcile_items(router.project.pk).holds


def test_a_file_that_nothing_needs_any_more_is_no_problem(
    router: Router, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    router.use([inbound("in.jsonl")], [outbound("o", "a == 1")], failure=FAILURE)
    router.put({"a": 2})
    router.until(lambda: problem(router, router.project), "the problem")
    monkeypatch.setattr(failure_file, "REMEMBERED_SECONDS", 0.0)
    assert problem(router, router.project) == ""
