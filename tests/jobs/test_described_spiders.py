"""Jobs of images that describe their spiders: what is offered, drawn and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import override_settings
from django.utils import timezone

from apps.access.states import Role
from apps.jobs.admin.spiders import ArgumentsFormField, TypedArguments
from apps.jobs.models import Job
from apps.jobs.runners.base import spider_program
from apps.jobs.runners.spider_files import scrapy_environment
from apps.projects.models import Image, ImageDescription, Project
from tests.access.factories import Api, make_user
from tests.jobs.factories import make_job, make_project
from tests.jobs.test_admin import LIST, form, member
from tests.jobs.test_execution_options import body, make_image


def argument(name: str, kind: str, default: Any = None, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "default": default,
        "required": False,
        "description": "",
        **fields,
    }


ARGUMENTS = [
    argument("start", "str", required=True, description="Where it <begins>."),
    argument("pages", "int", 3),
    argument("rate", "float", 0.5),
    argument("fast", "bool", False),
    argument("tags", "list", ["a"]),
    argument("extra", "dict", {}),
    argument("other", "any"),
]


def spider(name: str, arguments: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": name, "class": "", "description": "", "arguments": arguments, "settings": {}}


def describe(image: Image, kind: str = "scrapy", errors: Any = ()) -> Image:
    names = ["books", "quotes"] if kind == "scrapy" else ["shop:Books", "shop:Quotes"]
    ImageDescription.objects.create(
        image=image,
        kind=kind,
        spiders=[spider(names[0], ARGUMENTS), spider(names[1], [])],
        errors=list(errors),
        created_at=timezone.now(),
    )
    return image


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.mark.django_db
@pytest.mark.covers("SC.5")
def test_a_spider_that_the_image_lacks_cannot_be_saved(project: Project) -> None:
    image = describe(make_image(project))
    api = Api(make_user(roles={project: Role.EDITOR}))
    refused = api.post("jobs", body(project, image=image.pk, spider="boks"))
    assert refused.status_code == 400
    (text,) = refused.json()["fields"]["spider"]
    assert text == f"The image {image.reference} has no spider boks. Did you mean books?"
    given = {"start": "https://a.org/"}
    made = api.post("jobs", body(project, image=image.pk, spider="books", arguments=given))
    assert made.status_code == 201, made.content
    # Of a job that has it, other fields can be changed still.
    ImageDescription.objects.update(spiders=[])
    address = f"jobs/{made.json()['id']}"
    assert api.patch(address, {"notes": "later"}).status_code == 200
    assert api.patch(address, {"spider": "quotes"}).status_code == 400
    client = member(project, Role.EDITOR)
    page = client.post(f"{LIST}add/", form(project, image=str(image.pk), spider="boks"))
    assert "has no spider boks" in page.content.decode()
    assert Job.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.covers("SC.5")
def test_an_import_refuses_it_as_well(project: Project) -> None:
    image = describe(make_image(project))
    headers = {"mode": "upsert"}
    api = Api(make_user(roles={project: Role.EDITOR}))
    text = (
        "crawlyard_jobs: 1\njobs:\n- name: a\n  image: {}\n  spider: {}\n"
        "  arguments: {{start: x}}\n"
    )
    for name, status in (("boks", 422), ("books", 200)):
        answer = api.post(
            "jobs/import",
            {"text": text.format(image.reference, name), "project": project.pk, **headers},
        )
        assert answer.status_code == status, answer.content
    assert Job.objects.get().spider == "books"


@pytest.mark.django_db
@pytest.mark.covers("SC.5")
def test_required_arguments_are_demanded_wherever_a_job_is_saved(project: Project) -> None:
    image = describe(make_image(project))
    said = "The spider books requires the argument start."
    api = Api(make_user(roles={project: Role.EDITOR}))
    values = {"image": image.pk, "spider": "books"}
    refused = api.post("jobs", body(project, **values, arguments={"pages": 2}))
    assert refused.json()["fields"] == {"arguments": [said]}
    given = {"start": "https://a.org/"}
    made = api.post("jobs", body(project, **values, arguments=given)).json()
    assert api.patch(f"jobs/{made['id']}", {"arguments": {}}).status_code == 400
    assert api.patch(f"jobs/{made['id']}", {"notes": "later"}).status_code == 200
    text = "crawlyard_jobs: 1\njobs:\n- name: b\n  image: {}\n  spider: books\n  arguments: {}\n"
    for arguments, status in (("{}", 422), ("{start: a}", 200)):
        answer = api.post(
            "jobs/import", {"text": text.format(image.reference, arguments), "project": project.pk}
        )
        assert answer.status_code == status, answer.content
        assert (said in answer.content.decode()) is (status == 422)
    client = member(project, Role.EDITOR)
    sent = form(project, name="c", image=str(image.pk), spider="books")
    assert said in client.post(f"{LIST}add/", sent).content.decode()
    assert client.post(f"{LIST}add/", {**sent, "arguments.start": "x"}).status_code == 302
    assert Job.objects.get(name="c").arguments == {"start": "x"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "errors", "name", "known"),
    [
        ("yardspider", [], "shop:Books", True),
        ("yardspider", [], "other:Books", False),
        ("yardspider", [{"module": "other", "error": "x"}], "other:Books", True),
        ("yardspider", [{"module": "other", "error": "x"}], "shop:Boks", False),
        ("scrapy", [{"module": "shop.spiders.new", "error": "x"}], "news", True),
        ("scrapy", [], "shop:Books", False),
    ],
)
def test_modules_that_could_not_be_imported_may_have_it(
    project: Project, kind: str, errors: Any, name: str, known: bool
) -> None:
    image = describe(make_image(project), kind, errors)
    api = Api(make_user(roles={project: Role.EDITOR}))
    given = {"start": "https://a.org/"}
    answer = api.post("jobs", body(project, image=image.pk, spider=name, arguments=given))
    assert answer.status_code == (201 if known else 400), answer.content


@pytest.mark.django_db
def test_an_image_without_a_description_takes_any_name(project: Project) -> None:
    image = make_image(project)
    api = Api(make_user(roles={project: Role.EDITOR}))
    for number, name in enumerate(("books", "shop:Books", "toscrape-css", "Il cook board")):
        answer = api.post("jobs", body(project, name=f"j{number}", image=image.pk, spider=name))
        assert answer.status_code == 201, answer.content
    for name in ("-h", "a:b:c", "x\ny", " books", "books "):
        answer = api.post("jobs", body(project, name="bad", image=image.pk, spider=name))
        stored = Job.objects.filter(name="bad").first()
        assert answer.status_code == 400 or (stored and stored.spider == name.strip())
        Job.objects.filter(name="bad").delete()


@pytest.mark.django_db
@pytest.mark.covers("SC.5")
def test_a_scrapy_spider_without_an_image_needs_a_scrapy_cfg(
    project: Project, tmp_path: Path
) -> None:
    api = Api(make_user(roles={project: Role.EDITOR}))
    with override_settings(SPIDERS_DIR=tmp_path):
        refused = api.post("jobs", body(project, spider="books", command=[]))
        assert "scrapy.cfg" in str(refused.json()["fields"]["spider"])
        (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
        made = api.post("jobs", body(project, spider="books", command=[]))
        assert made.status_code == 201, made.content
    assert scrapy_environment(tmp_path) == {"SCRAPY_SETTINGS_MODULE": "shop.settings"}
    assert spider_program("py", "books") == ["py", "-m", "yardscrapy", "crawl", "books"]
    assert spider_program("py", "a:B") == ["py", "-m", "yardspider", "run", "a:B"]


@pytest.mark.django_db
@pytest.mark.covers("SC.5")
def test_the_form_offers_spiders_and_draws_their_arguments(project: Project) -> None:
    image = describe(make_image(project))
    job = make_job(
        project=project,
        image=image,
        spider="books",
        command=[],
        arguments={"start": "https://a.org/", "pages": "many", "zone": 1},
    )
    client = member(project, Role.EDITOR)
    page = client.get(f"{LIST}{job.pk}/change/").content.decode()
    for name in ("books", "quotes"):
        assert f'<option value="{name}"' in page
    assert 'name="arguments.start" type="text" value="https://a.org/"' in page
    assert "Where it &lt;begins&gt;. Required by the spider." in page
    assert 'name="arguments.rate" type="number" step="any" value="" placeholder="0.5"' in page
    # A value of another type stays as it is, in the text area.
    assert "&quot;pages&quot;: &quot;many&quot;" in page
    drawn = {
        "arguments": '{"zone": 1}',
        "arguments.start": "https://b.org/",
        "arguments.pages": "7",
        "arguments.rate": "",
        "arguments.fast": "true",
        "arguments.tags": "x, y",
        "arguments.extra": '{"a": 1}',
        "arguments.other": "plain",
    }
    saved = client.post(
        f"{LIST}{job.pk}/change/",
        form(project, name=job.name, image=str(image.pk), spider="books", **drawn),
    )
    assert saved.status_code == 302, saved.context["adminform"].form.errors
    job.refresh_from_db()
    assert job.arguments == {
        "zone": 1,
        "start": "https://b.org/",
        "pages": 7,
        "fast": True,
        "tags": ["x", "y"],
        "extra": {"a": 1},
        "other": "plain",
    }


@pytest.mark.django_db
def test_fields_follow_the_chosen_image_and_spider(project: Project) -> None:
    image = describe(make_image(project))
    foreign = describe(make_image(make_project()))
    client = member(project, Role.EDITOR)
    drawn = client.get(f"{LIST}spiders", {"image": image.pk, "spider": "books"}).json()
    assert '<option value="books" selected' in drawn["spider"]
    assert 'name="arguments.pages"' in drawn["arguments"]
    for chosen in ({"image": foreign.pk}, {"image": ""}, {"image": "x"}, {}):
        plain = client.get(f"{LIST}spiders", chosen).json()
        assert "<select" not in plain["spider"]
        assert plain["arguments"] == ""
    assert member(project, Role.VIEWER).get(f"{LIST}spiders").status_code == 403


def test_what_does_not_fit_is_named() -> None:
    field = ArgumentsFormField(required=False)
    field.widget.arguments = ARGUMENTS
    typed = {"pages": "1.5", "rate": "x", "fast": "maybe", "tags": "[1", "extra": "[]"}
    assert field.clean(TypedArguments("", {"start": "a", "pages": "1"})) == {
        "start": "a",
        "pages": 1,
    }
    with pytest.raises(ValidationError) as caught:
        field.clean(TypedArguments("", typed))
    assert caught.value.messages == [
        "pages: enter a whole number.",
        "rate: enter a number.",
        "fast: choose yes or no.",
        "tags: enter a JSON list, or texts separated by commas.",
        "extra: enter a JSON object.",
    ]
