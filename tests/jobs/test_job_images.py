"""Which images a job may have."""

from __future__ import annotations

import pytest
from django.utils import timezone

from apps.access.states import Role
from apps.jobs.models import Job
from apps.projects.models import Image, Project
from apps.projects.states import ImageSource
from tests.access.factories import Api, make_user
from tests.jobs.factories import make_job, make_project
from tests.jobs.test_admin import LIST, form, logged_in, member
from tests.jobs.test_execution_options import body, make_image


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.mark.django_db
@pytest.mark.covers("S1.3")
def test_an_image_of_another_project_is_as_good_as_none(project: Project) -> None:
    other = make_project()
    image, removed = make_image(other), make_image(project, tag="2", removed_at=timezone.now())
    user = make_user(roles={project: Role.EDITOR, other: Role.EDITOR})
    stranger = Api(make_user(roles={project: Role.EDITOR}))
    texts = set()
    for api in (Api(user), stranger):
        refused = api.post("jobs", body(project, image=image.pk))
        assert refused.status_code == 400
        texts.add(str(refused.json()["fields"]))
    assert texts == {str({"image": [f'Invalid pk "{image.pk}" - object does not exist.']})}
    gone = Api(user).post("jobs", body(project, image=removed.pk))
    assert "has been removed" in str(gone.json()["fields"]["image"])
    assert not Job.objects.exists()


@pytest.mark.slow("1 s")
@pytest.mark.django_db
def test_a_job_does_not_leave_its_images_project(project: Project) -> None:
    other = make_project()
    image = make_image(project)
    job = make_job(project=project, image=image, name="pages")
    user = make_user(roles={project: Role.EDITOR, other: Role.EDITOR})
    refused = Api(user).patch(f"jobs/{job.pk}", {"project": other.pk})
    assert refused.status_code == 400
    assert "belongs to another project" in str(refused.json()["fields"]["image"])
    page = logged_in(user).post(
        f"{LIST}{job.pk}/change/", form(other, spider="a:B", image=str(image.pk))
    )
    assert "belongs to another project" in str(page.context["adminform"].form.errors["image"])
    assert Job.objects.get().project == project
    moved = Api(user).patch(f"jobs/{job.pk}", {"project": other.pk, "image": None})
    assert moved.status_code == 200, moved.content


@pytest.mark.slow("2 s")
@pytest.mark.django_db
def test_a_job_keeps_an_image_that_was_removed_since(project: Project) -> None:
    image = make_image(project)
    job = make_job(project=project, image=image, name="pages")
    Image.objects.update(removed_at=timezone.now())
    api = Api(make_user(roles={project: Role.EDITOR}))
    assert api.patch(f"jobs/{job.pk}", {"image": image.pk, "speed": 3}).status_code == 200
    client = member(project, Role.EDITOR)
    page = client.get(f"{LIST}{job.pk}/change/").content.decode()
    assert "removed" in page
    saved = client.post(f"{LIST}{job.pk}/change/", form(project, image=str(image.pk)))
    assert saved.status_code == 302
    assert Job.objects.get().image == image


@pytest.mark.django_db
@pytest.mark.covers("S1.7")
def test_images_are_offered_in_the_order_people_look_for_them(project: Project) -> None:
    other = make_project()
    hour = timezone.timedelta(hours=1)
    now = timezone.now()
    for number in (1, 2, 3):
        make_image(project, tag=str(number), created_at=now - hour * (10 - number))
    for number in range(22):
        make_image(project, name="reg/spiders", tag=f"v{number:02}", source=ImageSource.REGISTRY)
    make_image(project, name="reg/spiders", tag="latest", source=ImageSource.REGISTRY)
    make_image(project, tag="gone", removed_at=now)
    make_image(other, tag="foreign")
    page = member(project, Role.EDITOR).get(f"{LIST}add/")
    none, (group, choices) = page.context["adminform"].form.fields["image"].choices
    assert group == project.name
    labels = [label for _value, label in choices]
    assert none[1] == "none: a local process"
    assert labels[0] == "crawlers/news:3 · abababababab · 50.0\xa0MB"
    tags = [label.split(" ")[0].rpartition(":")[2] for label in labels]
    assert tags == ["3", "2", "1", "latest", *(f"v{n:02}" for n in range(21, 2, -1))]
    assert "foreign" not in page.content.decode()
