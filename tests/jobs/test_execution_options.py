"""With what and when a job runs: what is refused, in the form and over REST, and what is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.jobs.models import Job, Schedule
from apps.jobs.models.typed_texts import format_command
from apps.projects.models import Image, Project
from tests.access.factories import Api, make_user
from tests.jobs.factories import make_job, make_project
from tests.jobs.test_admin import LIST, form, member

LONG = "x" * 40_000
RULES = [{"on": "lost", "retries": 1}]

# Fields, the field that is refused, and what is said: the same in the form and over REST.
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "a\tb"}, "name", "control characters"),
    ({"name": "x" * 101}, "name", "100"),
    ({"spider": ""}, "spider", "Enter a spider or a command"),
    ({"command": ["python", "x.py"]}, "command", "not both"),
    ({"spider": "", "command": ["a", ""]}, "command", "Word 2: it must not be empty"),
    ({"spider": "", "command": ["x" * 9000]}, "command", "Word 1: longer than 8192"),
    ({"spider": "", "command": ["x"] * 201}, "command", "201 words are given, at most 200"),
    ({"environment": {"1A": "x"}}, "environment", "“1A” cannot be the name of a variable"),
    ({"environment": {"A-B": "x"}}, "environment", "“A-B” cannot be the name"),
    ({"environment": {"ÄB": "x"}}, "environment", "cannot be the name"),
    ({"environment": {"CRAWLYARD_RUN": "1"}}, "environment", "CRAWLYARD_RUN is reserved"),
    ({"environment": {"BROKER_URL": "x"}}, "environment", "BROKER_URL is reserved"),
    ({"environment": {"PYTHONPATH": "x"}}, "environment", "PYTHONPATH is reserved"),
    ({"environment": {"A": LONG}}, "environment", "A: longer than 32768 characters"),
    (
        {"environment": {f"A{number}": "x" * 30_000 for number in range(5)}},
        "environment",
        "All together longer than 131072",
    ),
    ({"environment": {f"A{number}": "x" for number in range(201)}}, "environment", "at most 200"),
    ({"secrets": {"A B": "s3cret"}}, "secrets", "“A B” cannot be the name of a variable"),
    ({"secrets": {"CRAWLYARD_RUN_TOKEN": "s3cret"}}, "secrets", "is reserved"),
    ({"secrets": {"A": "s3cret" + LONG}}, "secrets", "A: longer than"),
    (
        {"secrets": {"A": "s3cret"}, "environment": {"A": "x"}},
        "environment",
        "A is already a secret",
    ),
    ({"host_labels": {"a b": "x"}}, "host_labels", "cannot be the name of a label"),
    ({"host_labels": {"zone": "e u"}}, "host_labels", "cannot be the value of a label"),
    (
        {"host_labels": {f"a{n}": "x" for n in range(21)}},
        "host_labels",
        "21 labels are given, at most 20",
    ),
    ({"cron": "* * * *"}, "cron", "The cron expression is not valid: it must have five fields"),
    ({"cron": "61 * * * *"}, "cron", "The cron expression is not valid: minute “61”"),
    ({"cron": "@daily"}, "cron", "The cron expression is not valid"),
    ({"cron": "0 0 31 2 *"}, "cron", "never fires"),
    ({"cron": "* * * * * *"}, "cron", "The cron expression is not valid"),
    ({"time_zone": "Mars/Olympus"}, "time_zone", "is not a time zone"),
    ({"time_zone": "../../etc/passwd"}, "time_zone", "is not a time zone"),
    ({"overlap": "sometimes"}, "overlap", "sometimes"),
    ({"misfire": "never"}, "misfire", "never"),
    ({"priority": 101}, "priority", "100"),
    ({"priority": -101}, "priority", "-100"),
    ({"cpu_limit": 0}, "cpu_limit", "0.01"),
    ({"cpu_limit": 257}, "cpu_limit", "256"),
    ({"memory_limit_bytes": 1024}, "memory_limit_bytes", "16777216"),
    ({"memory_limit_bytes": 2**50}, "memory_limit_bytes", "1099511627776"),
    ({"max_run_seconds": 0}, "max_run_seconds", "1"),
    ({"max_run_seconds": 10**9}, "max_run_seconds", "31622400"),
    ({"retry_rules": {"on": "lost"}}, "retry_rules", "Enter a JSON list of rules"),
    ({"retry_rules": [{"on": "lost"}]}, "retry_rules", "retries"),
    ({"retry_rules": [*RULES, {"on": "bored", "retries": 1}]}, "retry_rules", "ule 2"),
    ({"tags": ["x" * 41]}, "tags", "1 to 40 characters"),
    ({"tags": ['a"b']}, "tags", "cannot be a tag"),
    ({"tags": [f"t{number}" for number in range(21)]}, "tags", "21 tags are given, at most 20"),
    ({"notes": "x" * 10_001}, "notes", "10000"),
    ({"speed": 1_000_001}, "speed", "1000000"),
]
# Only REST can say these: a form has texts.
BAD_REST: list[tuple[dict[str, Any], str, str]] = [
    ({"spider": "", "command": "python x.py"}, "command", "Enter a list of texts"),
    ({"spider": "", "command": ["a", 1]}, "command", "Word 2: 1 is not a text"),
    ({"spider": "", "command": ["a\x00"]}, "command", "cannot be stored"),
    ({"environment": ["A=1"]}, "environment", "Enter an object of texts"),
    ({"environment": {"A": 1}}, "environment", "A: the value must be a text"),
    ({"environment": {"A": None}}, "environment", "A: the value must be a text"),
    ({"environment": {"A": "\x00"}}, "environment", "A: a character that cannot be stored"),
    ({"environment": {"": "x"}}, "environment", "cannot be the name"),
    ({"environment": {"A\n": "x"}}, "environment", "cannot be the name"),
    ({"secrets": "A=s3cret"}, "secrets", "Enter an object of texts"),
    ({"secrets": {"A": 7}}, "secrets", "A: the value must be a text"),
    ({"host_labels": ["zone"]}, "host_labels", "Enter an object of texts"),
    ({"host_labels": {"zone": 1}}, "host_labels", "cannot be the value"),
    ({"tags": "news"}, "tags", "Enter a list of words"),
    ({"tags": ["a b"]}, "tags", "cannot be a tag"),
    ({"tags": ["a", "a"]}, "tags", "a occurs twice"),
    ({"tags": [1]}, "tags", "cannot be a tag"),
    ({"cpu_limit": "nan"}, "cpu_limit", "A valid number"),
    ({"image": 10**12}, "image", "does not exist"),
    ({"image": "latest"}, "image", "Incorrect type"),
    ({"cron": 5}, "cron", "five fields"),
]
# Only the form can be typed into like this.
BAD_FORM: list[tuple[dict[str, str], str, str]] = [
    ({"spider": "", "command": 'python "x.py'}, "command", "A quotation mark is not closed"),
    ({"spider": "", "command": "python x\\"}, "command", "escapes nothing"),
    ({"environment": "A=1\nB"}, "environment", "Line 2: “=” is missing"),
    ({"environment": "A=1 B='x\nC=2"}, "environment", "Line 1: a quotation mark is not closed"),
    ({"environment": "A=1\n\nA=2"}, "environment", "Line 3: A occurs twice"),
    ({"environment": '{"A": 1}'}, "environment", "A: the value must be a text"),
    ({"environment": '{"A": "1"'}, "environment", "Line 1, column 10"),
    ({"environment": "[1]"}, "environment", "“=” is missing"),
    ({"secrets": "A=1\ns3cret"}, "secrets", "Line 2 has no “=”"),
    ({"secrets": "A=1\nA=s3cret"}, "secrets", "Line 2: A occurs twice"),
    ({"memory_limit_bytes": "much"}, "memory_limit_bytes", "Enter an amount such as"),
    ({"memory_limit_bytes": "-512"}, "memory_limit_bytes", "Enter an amount such as"),
    ({"memory_limit_bytes": "1 B"}, "memory_limit_bytes", "16777216"),
    ({"retry_rules": '[{"on": }]'}, "retry_rules", "Line 1, column 9"),
    ({"retry_rules": "{}"}, "retry_rules", "Enter a JSON list of rules"),
    ({"time_zone": ""}, "time_zone", "required"),
    ({"image": "99999999"}, "image", "not one of the available choices"),
    ({"image": "9" * 40}, "image", "not one of the available choices"),
]


@pytest.fixture
def project() -> Project:
    return make_project()


def make_image(project: Project, **fields: Any) -> Image:
    values = {
        "name": "crawlers/news",
        "tag": "1",
        "digest": "sha256:" + "ab" * 32,
        "size_bytes": 50 * 1024**2,
        "created_at": timezone.now(),
    }
    return Image.objects.create(project=project, **(values | fields))


def as_form(fields: dict[str, Any]) -> dict[str, Any]:
    """As a browser sends them."""
    typed = {}
    for name, value in fields.items():
        if name == "command":
            typed[name] = format_command(value)
        elif name == "tags":
            typed[name] = " ".join(value)
        elif name == "memory_limit_bytes":
            typed[name] = f"{value} B"
        elif isinstance(value, dict | list):
            typed[name] = json.dumps(value)
        else:
            typed[name] = str(value)
    return typed


def body(project: Project, **fields: Any) -> dict[str, Any]:
    return {"project": project.pk, "name": "pages", "spider": "spiders:Pages"} | fields


@pytest.mark.slow("15 s")
@pytest.mark.django_db
@pytest.mark.covers("S1.3", "S1.12", "S1.13")
@pytest.mark.parametrize(("fields", "name", "text"), [*BAD, *BAD_REST], ids=lambda x: str(x)[:60])
def test_bad_input_is_refused_by_field_over_rest(
    project: Project, fields: dict[str, Any], name: str, text: str
) -> None:
    api = Api(make_user(roles={project: Role.EDITOR}))
    response = api.post("jobs", body(project, **fields))
    assert response.status_code == 400, response.content
    assert list(response.json()["fields"]) == [name], response.content
    assert text in str(response.json()["fields"]), response.content
    assert "s3cret" not in response.content.decode()
    assert not Job.objects.exists()
    job = make_job(project=project, name="other")
    assert api.patch(f"jobs/{job.pk}", fields).status_code == 400
    assert Job.objects.get().name == "other"


@pytest.mark.slow("60 s")
@pytest.mark.django_db
@pytest.mark.covers("S1.3", "S1.12")
@pytest.mark.parametrize(
    ("fields", "name", "text"),
    [*((as_form(fields), name, text) for fields, name, text in BAD), *BAD_FORM],
    ids=lambda x: str(x)[:60],
)
def test_bad_input_is_refused_by_field_in_the_form(
    project: Project, fields: dict[str, Any], name: str, text: str
) -> None:
    response = member(project, Role.EDITOR).post(f"{LIST}add/", form(project, **fields))
    assert response.status_code == 200
    errors = response.context["adminform"].form.errors
    assert list(errors) == [name], errors
    assert text in " ".join(errors[name])
    if name == "secrets":
        assert "s3cret" not in response.content.decode()
    assert not Job.objects.exists()


FULL: dict[str, Any] = {
    "spider": "",
    "command": ["python", "crawl it.py", "--name=O'Hara"],
    "environment": {"DEPTH": "3", "TITLE": "two words", "EMPTY": "", "QUOTE": 'it\'s "so"'},
    "secrets": {"TOKEN": "s3cret value", "KEY": "x=y"},
    "cron": "0 6 * * 1-5",
    "time_zone": "Asia/Shanghai",
    "overlap": "queue",
    "misfire": "all",
    "priority": -5,
    "cpu_limit": 1.5,
    "memory_limit_bytes": 512 * 1024**2,
    "max_run_seconds": 3600,
    "host_labels": {"zone": "eu-1", "disk": ""},
    "retry_rules": [{"on": "failed", "codes": [137], "retries": 3, "delay_seconds": 60}],
    "tags": ["news", "数据"],
    "notes": "two\nlines",
}


def check_full(job: Job) -> None:
    for name, value in FULL.items():
        if name != "secrets":
            assert getattr(job, name) == value, name
    assert job.secret_environment() == FULL["secrets"]


@pytest.mark.django_db
@pytest.mark.covers("S1.3", "S1.13")
def test_every_field_is_kept_over_rest(project: Project) -> None:
    image = make_image(project)
    api = Api(make_user(roles={project: Role.EDITOR}))
    made = api.post("jobs", body(project, image=image.pk, **FULL))
    assert made.status_code == 201, made.content
    check_full(Job.objects.get())
    shown = made.json()
    assert (shown["image"], shown["image_reference"]) == (image.pk, "crawlers/news:1")
    assert shown["secret_names"] == ["KEY", "TOKEN"]
    assert "secrets" not in shown
    assert "s3cret" not in api.get(f"jobs/{shown['id']}").content.decode()
    for name in set(FULL) - {"secrets"}:
        assert shown[name] == FULL[name], name


@pytest.mark.slow("2 s")
@pytest.mark.django_db
@pytest.mark.covers("S1.3", "S1.13")
def test_every_field_is_kept_by_the_form_and_shown_back(project: Project) -> None:
    image = make_image(project)
    client = member(project, Role.EDITOR)
    typed = as_form(FULL) | {
        "image": str(image.pk),
        "environment": "DEPTH=3 TITLE='two words'\r\nEMPTY=\r\n" + 'QUOTE="it\'s "\'"so"\'',
        "secrets": "TOKEN=s3cret value\r\nKEY=x=y\r\n",
        "memory_limit_bytes": "512",
        "host_labels": "zone=eu-1\ndisk=",
        "tags": "news, 数据",
        "notes": "two\r\nlines",
    }
    response = client.post(f"{LIST}add/", form(project, **typed))
    assert response.status_code == 302, response.context["adminform"].form.errors
    job = Job.objects.get()
    check_full(job)
    assert job.image == image
    page = client.get(f"{LIST}{job.pk}/change/")
    shown = page.context["adminform"].form
    text = page.content.decode()
    assert "python &#x27;crawl it.py&#x27;" in text
    assert "512 MiB" in text
    assert "s3cret" not in text
    assert '<option value="Asia/Shanghai">' in text
    # What is shown is what is read: saving it unchanged changes nothing.
    again = {
        bound.name: "" if bound.value() is None else bound.value()
        for bound in shown
        if bound.name not in ("secrets", "cookies")
    }
    again |= {name: "on" for name, value in again.items() if value is True}
    again = {name: value for name, value in again.items() if value is not False}
    again |= {"links-TOTAL_FORMS": "0", "links-INITIAL_FORMS": "0"}
    records = AuditRecord.objects.count()
    saved = client.post(f"{LIST}{job.pk}/change/", again)
    assert saved.status_code == 302, saved.context["adminform"].form.errors
    check_full(Job.objects.get())
    assert AuditRecord.objects.count() == records


@pytest.mark.slow("1 s")
@pytest.mark.django_db
def test_secrets_are_laid_over_the_stored_ones_over_rest(project: Project) -> None:
    api = Api(make_user(roles={project: Role.EDITOR}))
    pk = api.post("jobs", body(project, secrets={"A": "s3cret-a", "B": "s3cret-b"})).json()["id"]

    def change(**fields: Any) -> list[str]:
        answer = api.patch(f"jobs/{pk}", fields)
        assert answer.status_code == 200, answer.content
        return list(answer.json()["secret_names"])

    assert change(speed=2) == ["A", "B"]
    assert change(secrets={}) == ["A", "B"]
    assert change(secrets={"C": "s3cret-c", "A": None}) == ["B", "C"]
    assert change(secrets={"B": "new"}) == ["B", "C"]
    assert Job.objects.get().secret_environment() == {"B": "new", "C": "s3cret-c"}
    # A name that is a secret is no plain variable at the same time, also when it comes later.
    assert api.patch(f"jobs/{pk}", {"environment": {"B": "x"}}).status_code == 400
    assert change(secrets={"B": None}, environment={"B": "x"}) == ["C"]
    assert change(secrets={"C": None}) == []
    assert Job.objects.get().secrets == ""
    for entry in AuditRecord.objects.all():
        assert "s3cret" not in f"{entry.before}{entry.after}"


@pytest.mark.slow("4 s")
@pytest.mark.django_db
def test_the_form_keeps_secrets_adds_some_and_removes_single_ones(project: Project) -> None:
    client = member(project, Role.EDITOR)
    assert client.post(f"{LIST}add/", form(project, secrets="A=1\nB=2")).status_code == 302
    address = f"{LIST}{Job.objects.get().pk}/change/"
    page = client.get(address).content.decode()
    assert 'name="secrets-remove" value="A"' in page
    for typed, left in [
        ({"speed": "3"}, {"A": "1", "B": "2"}),
        ({"secrets": "C=3"}, {"A": "1", "B": "2", "C": "3"}),
        ({"secrets-remove": ["A", "C"]}, {"B": "2"}),
        ({"secrets-remove": ["B"], "secrets": "B=new"}, {"B": "new"}),
        ({"secrets": '{"KEY": "two\\nlines"}'}, {"B": "new", "KEY": "two\nlines"}),
        ({"secrets-remove": ["B", "KEY"]}, {}),
    ]:
        assert client.post(address, form(project, **typed)).status_code == 302
        assert Job.objects.get().secret_environment() == left
    assert Job.objects.get().secrets == ""
    seen = str(list(AuditRecord.objects.values_list("before", "after")))
    assert "two" not in seen


@pytest.mark.django_db
def test_secrets_that_no_key_opens_are_neither_shown_nor_overwritten(
    project: Project, settings: Any
) -> None:
    job = make_job(project=project, secrets='{"A": "1"}')
    settings.SECRETBOX_KEYS = ["another-key-of-32-characters-or-so"]
    api = Api(make_user(roles={project: Role.EDITOR}))
    assert api.get(f"jobs/{job.pk}").json()["secret_names"] == []
    refused = api.patch(f"jobs/{job.pk}", {"secrets": {"B": "2"}})
    assert (refused.status_code, refused.json()["code"]) == (409, "secrets_unreadable")
    page = member(project, Role.EDITOR).post(
        f"{LIST}{job.pk}/change/", form(project, secrets="B=2")
    )
    assert "cannot be decrypted with the keys" in page.content.decode()


@pytest.mark.django_db
@pytest.mark.covers("S1.12")
def test_a_taken_name_is_said_of_the_name(project: Project) -> None:
    make_job(project=project, name="pages")
    text = "A job of this name already exists in the project."
    api = Api(make_user(roles={project: Role.EDITOR}))
    refused = api.post("jobs", body(project))
    assert (refused.status_code, refused.json()["fields"]) == (400, {"name": [text]})
    page = member(project, Role.EDITOR).post(f"{LIST}add/", form(project))
    assert page.context["adminform"].form.errors == {"name": [text]}
    other = make_job(project=project, name="other")
    assert api.patch(f"jobs/{other.pk}", {"name": "pages"}).json()["fields"] == {"name": [text]}
    assert api.patch(f"jobs/{other.pk}", {"name": "other"}).status_code == 200


@pytest.mark.django_db
@pytest.mark.covers("S1.3")
def test_the_schedule_follows_the_job_however_it_is_saved(project: Project) -> None:
    client = member(project, Role.EDITOR)
    assert client.post(f"{LIST}add/", form(project, cron="0 6 * * *")).status_code == 302
    job = Job.objects.get()
    planned = Schedule.objects.get(job=job)
    assert (planned.cron, planned.time_zone) == ("0 6 * * *", "UTC")
    assert planned.next_at is not None
    changed = form(project, cron="0 7 * * *", time_zone="Asia/Tokyo")
    assert client.post(f"{LIST}{job.pk}/change/", changed).status_code == 302
    planned.refresh_from_db()
    assert (planned.cron, planned.time_zone) == ("0 7 * * *", "Asia/Tokyo")
    api = Api(make_user(roles={project: Role.EDITOR}))
    assert api.patch(f"jobs/{job.pk}", {"enabled": False}).status_code == 200
    planned.refresh_from_db()
    assert planned.next_at is None
    assert api.delete(f"jobs/{job.pk}").status_code == 204
    # It can come back, and its times with it; until then there is none.
    planned.refresh_from_db()
    assert (planned.next_at, planned.periodic_task_id) == (None, None)
