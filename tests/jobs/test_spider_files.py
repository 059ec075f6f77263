"""A mistyped spider is refused when its job is saved, where this process sees the spiders."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import override_settings

from apps.access.states import Role
from apps.jobs.models import Job
from apps.jobs.runners.spider_files import classes_in
from tests.jobs.factories import make_job, make_project
from tests.jobs.test_admin import LIST, form
from tests.jobs.test_admin import member as browser
from tests.jobs.test_api import member
from tests.projects.build_factories import make_image

pytestmark = pytest.mark.django_db


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "books.py").write_text(
        "from yardspider import Spider\n\nclass Books(Spider): ...\n"
    )
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "news.py").write_text("class News: ...\n")
    (tmp_path / "broken.py").write_text("class (:\n")
    (tmp_path / "notes.txt").touch()
    return tmp_path


@pytest.mark.slow("7 s")
@pytest.mark.parametrize(
    ("spider", "error"),
    [
        ("boks:Books", "SPIDERS_DIR has no module boks. Did you mean books?"),
        ("zzz:Books", "SPIDERS_DIR has no module zzz. It has: books, broken, shop."),
        ("books:Boks", "Module books has no class Boks. Did you mean Books?"),
        ("shop.news:Newz", "Module shop.news has no class Newz. Did you mean News?"),
        ("books:Books", ""),
        ("shop.news:News", ""),
        ("shop.more:More", ""),
        ("broken:Anything", ""),
        ("yardspider.spiders:SiteSpider", ""),
    ],
)
def test_a_spider_that_is_not_there_is_refused_with_similar_names(
    folder: Path, spider: str, error: str
) -> None:
    project = make_project()
    with override_settings(SPIDERS_DIR=folder):
        made = member(project, Role.EDITOR).post(
            "jobs", {"project": project.pk, "name": "a", "spider": spider}
        )
        page = browser(project, Role.EDITOR).post(
            f"{LIST}add/", form(project, name="b", spider=spider)
        )
    assert made.json().get("fields", {}) == ({"spider": [error]} if error else {})
    assert (made.status_code, page.status_code) == ((400, 200) if error else (201, 302))
    assert Job.objects.count() == (0 if error else 2)
    if error:
        assert error in page.content.decode()


def test_nothing_is_judged_that_this_process_cannot_see(folder: Path, tmp_path: Path) -> None:
    project = make_project()
    editor = member(project, Role.EDITOR)
    job = make_job(project=project, spider="gone:Gone")
    image = make_image(project=project)
    with override_settings(SPIDERS_DIR=folder):
        # Its file went after the job was saved: other fields may still be changed.
        assert editor.patch(f"jobs/{job.pk}", {"enabled": False}).status_code == 200
        other = {"spider": "zzz:Zzz", "image": image.pk}
        assert editor.patch(f"jobs/{job.pk}", other).status_code == 200
    with override_settings(SPIDERS_DIR=tmp_path / "nowhere"):
        other = {"spider": "yyy:Yyy", "image": None}
        assert editor.patch(f"jobs/{job.pk}", other).status_code == 200


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from a import *", None),
        ("def __getattr__(name): ...", None),
        ("class A: ...\nB = A\nimport c.d as e", ["A", "B", "e"]),
        (
            "try:\n    class A: ...\nexcept E:\n    B = 1\nelse:\n    from x import y",
            ["A", "B", "y"],
        ),
    ],
)
def test_every_name_that_a_module_binds_is_known(
    tmp_path: Path, source: str, names: list[str] | None
) -> None:
    file = tmp_path / "module.py"
    file.write_text(source)
    found = classes_in(file)
    assert (None if found is None else sorted(found)) == names
