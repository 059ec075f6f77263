"""Jobs as files: out and in again, what is refused and where, and all or nothing."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from apps.access.models import AuditRecord, User
from apps.access.states import Role
from apps.jobs.engine.csv_files import read_csv
from apps.jobs.engine.portable import MAX_BYTES, JobFileFormat
from apps.jobs.engine.yaml_files import read_yaml
from apps.jobs.models import Job, Schedule
from apps.jobs.services.portable import (
    COLUMNS,
    FIELDS,
    NAMES_OF_SECRETS,
    export_jobs,
    import_jobs,
    plan_import,
    portable,
)
from apps.projects.models import Project
from tests.access.factories import Api, bearer, make_token, make_user
from tests.jobs.factories import make_job, make_project
from tests.jobs.test_admin import LIST, logged_in, member, said
from tests.jobs.test_clone import full_job
from tests.jobs.test_execution_options import make_image
from tests.jobs.test_job_files import ROWS

HEAD = "crawlyard_jobs: 1\njobs:\n"
READ = {JobFileFormat.YAML: read_yaml, JobFileFormat.CSV: read_csv}


@pytest.fixture
def project() -> Project:
    return make_project()


def editor(*projects: Project) -> User:
    return make_user(roles=dict.fromkeys(projects, Role.EDITOR))


def _has_large_float(value: object) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_large_float, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and abs(value) >= 2**53


# --- out and in -----------------------------------------------------------------------------------


@pytest.mark.slow("1 s")
@pytest.mark.django_db
@pytest.mark.parametrize("kind", list(JobFileFormat))
def test_what_is_exported_is_equal_where_it_is_imported(
    project: Project, kind: JobFileFormat
) -> None:
    job = full_job(project)
    plain = make_job(project=project, name="no: really", enabled=False, arguments={"a": [None, 1]})
    other = make_project()
    make_image(other)
    api = Api(editor(project, other))
    answer = api.get(f"jobs/export?format={kind.value}&project={project.pk}")
    assert answer.status_code == 200
    assert answer.headers["Content-Disposition"] == f'attachment; filename="jobs.{kind.value}"'
    text = answer.content.decode()
    assert "s3cret" not in text
    assert "TOKEN" in text
    asked = {"format": kind.value, "text": text, "project": other.pk}
    done = api.post("jobs/import", asked)
    assert done.status_code == 200, done.content
    assert (done.json()["added"], done.json()["changed"]) == (2, 0)
    assert [each["secrets_to_set"] for each in done.json()["jobs"]] == [[], ["KEY", "TOKEN"]]
    for each in (job, plain):
        copy = Job.objects.select_related("project", "image").get(project=other, name=each.name)
        each = Job.objects.select_related("project", "image").get(pk=each.pk)
        alike = {"project": other.slug, NAMES_OF_SECRETS: []}
        assert portable(copy) == portable(each) | alike
    assert Schedule.objects.filter(job__project=other).count() == 1
    # A second time there is nothing to do, and nothing on record.
    records = AuditRecord.objects.count()
    again = api.post("jobs/import", asked)
    assert (again.json()["unchanged"], again.json()["added"]) == (2, 0)
    assert AuditRecord.objects.count() == records


@pytest.mark.slow("15 s")
@pytest.mark.django_db
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=ROWS, kind=st.sampled_from(list(JobFileFormat)))
def test_odd_texts_survive_the_way_through_the_database(
    rows: list[dict[str, Any]], kind: JobFileFormat, project: Project
) -> None:
    # PostgreSQL makes whole numbers of these, with other digits than the float has.
    assume(not any(_has_large_float(row["arguments"]) for row in rows))
    Job.objects.all().delete()
    for number, row in enumerate(rows):
        make_job(
            project=project,
            name=f"job {number}",
            notes=row["notes"],
            arguments=row["arguments"],
            priority=row["priority"],
            tags=list(dict.fromkeys(row["tags"])),
            environment={"A": row["name"]},
        )
    jobs = list(Job.objects.select_related("project", "image").order_by("id"))
    if not jobs:
        return
    text = export_jobs(jobs, kind)
    other = make_project()
    import_jobs(
        raw=text.encode(), kind=kind, actor=editor(other), now=timezone.now(), project=other
    )
    copies = Job.objects.filter(project=other).select_related("project", "image").order_by("id")
    without = {"project"}
    assert [
        {name: value for name, value in portable(copy).items() if name not in without}
        for copy in copies
    ] == [
        {name: value for name, value in portable(job).items() if name not in without}
        for job in jobs
    ]


@pytest.mark.django_db
def test_a_yaml_file_is_made_for_people(project: Project) -> None:
    make_job(project=project, name="新闻", notes="one\ntwo\n", cron="*/5 * * * *", tags=["a"])
    text = export_jobs(Job.objects.select_related("project", "image"), JobFileFormat.YAML)
    assert text.startswith("crawlyard_jobs: 1\njobs:\n- name: 新闻\n  project: ")
    assert "  notes: |\n    one\n    two\n" in text
    assert "  cron: '*/5 * * * *'\n" in text
    assert list(yaml.safe_load(text)["jobs"][0]) == list(FIELDS)


@pytest.mark.django_db
def test_an_import_changes_what_the_file_names_and_nothing_else(project: Project) -> None:
    job = make_job(project=project, name="pages", speed=5, secrets='{"A": "s3cret"}', notes="mine")
    api = Api(editor(project))
    text = HEAD + f"- name: pages\n  project: {project.slug}\n  speed: 2\n  tags: [x]\n"
    preview = api.post("jobs/import", {"text": text, "dry_run": True})
    assert preview.json()["jobs"] == [
        {
            "id": job.pk,
            "name": "pages",
            "project": project.slug,
            "what": "changed",
            "changes": {"speed": [5.0, 2.0], "tags": [[], ["x"]]},
            "secrets_to_set": [],
        }
    ]
    job.refresh_from_db()
    assert job.speed == 5
    assert api.post("jobs/import", {"text": text}).json()["changed"] == 1
    job.refresh_from_db()
    assert (job.speed, job.tags, job.notes) == (2, ["x"], "mine")
    assert job.secret_environment() == {"A": "s3cret"}
    entry = AuditRecord.objects.get(action="jobs.change_job")
    assert (entry.before, entry.after) == (
        {"speed": 5.0, "tags": []},
        {"speed": 2.0, "tags": ["x"]},
    )


BAD_JOBS: list[tuple[str, str, str]] = [
    ("name: a\n  cron: 61 * * * *", "jobs[0].cron", ":4: jobs[0].cron: The cron expression is"),
    ("name: a\n  time_zone: Mars", "jobs[0].time_zone", ":4: "),
    ("name: a\n  spider: ''", "jobs[0].spider", "Enter a spider or a command"),
    ("name: a\n  command: [x]", "jobs[0].command", "not both"),
    ("name: a\n  command: {}", "jobs[0].command", "The value must be a list"),
    ("name: a\n  environment: []", "jobs[0].environment", "The value must be a mapping"),
    ("name: a\n  environment:\n    A: 5", "jobs[0].environment", "A: the value must be a text"),
    ("name: a\n  environment: {BROKER_URL: x}", "jobs[0].environment", "reserved"),
    ("name: a\n  image: news:9", "jobs[0].image", "has no image “news:9”"),
    ("name: a\n  tags: [a, a]", "jobs[0].tags", "occurs twice"),
    ("name: a\n  tags: [5]", "jobs[0].tags", "cannot be a tag"),
    ("name: a\n  policy: mine", "jobs[0].policy", "mine"),
    ("name: a\n  priority: 101", "jobs[0].priority", "100"),
    ("name: a\n  speed: 1e400", "jobs[0].speed", ":4: "),
    ("name: a\n  notes: " + "x" * 10_001, "jobs[0].notes", "10000"),
    ("name: a\n  arguments: {a: 1e400}", "jobs[0].arguments", "too large"),
    ("name: a\n  cut: [{strat: x}]", "jobs[0].cut", "Rule 1: unknown field “strat”"),
    ("name: a\n  retry_rules: [{on: bored}]", "jobs[0].retry_rules", "ule 1"),
    (
        "name: a\n  request_timeout_seconds: 5",
        "jobs[0].request_timeout_seconds",
        "Must be at least",
    ),
    ("name: ''", "jobs[0].name", "The name is missing"),
    ("spider: a:B", "jobs[0].name", "The name is missing"),
    (
        "name: a\n  spider: a:B\n- name: a",
        "jobs[1].name",
        ":5: jobs[1].name: This job occurs twice",
    ),
    (f"name: {'x' * 101}", "jobs[0].name", "100"),
    ('name: "a\\nb"', "jobs[0].name", "control characters"),
    ('name: a\n  spider: "a:B\\n"', "jobs[0].spider", "module:Class"),
]


@pytest.mark.slow("6 s")
@pytest.mark.django_db
@pytest.mark.parametrize(("text", "name", "said"), BAD_JOBS, ids=lambda x: str(x)[:50])
def test_bad_jobs_are_refused_by_line_and_field_and_nothing_is_written(
    project: Project, text: str, name: str, said: str
) -> None:
    if "spider" not in text:
        text += "\n  spider: a:B"
    file = HEAD + "- " + text + "\n- name: good\n  spider: a:B\n"
    api = Api(editor(project))
    refused = api.post("jobs/import", {"text": file, "project": project.pk})
    assert (refused.status_code, refused.json()["code"]) == (422, "import_refused")
    found = refused.json()["fields"]
    assert list(found) == [name], found
    assert found[name][0].startswith("jobs.yaml:"), found
    assert said in found[name][0]
    assert not Job.objects.exists()
    preview = api.post("jobs/import", {"text": file, "project": project.pk, "dry_run": True})
    assert preview.status_code == 200
    assert preview.json()["problems"] == found[name]


@pytest.mark.django_db
def test_modes(project: Project) -> None:
    make_job(project=project, name="old")
    api = Api(editor(project))
    file = HEAD + "- {name: old, spider: a:B}\n- {name: new, spider: a:B}\n"

    def call(mode: str) -> Any:
        return api.post("jobs/import", {"text": file, "project": project.pk, "mode": mode})

    created, updated = call("create"), call("update")
    assert list(created.json()["fields"]) == ["jobs[0].name"]
    assert "already exists" in str(created.json()["fields"])
    assert list(updated.json()["fields"]) == ["jobs[1].name"]
    assert "No job of this name exists" in str(updated.json()["fields"])
    assert Job.objects.count() == 1
    assert call("upsert").status_code == 200
    assert Job.objects.count() == 2
    assert call("nonsense").status_code == 400


@pytest.mark.django_db
def test_jobs_go_only_where_the_person_may_change_jobs(project: Project) -> None:
    seen, hidden = make_project(), make_project()
    user = make_user(roles={project: Role.EDITOR, seen: Role.VIEWER})
    api = Api(user)
    texts = []
    for slug in (seen.slug, hidden.slug, "nowhere", ""):
        file = HEAD + f"- name: a\n  spider: a:B\n  project: '{slug}'\n"
        answer = api.post("jobs/import", {"text": file})
        assert answer.status_code == 422
        texts.append(answer.json()["fields"]["jobs[0].project"][0])
    assert "You do not have permission to change jobs" in texts[0]
    assert texts[1].replace(hidden.slug, "nowhere") == texts[2]
    assert "The project is missing" in texts[3]
    for target in (seen, hidden):
        answer = api.post("jobs/import", {"text": HEAD + "- name: a", "project": target.pk})
        assert list(answer.json()["fields"]) == ["project"]
    viewer = Api(make_user(roles={project: Role.VIEWER}))
    assert viewer.post("jobs/import", {"text": HEAD}).status_code == 403
    assert not Job.objects.exists()
    # An image of another project is not found, whoever may see it.
    make_image(hidden)
    file = HEAD + "- {name: a, spider: a:B, image: 'crawlers/news:1'}\n"
    answer = api.post("jobs/import", {"text": file, "project": project.pk})
    assert "has no image" in str(answer.json()["fields"])


@pytest.mark.slow("1 s")
@pytest.mark.django_db
@pytest.mark.parametrize(
    "content_type", ["text/yaml", "application/yaml", "application/x-yaml", "text/csv"]
)
def test_the_body_may_be_the_file_itself(project: Project, content_type: str) -> None:
    headers = bearer(make_token(editor(project)))
    client = Client()
    text = HEAD + "- {name: a, spider: 'a:B'}\n"
    if content_type == "text/csv":
        text = "crawlyard_jobs,name,spider\n1,a,a:B\n"

    def call(query: str, body: str) -> Any:
        address = f"/api/v1/jobs/import?project={project.pk}{query}"
        return client.post(address, body, content_type=content_type, headers=headers)

    assert call("&dry_run=true", text).json()["added"] == 1
    assert not Job.objects.exists()
    assert call("", text).json()["added"] == 1
    assert Job.objects.get().project == project
    assert call("&mode=create", text).status_code == 422
    assert call("&mode=nonsense", text).status_code == 400
    assert call("", "#" * (MAX_BYTES + 1)).status_code == 413
    assert call("", "").status_code == 400


@pytest.mark.django_db
def test_a_form_with_a_file(project: Project) -> None:
    headers = bearer(make_token(editor(project)))
    rows = "crawlyard_jobs,name,spider\n1,a,a:B\n1,b,nonsense\n"

    def call(text: str, name: str, **fields: Any) -> Any:
        file = SimpleUploadedFile(name, text.encode())
        body = {"file": file, "project": project.pk} | fields
        return Client().post("/api/v1/jobs/import", body, headers=headers)

    refused = call(rows, "../my\x1b list.csv")
    assert refused.status_code == 422, refused.content
    (text,) = refused.json()["fields"]["jobs[1].spider"]
    assert text.startswith("my")
    assert "list.csv:3: jobs[1].spider: Write it as module:Class" in text
    assert "\x1b" not in text
    assert call(rows.replace("nonsense", "c:D"), "list.csv").json()["added"] == 2
    assert call("#" * (MAX_BYTES + 1), "jobs.yaml").status_code == 413
    assert call("x", "jobs.yaml", format="pdf").status_code == 400
    assert Client().post("/api/v1/jobs/import", {}, headers=headers).status_code == 400


@pytest.mark.django_db
def test_exports_follow_the_filters_and_the_roles(project: Project) -> None:
    make_job(project=project, name="one", tags=["a"])
    make_job(project=project, name="two")
    make_job(name="foreign")
    api = Api(make_user(roles={project: Role.VIEWER}))

    def names(query: str) -> list[str]:
        loaded = yaml.safe_load(api.get(f"jobs/export?{query}").content)
        return [job["name"] for job in loaded["jobs"]]

    assert names("") == ["one", "two"]
    assert names("tag=a") == ["one"]
    assert names("tag=none") == []
    assert api.get("jobs/export?format=pdf").status_code == 400
    assert api.get("jobs/export?project=x").json()["code"] == "invalid"
    assert api.get("jobs/export", Accept="application/pdf").status_code == 200
    assert Api().get("jobs/export").status_code == 401


@pytest.mark.django_db
def test_an_import_costs_few_queries_to_look_at(
    project: Project, django_assert_max_num_queries: Any
) -> None:
    rows = "".join(f"- {{name: job {number}, spider: a:B}}\n" for number in range(300))
    person = editor(project)
    with django_assert_max_num_queries(8):
        plan = plan_import(raw=HEAD + rows, kind=JobFileFormat.YAML, actor=person, project=project)
    assert plan.count("added") == 300


# --- the page -------------------------------------------------------------------------------------

PAGE = "/admin/jobs/job/import"


@pytest.mark.django_db
def test_the_page_shows_first_and_writes_then(project: Project) -> None:
    make_job(project=project, name="old", speed=5, spider="a:B", notes="a\nb")
    client = member(project, Role.EDITOR)
    assert PAGE in client.get(LIST).content.decode()
    assert client.get(PAGE).status_code == 200
    rows = 'crawlyard_jobs,name,spider,speed,notes\n1,old,a:B,2,"a\nb"\n1,new,a:B,1,"x\ny"\n'
    file = SimpleUploadedFile("jobs.csv", rows.encode())
    shown = client.post(PAGE, {"file": file, "project": project.pk, "mode": "upsert"})
    text = shown.content.decode()
    assert "1 added, 1 changed, 0 unchanged." in text
    assert "<del>5.0</del> <ins>2.0</ins>" in text
    assert not Job.objects.filter(name="new").exists()
    again = shown.context["again"]
    done = client.post(PAGE, again | {"apply": "1"})
    assert done.status_code == 302, done.content.decode()
    assert said(done) == ["Imported: 1 added, 1 changed, 0 unchanged."]
    assert Job.objects.get(name="new").notes == "x\ny"
    # The same once more: what was agreed to is no longer what would be done.
    stale = client.post(PAGE, again | {"apply": "1"})
    assert stale.status_code == 200
    assert said(stale)[1:] == ["The jobs have changed meanwhile; look at the preview again."]


@pytest.mark.slow("2 s")
@pytest.mark.django_db
def test_the_page_tells_every_problem_and_offers_nothing(project: Project) -> None:
    client = member(project, Role.EDITOR)
    text = HEAD + "- {name: a, spider: a:B, cron: x}\r\n- {name: '<b>', spider: nonsense}\r\n"
    shown = client.post(PAGE, {"text": text, "project": project.pk, "mode": "upsert"})
    page = shown.content.decode()
    assert "2 problems in the file: nothing is imported." in page
    assert "jobs.yaml:3: jobs[0].cron: The cron expression is not valid" in page
    assert 'name="apply"' not in page
    forced = client.post(
        PAGE, {"text": text, "project": project.pk, "mode": "upsert", "apply": "1"}
    )
    assert forced.status_code == 200
    assert not Job.objects.exists()
    for body in ({}, {"mode": "x"}, {"packed": "%%%", "mode": "upsert"}, {"project": "9" * 30}):
        assert client.post(PAGE, body).status_code == 200
    large = SimpleUploadedFile("jobs.yaml", b"#" * (MAX_BYTES + 1))
    assert "The file is larger than 1024 KiB" in client.post(PAGE, {"file": large}).content.decode()


@pytest.mark.django_db
def test_the_page_is_for_editors(project: Project) -> None:
    client = member(project, Role.OPERATOR)
    assert PAGE not in client.get(LIST).content.decode()
    assert client.get(PAGE).status_code == 403
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(editor(project))
    assert strict.post(PAGE, {"text": HEAD}).status_code == 403
    assert Client().get(PAGE).status_code == 302


@pytest.mark.django_db
@pytest.mark.parametrize("kind", list(JobFileFormat))
def test_selected_jobs_are_exported(project: Project, kind: JobFileFormat) -> None:
    one, two = make_job(project=project, name="one"), make_job(project=project, name="two")
    make_job(project=project, name="three")
    client = logged_in(make_user(roles={project: Role.VIEWER}))
    chosen = {"action": f"export_{kind.value}", "_selected_action": [one.pk, two.pk]}
    response = client.post(LIST, chosen)
    assert response.headers["Content-Disposition"] == f'attachment; filename="jobs.{kind.value}"'
    names = [entry.values["name"] for entry in READ[kind](response.content, COLUMNS).entries]
    assert names == ["one", "two"]
