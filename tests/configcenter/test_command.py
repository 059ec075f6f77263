"""manage.py config: messages, exit codes, and lossless export."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from apps.access.models import AuditRecord
from apps.configcenter.models import Activation, ConfigVersion
from apps.configcenter.services import activate
from apps.projects.models import Project
from tests.access.factories import make_project
from tests.configcenter.factories import KIND, NOW, save

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project(slug="shop")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "limits.json"


def run(*arguments: Any) -> str:
    out = io.StringIO()
    call_command("config", *map(str, arguments), stdout=out, stderr=out)
    return out.getvalue()


def refused(*arguments: Any) -> tuple[int, str]:
    with pytest.raises(CommandError) as error:
        run(*arguments)
    return error.value.returncode, str(error.value)


def write(file: Path, **data: Any) -> Path:
    file.write_text(json.dumps(data))
    return file


def test_a_file_is_applied_exported_and_applied_again(project: Project, file: Path) -> None:
    write(file, limit=3, zz={"名": "值"})
    said = run("apply", KIND, file, "--project", "shop", "--note", "first")
    assert said.splitlines() == [
        "+ limit: 3",
        '+ zz: {"名": "值"}',
        "sample of shop: v1 saved",
        "sample of shop: v1 is active",
    ]
    version = ConfigVersion.objects.get()
    assert (version.note, version.author) == ("first", None)
    assert version.author_label.endswith("(manage.py config)")
    assert AuditRecord.objects.filter(action="configcenter.activate").count() == 1
    exported = file.with_suffix(".out")
    exported.write_text(run("export", KIND, "--project", project.pk))
    assert list(json.loads(exported.read_text())) == ["limit", "zz"]
    said = run("apply", KIND, exported, "--project", "shop")
    assert said.splitlines() == [
        "sample of shop: v1 holds the same already",
        "sample of shop: v1 is active already",
    ]
    assert ConfigVersion.objects.count() == Activation.objects.count() == 1


def test_a_dry_run_changes_nothing(project: Project, file: Path) -> None:
    save(project, 1)
    said = run("apply", KIND, write(file, limit=0), "--project", "shop", "--dry-run")
    assert said.splitlines() == [
        "warning: limit: nothing will go through",
        "~ limit: 1 -> 0",
        "sample of shop: would be v2; nothing was saved",
    ]
    said = run("apply", KIND, write(file, limit=1), "--project", "shop", "--dry-run")
    assert said == "sample of shop: no change; nothing was saved\n"
    assert ConfigVersion.objects.count() == 1
    assert not Activation.objects.exists()


def test_saving_alone_activates_nothing(project: Project, file: Path) -> None:
    said = run("apply", KIND, write(file, limit=3), "--project", "shop", "--no-activate")
    assert said.splitlines()[-1] == "sample of shop: v1 saved"
    assert not Activation.objects.exists()


def test_a_file_from_standard_input(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.TextIOWrapper(io.BytesIO(b'{"limit": 9}'))
    monkeypatch.setattr("sys.stdin", raw)
    run("apply", KIND, "-", "--project", "shop")
    assert ConfigVersion.objects.get().data == {"limit": 9}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "limits.json: line 1, column 2: not JSON"),
        (b'{"limit": -4}', "limit: -4 is less than nothing"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b"[1]", "a configuration is a mapping"),
        (b"[" * 200_000, "nested too deep"),
    ],
)
def test_a_bad_file_ends_with_status_2_and_says_where(
    project: Project, file: Path, content: bytes, told: str
) -> None:
    file.write_bytes(content)
    for more in ((), ("--dry-run",)):
        status, text = refused("apply", KIND, file, "--project", "shop", *more)
        assert status == 2
        assert told in text
    assert not ConfigVersion.objects.exists()


def test_wrong_arguments_end_with_status_2(project: Project, file: Path) -> None:
    write(file, limit=1)
    shop = ("--project", "shop")
    assert refused("apply", KIND, file, "--project", "none")[1].endswith("no project 'none'")
    assert refused("apply", KIND, file, "--project", "shpo")[1].endswith("; is shop meant?")
    status, text = refused("apply", "nothing", file, *shop)
    assert status == 2
    assert text.startswith("there is no kind 'nothing'; there are: ")
    assert KIND in text
    assert refused("apply", KIND, file.with_name("missing"), *shop)[0] == 2
    assert refused("apply", KIND, file.parent, *shop)[0] == 2
    assert refused("export", KIND, *shop) == (2, "sample of shop: there is no version")
    save(project, 1)
    assert refused("activate", KIND, 7, *shop) == (2, "there is no v7; the newest is v1")
    assert refused("list", "--versions")[0] == 2
    for number in ("0", "-1", "x", "9" * 12):
        refused("activate", KIND, number, *shop)
    refused("list", "--unknown")


def test_what_cannot_be_done_now_ends_with_status_1(project: Project) -> None:
    save(project, 1)
    shop = ("--project", "shop")
    assert refused("revert", KIND, *shop) == (1, "No other version was active before.")
    status, text = refused("deactivate", KIND, *shop)
    assert (status, text) == (1, "No version of this configuration is active.")
    status, text = refused("revert", KIND, "--to", 1, *shop)
    assert status == 1
    assert "never been active" in text


def test_versions_are_activated_compared_and_reverted(project: Project) -> None:
    for number in (1, 2, 3):
        save(project, number, note=f"note\n{number}")
    shop = ("--project", "shop")
    assert run("activate", KIND, 1, *shop) == "sample of shop: v1 is active\n"
    assert run("activate", KIND, 1, *shop) == "sample of shop: v1 is active already\n"
    assert run("diff", KIND, *shop) == "~ limit: 1 -> 3\n"
    assert run("diff", KIND, 2, *shop) == "~ limit: 2 -> 3\n"
    assert run("diff", KIND, 3, 2, *shop) == "~ limit: 3 -> 2\n"
    assert json.loads(run("export", KIND, *shop)) == {"limit": 1}
    assert json.loads(run("export", KIND, "--version", 2, *shop)) == {"limit": 2}
    run("activate", KIND, 3, *shop, "--note", "go")
    assert run("revert", KIND, *shop, "--note", "no") == "sample of shop: v1 is active again\n"
    assert run("revert", KIND, "--to", 3, *shop) == "sample of shop: v3 is active again\n"
    listed = run("list", KIND, *shop).rstrip("\n").split("\t")
    assert listed == [KIND, "shop", "v3 active", "v3 newest", "0 of 0 processes run it"]
    rows = run("list", KIND, "--versions", *shop).splitlines()
    assert [row.split("\t")[0] for row in rows] == ["* v3", "  v2", "  v1"]
    assert rows[0].endswith("limit 3\tnote 3")
    assert run("deactivate", KIND, *shop) == "sample of shop: no version is active\n"
    assert "none active" in run("list")
    assert json.loads(run("export", KIND, *shop)) == {"limit": 3}
    notes = Activation.objects.order_by("id").values_list("note", flat=True)
    assert list(notes) == ["", "go", "no", "", ""]


def test_a_project_may_be_called_by_a_number(project: Project) -> None:
    other = make_project(slug=str(project.pk))
    activate(version=save(other, 5), actor=None, now=NOW)
    assert json.loads(run("export", KIND, "--project", project.pk)) == {"limit": 5}
