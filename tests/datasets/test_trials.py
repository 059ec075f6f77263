"""Images tried on recorded pages: what is compared, what it takes to use one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.datasets.engine.item_types import ItemQuery
from apps.datasets.engine.trials import TrialLimits, TrialResult, judge
from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.queries.deliveries import accounting
from apps.datasets.queries.items import open_reader, previous_run
from apps.datasets.services import settling, trials
from apps.datasets.services.datasets import dataset_of_job
from apps.datasets.states import Kind
from apps.jobs.errors import NothingRecorded, TrialNeeded, TrialNotEnded, TrialNoteNeeded
from apps.jobs.models import ImageTrial, Run
from apps.jobs.services import add_link, finish_run, start_run, update_job
from apps.jobs.services.run_queue import queue_run
from apps.jobs.states import LinkCondition, ReplayMissing, RunState, TrialState, Trigger
from apps.projects.models import Image
from apps.queuestats.models import RunCounter
from tests.access.factories import Api, enter, make_user
from tests.datasets.deliveries import deliver, make_delivery
from tests.datasets.factories import NOW, make_items, store
from tests.datasets.requests import make_failure, make_request, store_requests
from tests.jobs.factories import make_job, make_run
from tests.projects.build_factories import make_image

pytestmark = pytest.mark.django_db
LIMITS = TrialLimits(lost=0.0, changed=10.0, failed=5.0)
LATER = timedelta(minutes=2)


def result(**values: Any) -> TrialResult:
    known: dict[str, Any] = {
        "items": (100, 100),
        "requests": (100, 100),
        "failed": (0, 0),
        "seconds": (10.0, 1.0),
    }
    return TrialResult(**(known | values))


@pytest.mark.covers("OB.6")
@pytest.mark.parametrize(
    ("values", "exceeded"),
    [
        ({}, []),
        ({"items": (100, 99)}, ["lost"]),
        # By key it counts which ones are missing, not how many there are.
        ({"keyed": True, "added": 1, "removed": 1, "equal": 99}, ["lost"]),
        ({"keyed": True, "changed": 10, "equal": 90, "items": (100, 90)}, []),
        ({"keyed": True, "changed": 11, "equal": 89}, ["changed"]),
        ({"failed": (0, 5)}, []),
        ({"failed": (0, 6)}, ["failed"]),
        ({"failed": (20, 20)}, []),
        ({"failed": (20, 21)}, ["failed"]),
        ({"succeeded": False, "items": (100, 0)}, ["ended", "lost"]),
        ({"items": (0, 0), "requests": (0, 0)}, []),
    ],
)
def test_a_trial_exceeds_limits(values: dict[str, Any], exceeded: list[str]) -> None:
    assert [excess.limit for excess in judge(result(**values), LIMITS).excesses] == exceeded


@pytest.fixture
def recorded() -> Run:
    """A run with items and kept pages, of a job with an image."""
    job = make_job()
    job.image = make_image(project=job.project)
    job.save()
    run = ended(make_run(job=job, started_at=timezone.now()))
    store(run, make_items(10))
    report(run, total=10, failed=0)
    Dataset.objects.of_items().update(key_fields=["url"])
    pages = dataset_of_job(job, Kind.PAGES)
    DatasetRun.objects.create(dataset=pages, run_number=run.pk, stored=10)
    settle()
    return run


@pytest.fixture
def image(recorded: Run) -> Image:
    return make_image(project=recorded.job.project, tag="prod-2.0", digest="sha256:" + "b" * 64)


def ended(run: Run, state: RunState = RunState.EXITED) -> Run:
    now = timezone.now()
    Run.objects.filter(pk=run.pk).update(state=state, started_at=now, ended_at=now)
    run.refresh_from_db()
    return run


def report(run: Run, *, total: int, failed: int) -> None:
    RunCounter.objects.create(
        project=run.job.project,
        owner=run.owner,
        boot="b1",
        total=total,
        failed=failed,
        success=total - failed,
        final=True,
        updated_at=timezone.now(),
    )


def settle(now: datetime | None = None) -> None:
    while settling.step(now=now or timezone.now() + LATER):
        pass


def tried(trial: ImageTrial, items: list[dict[str, Any]], *, failed: int = 0) -> ImageTrial:
    """Let the run of a trial end with these items."""
    assert trial.run is not None
    run = ended(trial.run)
    if items:
        store(run, items)
    report(run, total=10, failed=failed)
    settle()
    assert trials.step(now=timezone.now() + LATER)
    assert not trials.step(now=timezone.now() + LATER)
    trial.refresh_from_db()
    return trial


def started(recorded: Run, image: Image) -> ImageTrial:
    return trials.start_trial(job=recorded.job, image=image, actor=None, now=timezone.now())


@pytest.mark.covers("OB.6")
def test_an_equal_image_passes_and_is_used(recorded: Run, image: Image) -> None:
    job = recorded.job
    update_job(job=job, values={"trial_required": True}, actor=None)
    trial = started(recorded, image)
    run = trial.run
    assert run is not None
    assert (run.replay_of, run.image, run.image_digest) == (recorded, image, image.digest)
    assert not trials.step(now=timezone.now() + LATER)
    person = make_user(roles={job.project: Role.EDITOR})
    with pytest.raises(TrialNotEnded):
        trials.activate_trial(trial=trial, actor=person, note="", now=timezone.now())
    with pytest.raises(TrialNeeded):
        update_job(job=job, values={"image": image}, actor=None)
    job.refresh_from_db()
    tried(trial, make_items(10))
    assert trial.state == TrialState.PASSED
    assert (trial.result["equal"], trial.result["items"]) == (10, [10, 10])
    trials.activate_trial(trial=trial, actor=person, note="", now=timezone.now())
    job.refresh_from_db()
    assert (job.image, job.image_digest) == (image, image.digest)
    # The digest that was tried is run, also after the tag has moved.
    Image.objects.filter(pk=image.pk).update(digest="sha256:" + "c" * 64)
    job.refresh_from_db()
    later = queue_run(job=job, now=timezone.now(), trigger=Trigger.PERSON)
    assert later.image_digest == trial.image_digest
    assert AuditRecord.objects.filter(action="jobs.activate_trial", actor=person).count() == 1


@pytest.mark.covers("OB.6")
def test_an_image_that_loses_items_is_used_with_a_note_only(recorded: Run, image: Image) -> None:
    job = recorded.job
    update_job(job=job, values={"trial_required": True}, actor=None)
    trial = tried(started(recorded, image), [*make_items(8), *make_items(3, start=50)], failed=1)
    assert trial.state == TrialState.FAILED
    assert (trial.result["removed"], trial.result["added"]) == (2, 3)
    limits = [excess["limit"] for excess in trial.result["excesses"]]
    assert limits == ["lost", "failed"]
    person = make_user(roles={job.project: Role.EDITOR})
    with pytest.raises(TrialNoteNeeded):
        trials.activate_trial(trial=trial, actor=person, note=" ", now=timezone.now())
    with pytest.raises(TrialNeeded):
        update_job(job=job, values={"image": image}, actor=None)
    trials.activate_trial(trial=trial, actor=person, note="site changed", now=timezone.now())
    job.refresh_from_db()
    assert job.image == image
    assert AuditRecord.objects.get(action="jobs.activate_trial").note == "site changed"


@pytest.mark.covers("OB.6")
def test_a_run_without_items_or_success_does_not_pass(recorded: Run, image: Image) -> None:
    trial = tried(started(recorded, image), [])
    assert trial.state == TrialState.FAILED
    assert trial.result["items"] == [10, 0]
    again = started(recorded, image)
    assert again.run is not None
    ended(again.run, RunState.FAILED)
    assert trials.step(now=timezone.now() + LATER)
    again.refresh_from_db()
    assert again.result["excesses"][0]["limit"] == "ended"
    never = started(recorded, image)
    assert never.run is not None
    Run.objects.filter(pk=never.run.pk).update(
        state=RunState.CANCELLED, ended_at=timezone.now() + LATER, reason="stopped"
    )
    assert trials.step(now=timezone.now() + 2 * LATER)
    never.refresh_from_db()
    assert (never.state, never.reason) == (TrialState.ABORTED, "stopped")


@pytest.mark.covers("OB.6")
def test_without_kept_pages_there_is_no_trial(recorded: Run, image: Image) -> None:
    DatasetRun.objects.filter(dataset__kind=Kind.PAGES).update(deleted_at=timezone.now())
    with pytest.raises(NothingRecorded):
        started(recorded, image)
    assert not ImageTrial.objects.exists()
    assert Run.objects.count() == 1


@pytest.mark.covers("OB.6")
def test_items_of_a_replay_are_seen_with_their_run_only(recorded: Run, image: Image) -> None:
    dataset = Dataset.objects.of_items().get()
    delivery = make_delivery(dataset)
    trial = tried(started(recorded, image), make_items(9))
    assert trial.run is not None
    with open_reader(dataset) as reader:
        assert reader.count(ItemQuery()) == 10
    with open_reader(dataset, [trial.run.pk]) as reader:
        assert reader.count(ItemQuery()) == 9
    later = make_run(job=recorded.job)
    assert previous_run(dataset, later.pk) == recorded.pk
    assert previous_run(dataset, trial.run.pk) == recorded.pk
    deliver()
    delivery.refresh_from_db()
    found = accounting(delivery)
    assert (found.stored, found.delivered, found.waiting) == (10, 10, 0)


@pytest.mark.covers("OB.6")
def test_exceptions_that_the_recorded_run_does_not_have_are_named(
    recorded: Run, image: Image
) -> None:
    store_requests(recorded, [make_failure(1)])
    trial = started(recorded, image)
    assert trial.run is not None
    new = {"group": "KeyError (shop.py:9 parse)", "error": "callback parse raised KeyError: 'sku'"}
    rows = [make_failure(1), make_failure(2, **new), make_failure(3, **new), make_request(4)]
    store_requests(trial.run, rows)
    tried(trial, make_items(10))
    (found,) = trial.result["exceptions"]
    assert (found["error"], found["count"]) == (new["error"], 2)
    viewer = enter(make_user(roles={recorded.job.project: Role.VIEWER}))
    text = viewer.get(f"/image-trials/{trial.pk}").content.decode()
    assert "New exceptions" in text
    assert "raised KeyError" in text


@pytest.mark.covers("OB.6")
def test_a_trial_delays_no_run_and_nothing_follows_it(recorded: Run, image: Image) -> None:
    job = recorded.job
    job.retry_rules = [{"on": "failed", "retries": 3}]
    job.save()
    after = make_job(project=job.project, name="after")
    add_link(job=after, after=job, condition=LinkCondition.ALWAYS, actor=None)
    trial = started(recorded, image)
    run = trial.run
    assert run is not None
    # The job allows one run at a time.
    real = start_run(job=job, now=timezone.now(), actor=None)
    assert real.waits_for is None
    Run.objects.filter(pk=run.pk).update(state=RunState.RUNNING, host="h", started_at=NOW)
    run.refresh_from_db()
    finish_run(run=run, state=RunState.FAILED, reason="crash", now=timezone.now())
    assert not after.runs.exists()
    assert set(job.runs.values_list("pk", flat=True)) == {recorded.pk, run.pk, real.pk}


@pytest.mark.covers("OB.6")
def test_the_pages_show_and_do_it(recorded: Run, image: Image) -> None:
    job = recorded.job
    operator = enter(make_user(roles={job.project: Role.OPERATOR}))
    text = operator.get(f"/jobs/{job.pk}/trials").content.decode()
    assert f"run #{recorded.pk}" in text
    assert image.reference in text
    answer = operator.post(f"/jobs/{job.pk}/trials", {"image": image.pk})
    trial = ImageTrial.objects.get()
    assert answer.headers["Location"] == f"/image-trials/{trial.pk}"
    tried(trial, make_items(8))
    text = operator.get(f"/image-trials/{trial.pk}").content.decode()
    assert "20 % of the items are missing; 0 % may be." in text
    assert "Use it anyway" not in text
    assert operator.post(f"/image-trials/{trial.pk}/use", {"note": "x"}).status_code == 403
    editor = enter(make_user(roles={job.project: Role.EDITOR}))
    assert "Use it anyway" in editor.get(f"/image-trials/{trial.pk}").content.decode()
    editor.post(f"/image-trials/{trial.pk}/use", {"note": ""})
    job.refresh_from_db()
    assert job.image != image
    editor.post(f"/image-trials/{trial.pk}/use", {"note": "known"})
    job.refresh_from_db()
    assert job.image == image
    viewer = enter(make_user(roles={job.project: Role.VIEWER}))
    assert viewer.post(f"/jobs/{job.pk}/trials", {"image": image.pk}).status_code == 403
    stranger = enter(make_user())
    assert stranger.get(f"/image-trials/{trial.pk}").status_code == 404
    assert stranger.get(f"/jobs/{job.pk}/trials").status_code == 404


@pytest.mark.covers("OB.6")
def test_rest_starts_and_uses(recorded: Run, image: Image) -> None:
    api = Api(make_user(roles={recorded.job.project: Role.EDITOR}))
    foreign = make_image()
    refused = api.post("/api/v1/image-trials", {"job": recorded.job.pk, "image": foreign.pk})
    assert refused.status_code == 400
    made = api.post("/api/v1/image-trials", {"job": recorded.job.pk, "image": image.pk})
    assert made.status_code == 201, made.content
    trial = ImageTrial.objects.get()
    early = api.post(f"/api/v1/image-trials/{trial.pk}/activate", {})
    assert (early.status_code, early.json()["code"]) == (409, "trial_not_ended")
    tried(trial, make_items(10))
    rows = api.get(f"/api/v1/image-trials?job={recorded.job.pk}&state=passed").json()["results"]
    assert [row["id"] for row in rows] == [trial.pk]
    assert rows[0]["result"]["equal"] == 10
    done = api.post(f"/api/v1/image-trials/{trial.pk}/activate", {})
    assert done.status_code == 200
    assert done.json()["activated_by"] == ImageTrial.objects.get().activated_by != ""
    recorded.job.refresh_from_db()
    assert recorded.job.image == image


@pytest.mark.covers("OB.5")
def test_a_run_is_run_again_on_its_kept_pages(recorded: Run) -> None:
    operator = enter(make_user(roles={recorded.job.project: Role.OPERATOR}))
    answer = operator.post(f"/runs/{recorded.pk}/replay", {"missing": "fetch"})
    replay = Run.objects.get(replay_of=recorded)
    assert answer.headers["Location"].endswith(f"/runs/{replay.pk}")
    assert (replay.image, replay.replay_missing) == (recorded.image, ReplayMissing.FETCH)
    assert AuditRecord.objects.get(action="jobs.replay_run").after["replay_of"] == recorded.pk
    viewer = enter(make_user(roles={recorded.job.project: Role.VIEWER}))
    assert viewer.post(f"/runs/{recorded.pk}/replay").status_code == 403
    api = Api(make_user(roles={recorded.job.project: Role.OPERATOR}))
    made = api.post(f"/api/v1/runs/{recorded.pk}/replay", {})
    assert (made.status_code, made.json()["replay_of"]) == (201, recorded.pk)
    # Of a replay nothing is kept, and one that goes on cannot be replayed.
    refused = api.post(f"/api/v1/runs/{replay.pk}/replay", {})
    assert (refused.status_code, refused.json()["code"]) == (409, "nothing_recorded")
