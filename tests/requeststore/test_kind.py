"""Bizzes as configuration: from a file to what processes run."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone, translation

from apps.configcenter.engine.kinds import find_kind
from apps.configcenter.models import ConfigVersion
from apps.configcenter.services import Unreadable, save_version
from apps.requeststore.services.kind import KIND, BizKind
from apps.requeststore.services.store import RequestStore
from tests.access.factories import make_project
from tests.requeststore.factories import make_bizzes

TEXT = """\
bizzes:
  news:
    description: 新闻
    epochs:
    - splits: 4
      nodes: [default, second]
    flags:
      '7': gone
    rules:
      article:
        fields:
          title: {css: 'title::text'}
"""


def config(*arguments: Any) -> str:
    out = io.StringIO()
    call_command("config", *map(str, arguments), stdout=out, stderr=out)
    return out.getvalue()


def test_yaml_and_json_are_read_and_written() -> None:
    kind = find_kind(KIND)
    assert isinstance(kind, BizKind)
    data = kind.read(TEXT.encode())
    assert list(kind.check(data)) == []
    assert kind.read(kind.write(data).encode()) == data
    assert kind.read(json.dumps(data, ensure_ascii=False).encode()) == data
    assert kind.read(b"") == {}
    assert kind.summary(data) == "1 request group: news"
    assert (
        kind.summary({"bizzes": {str(n): {} for n in range(9)}})
        == "9 request groups: 0, 1, 2, 3, 4, 5 …"
    )
    other = kind.read(TEXT.replace("4", "8").encode())
    (change,) = kind.diff(data, other)
    assert str(change) == "~ bizzes.news.epochs[0].splits: 4 -> 8"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"bizzes: [\n", "news.yaml:"),
        (b"bizzes: {}\nbizzes: {}\n", "news.yaml:2: 'bizzes' is there twice"),
        (b"- 1\n", "a mapping of names to values"),
        (b"bizzes: {a: !!python/object:x {}}\n", "tags such as"),
        (b"a: &a {}\n<<: *a\n", "merge keys"),
        (b"a: 1e999\n", "no number that JSON knows"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_what_is_no_data_is_told_with_its_line(raw: bytes, text: str) -> None:
    with pytest.raises(Unreadable) as caught:
        BizKind().read(raw, "news.yaml")
    assert text in str(caught.value)


def test_extraction_rules_are_checked_with_their_place() -> None:
    data = BizKind().read(TEXT.replace("css:", "cs:").encode())
    found = [each for each in BizKind().check(data) if not each.warning]
    assert found
    assert all(each.place.startswith("bizzes.news.rules.article.fields.title") for each in found)


def test_flaws_are_told_in_the_language_of_who_looks() -> None:
    with translation.override("zh-hans"):
        (found,) = BizKind().check({"bizzes": {"news": {"priority": 99}}})
    assert found.place == "bizzes.news.priority"
    assert found.text


@pytest.mark.covers("S4.9")
@pytest.mark.django_db
def test_a_file_is_tried_saved_and_activated(tmp_path: Path) -> None:
    project = make_project(slug="crawls")
    path = tmp_path / "bizzes.yaml"
    path.write_text(TEXT, "utf-8")
    shown = config("apply", "biz", path, "--project", "crawls", "--dry-run")
    assert '+ bizzes: {"news": ' in shown
    assert "biz of crawls: would be v1; nothing was saved" in shown
    assert not ConfigVersion.objects.exists()
    config("apply", "biz", path, "--project", "crawls", "--no-activate")
    version = ConfigVersion.objects.get()
    assert (version.configuration.project, version.summary) == (project, "1 request group: news")
    path.write_text(TEXT.replace("4", "0"), "utf-8")
    with pytest.raises(CommandError) as caught:
        config("apply", "biz", path, "--project", "crawls", "--dry-run")
    assert "bizzes.news.epochs[0].splits" in str(caught.value)


@pytest.mark.covers("S4.14")
@pytest.mark.django_db
def test_splits_changed_in_place_are_warned_of_with_the_way_to_do_it_right() -> None:
    project = make_bizzes(news={"epochs": [{"splits": 4}]})

    def save(*epochs: dict[str, Any]) -> list[str]:
        data = {"bizzes": {"news": {"epochs": list(epochs)}}}
        now = timezone.now()
        saved = save_version(kind=KIND, project_id=project.pk, data=data, actor=None, now=now)
        return [str(each) for each in saved.warnings]

    (warning,) = save({"splits": 16})
    assert warning.startswith("bizzes.news.epochs[0]: ")
    assert "since" in warning
    soon = int(timezone.now().timestamp() * 1000) + 60_000
    assert save({"splits": 4}, {"since": soon, "splits": 16}) == []


@pytest.mark.covers("S4.10")
@pytest.mark.django_db
def test_a_file_is_in_force_without_a_restart(yard: RequestStore, tmp_path: Path) -> None:
    project = make_bizzes(news={})
    yard.setup()
    path = tmp_path / "bizzes.yaml"
    path.write_text(TEXT, "utf-8")
    config("apply", "biz", path, "--project", "crawls")
    yard.wake()
    assert yard.poll()
    assert yard.biz(project.pk, "news").settings.epochs[0].splits == 4
