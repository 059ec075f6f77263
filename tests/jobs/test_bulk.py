"""Many jobs at once, from the list: what is done, what is refused and why."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.jobs.models import Job, Run, RunCommand, Schedule
from apps.jobs.states import RunState
from apps.projects.models import Project
from tests.access.factories import Api, make_superuser, make_user
from tests.confirmation import press
from tests.jobs.factories import make_job, make_project, make_run
from tests.jobs.test_admin import LIST, logged_in, member, said
from tests.jobs.test_execution_options import make_image

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


def act(client: Client, action: str, *jobs: Job) -> list[str]:
    """What is said afterwards."""
    chosen = {"action": action, "_selected_action": [job.pk for job in jobs]}
    response = press(client, LIST, chosen)
    assert response.status_code == 302, response.content.decode()
    texts = sorted(said(response))
    # The next page shows them, and then they are gone.
    client.get(LIST)
    return texts


def test_jobs_are_switched_on_and_off_with_their_schedules(project: Project) -> None:
    client = member(project, Role.EDITOR)
    one, two = (
        make_job(project=project, name=name, cron="0 6 * * *", enabled=name == "two")
        for name in ("one", "two")
    )
    assert act(client, "enable", one, two) == ["1 job was enabled.", "Job two is enabled."]
    assert Schedule.objects.get(job=one).next_at is not None
    assert act(client, "disable", one, two) == ["2 jobs were disabled."]
    assert not Job.objects.filter(enabled=True).exists()
    assert Schedule.objects.get(job=one).next_at is None
    actions = AuditRecord.objects.filter(action="jobs.change_job")
    assert [entry.after for entry in actions.order_by("id")] == [
        {"enabled": True},
        {"enabled": False},
        {"enabled": False},
    ]


@pytest.mark.slow("2 s")
@pytest.mark.covers("S1.8", "S1.9", "S1.10")
def test_the_runs_of_jobs_are_paused_resumed_and_stopped(project: Project) -> None:
    client = member(project, Role.OPERATOR)
    busy, idle = make_job(project=project, name="busy"), make_job(project=project, name="idle")
    make_run(job=idle, state=RunState.EXITED)
    runs = [make_run(job=busy, state=RunState.RUNNING) for _ in range(2)]
    nothing = "Job idle has no active run."
    assert act(client, "pause_runs", busy, idle) == sorted(["2 runs were asked to pause.", nothing])
    assert set(busy.runs.values_list("state", flat=True)) == {RunState.PAUSING}
    (refused,) = act(client, "pause_runs", busy)
    assert refused.count("pausing") == 2
    assert act(client, "resume_runs", busy) == ["2 runs were asked to resume."]
    assert act(client, "stop_runs", busy) == ["2 runs were asked to stop."]
    assert set(busy.runs.values_list("state", flat=True)) == {RunState.STOPPING}
    asked = RunCommand.objects.filter(run=runs[0]).values_list("action", flat=True)
    assert list(asked) == ["pause", "resume", "exit"]


def test_jobs_are_cloned(project: Project) -> None:
    client = member(project, Role.EDITOR)
    one, two = make_job(project=project, name="one"), make_job(project=project, name="two")
    assert act(client, "clone_selected", one, two) == [
        "2 jobs were cloned; the clones are disabled."
    ]
    clones = Job.objects.filter(enabled=False).order_by("name")
    assert [job.name for job in clones] == ["one (copy)", "two (copy)"]


@pytest.mark.slow("3 s")
@pytest.mark.parametrize(
    ("action", "role"),
    [
        ("start_now", Role.OPERATOR),
        ("pause_runs", Role.OPERATOR),
        ("stop_runs", Role.OPERATOR),
        ("enable", Role.EDITOR),
        ("disable", Role.EDITOR),
        ("clone_selected", Role.EDITOR),
    ],
)
def test_the_role_is_asked_in_each_project(project: Project, action: str, role: Role) -> None:
    mine, foreign = make_job(project=project, enabled=action != "enable"), make_job()
    make_run(job=mine, state=RunState.RUNNING)
    make_run(job=foreign, state=RunState.RUNNING)
    Job.objects.filter(pk=mine.pk).update(overlap="allow")
    user = make_user(roles={project: role, foreign.project: Role.VIEWER})
    texts = act(logged_in(user), action, mine, foreign)
    assert len(texts) == 2
    refusal = f"your role in {foreign.project} does not allow this"
    assert sum(refusal in text for text in texts) == 1
    assert Run.objects.filter(job=foreign).get().state == RunState.RUNNING
    assert not Job.objects.filter(project=foreign.project).exclude(pk=foreign.pk).exists()
    # Who has the role nowhere is not even offered it.
    viewer = member(project, Role.VIEWER)
    assert f'value="{action}"' not in viewer.get(LIST).content.decode()


def test_many_reasons_are_summed_up(project: Project) -> None:
    client = member(project, Role.OPERATOR)
    jobs = [make_job(project=project, enabled=False) for _ in range(13)]
    texts = act(client, "start_now", *jobs)
    assert len(texts) == 11
    assert "3 more were refused." in texts


# --- the list and its filters ---------------------------------------------------------------------


def names(page: Any) -> list[str]:
    return [job.name for job in page.context["cl"].result_list]


@pytest.mark.slow("2 s")
def test_the_list_is_narrowed_by_tag_image_and_project(project: Project) -> None:
    image = make_image(project)
    make_job(project=project, name="one", tags=["news", "数据"], image=image)
    make_job(project=project, name="two", tags=["newsletter"])
    foreign = make_job(name="foreign", tags=["secret-tag"])
    make_image(foreign.project, tag="foreign")
    client = member(project, Role.VIEWER)
    page = client.get(LIST)
    text = page.content.decode()
    assert "crawlers/news:1" in text
    assert "secret-tag" not in text
    assert names(client.get(f"{LIST}?tag=news")) == ["one"]
    assert names(client.get(f"{LIST}?tag=数据")) == ["one"]
    assert names(client.get(f"{LIST}?image={image.pk}")) == ["one"]
    assert names(client.get(f"{LIST}?image=none")) == ["two"]
    assert names(client.get(f"{LIST}?image=nonsense")) == []
    assert names(client.get(f"{LIST}?image={'9' * 30}")) == []
    assert names(client.get(f"{LIST}?tag=%00")) == []


@pytest.mark.slow("2 s")
def test_filters_over_rest(project: Project) -> None:
    image = make_image(project)
    make_job(project=project, name="one", tags=["news", "数据"], image=image, cron="0 6 * * *")
    make_job(project=project, name="two", tags=["newsletter"], enabled=False)
    api = Api(make_superuser())

    def found(query: str) -> list[str]:
        return sorted(row["name"] for row in api.get(f"jobs?{query}").json()["results"])

    assert found("") == ["one", "two"]
    assert found("tag=news") == ["one"]
    assert found("tag=数据") == ["one"]
    assert found("tag=new") == []
    assert found(f"image={image.pk}") == ["one"]
    assert found("has_cron=true") == ["one"]
    assert found("has_cron=false") == ["two"]
    assert found("enabled=false") == ["two"]
    assert found("name=TW") == ["two"]
    assert found(f"project={project.pk}&tag=newsletter") == ["two"]
    assert api.get("jobs?image=x").status_code == 400
    assert api.get("jobs?has_cron=perhaps").status_code == 400


def test_the_page_of_a_job_costs_the_same_however_much_there_is(
    project: Project, django_assert_max_num_queries: Any
) -> None:
    job = make_job(project=project, cron="0 6 * * *", image=make_image(project))
    client = member(project, Role.EDITOR)
    address = f"{LIST}{job.pk}/change/"
    with django_assert_max_num_queries(30) as few:
        assert client.get(address).status_code == 200
    for number in range(30):
        make_run(job=job, state=RunState.RUNNING)
        make_image(project, tag=f"t{number}")
        make_job(project=project, tags=[f"t{number}"])
    with django_assert_max_num_queries(len(few)):
        assert client.get(address).status_code == 200


@pytest.mark.slow("2 s")
def test_the_page_of_a_job_says_what_goes_on(project: Project) -> None:
    job = make_job(project=project, name="pages", cron="0 6 * * *")
    make_run(job=job, state=RunState.RUNNING)
    client = member(project, Role.OPERATOR)
    act(member(project, Role.EDITOR), "disable", job)
    page = client.get(f"/jobs/{job.pk}").content.decode()
    assert "never: the job is disabled" in page
    act(member(project, Role.EDITOR), "enable", job)
    page = client.get(f"/jobs/{job.pk}")
    view = page.context["view"]
    assert view.active == 1
    assert view.schedule.next_times[0].utc == Schedule.objects.get(job=job).next_at
    text = page.content.decode()
    assert "Run now with other arguments" in text
    assert "No host would take a run now" in text
    assert "no host is registered" in text


def test_a_run_is_started_with_arguments_that_were_typed(project: Project) -> None:
    job = make_job(project=project, arguments={"a": 1, "b": 2})
    client = member(project, Role.OPERATOR)
    start = f"{LIST}{job.pk}/start"
    wrong = client.post(start, {"arguments": '{"b": }'})
    assert wrong.headers["Location"] == f"/jobs/{job.pk}"
    assert said(wrong) == ["Arguments: Line 1, column 7: a value is missing here."]
    assert not Run.objects.exists()
    assert client.post(start, {"arguments": '{"b": 3}'}).status_code == 302
    assert Run.objects.get().arguments == {"a": 1, "b": 3}
