"""Routing rules as configuration: the seed's files are imported as versions and exported again."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.core.management import call_command
from django.core.management.base import CommandError

from apps.configcenter.engine.diffs import ChangeKind
from apps.configcenter.engine.kinds import find_kind
from apps.configcenter.models import ConfigVersion
from apps.projects.models import Project
from apps.routing.engine.files.data import from_data, to_data
from apps.routing.engine.files.reader import read_rules
from apps.routing.services.configuration import RoutingKind
from tests.access.factories import make_project
from tools.requirement_marks import ROOT

SEED = ROOT / "tests" / "routing" / "seed"
# Classes of the seed's own project, which a plug-in provides.
FOREIGN = 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with the seed's files, without converters of a plug-in."""
    copy = tmp_path / "rules"
    shutil.copytree(SEED, copy)
    main = copy / "main.yaml"
    lines = main.read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if "'ic." not in line]
    assert len(lines) - len(kept) == FOREIGN
    main.write_text("".join(kept), "utf-8")
    return copy


@pytest.fixture
def project() -> Project:
    return make_project(slug="ic")


@pytest.fixture(autouse=True)
def values(settings: LazySettings) -> None:
    """Values of the placeholders in the seed's files."""
    settings.ROUTING_PLACEHOLDERS = {"kafka_servers": "kafka:9092", "redis_url": "redis://r"}


def config(*arguments: Any) -> str:
    out = io.StringIO()
    call_command("config", *map(str, arguments), stdout=out, stderr=out)
    return out.getvalue()


def refused(*arguments: Any) -> str:
    with pytest.raises(CommandError) as error:
        config(*arguments)
    assert error.value.returncode == 2
    return str(error.value)


def change(folder: Path, before: str, after: str) -> None:
    main = folder / "main.yaml"
    text = main.read_text("utf-8")
    assert before in text
    main.write_text(text.replace(before, after), "utf-8")


@pytest.mark.django_db
@pytest.mark.covers("S2.10", "S2.15")
def test_the_seeds_files_become_a_version_and_come_back(
    project: Project, folder: Path, tmp_path: Path
) -> None:
    said = config("apply", "routing", folder / "main.yaml", "--project", "ic")
    assert "routing of ic: v1 is active" in said
    version = ConfigVersion.objects.get()
    assert version.summary == "1 inbound, 4 outbounds"
    assert [entry["name"] for entry in version.data["outbound"]][:3] == ["o_a_1", "o_b_2", "o_b_1"]
    # Placeholders are kept: every viewer can read a version, so it must hold no password.
    assert "{redis_url}" in {entry["init"]["url"] for entry in version.data["outbound"]}
    exported = tmp_path / "exported.yaml"
    exported.write_text(config("export", "routing", "--project", "ic"), "utf-8")
    assert "holds the same already" in config(
        "apply", "routing", exported, "--project", "ic", "--no-activate"
    )
    assert ConfigVersion.objects.count() == 1


@pytest.mark.django_db
def test_warnings_of_included_files_name_file_and_line(project: Project, folder: Path) -> None:
    included = folder / "config.d" / "sub_config_b.yaml"
    text = included.read_text("utf-8")
    line = 1 + text[: text.index("- name: o_b_1")].count("\n")
    included.write_text(f"{text}    task_params: [task_uuid]\n", "utf-8")
    said = config("apply", "routing", folder / "main.yaml", "--project", "ic").splitlines()
    (warning,) = [line for line in said if "'task_uuid'" in line]
    where = f"config.d/sub_config_b.yaml:{line}: outbound[2]"
    assert warning.startswith(f"warning: {where}: 'task_uuid' is a key of the router")


@pytest.mark.django_db
def test_a_selector_with_a_misspelled_key_is_warned_of(project: Project, folder: Path) -> None:
    # A spelling mistake in the seed.
    said = config("apply", "routing", folder / "main.yaml", "--project", "ic")
    assert "the router sets no key task_parms; is task_params meant?" in said
    # A string, and a key that an outbound sends, are not reported.
    rules = {
        "version": 1,
        "needs": 1,
        "project": "ic",
        "outbound": [
            {
                "name": "o",
                "class": "redis_queue.RedisListOutbound",
                "selector": ["a == 'task_parms'", "priorite == 1"],
                "init": {"url": "redis://r", "key": "k"},
                "task_params": ["priorite"],
            }
        ],
    }
    assert [each.text for each in RoutingKind().check(rules)] == []


@pytest.mark.django_db
def test_a_dry_run_says_what_would_change_and_saves_nothing(project: Project, folder: Path) -> None:
    config("apply", "routing", folder / "main.yaml", "--project", "ic")
    change(folder, "retry_limits: 5", "retry_limits: 7")
    change(folder, 'key: "captcha_spider"', 'key: "other"')
    said = config("apply", "routing", folder / "main.yaml", "--project", "ic", "--dry-run")
    # The seed itself names a key that the router sets, misspells one, and names a port that must
    # be allowed first.
    warning, misspelled, port, *lines = said.splitlines()
    assert warning.startswith("warning: ")
    assert "'outbound' is a key of the router" in warning
    assert "task_parms" in misspelled
    assert port.startswith("warning: ")
    assert "ROUTING_SERVERS" in port
    assert lines == [
        "~ outbound zongju_captcha_ts3: retry_limits: 5 -> 7",
        '~ outbound zongju_captcha_ts3: init.key: "captcha_spider" -> "other"',
        "routing of ic: would be v2; nothing was saved",
    ]
    assert ConfigVersion.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.covers("S2.22")
def test_what_is_wrong_is_refused_with_file_and_line(project: Project, folder: Path) -> None:
    said = refused("apply", "routing", SEED / "main.yaml", "--project", "ic")
    assert len(said.splitlines()) == FOREIGN
    assert all("main.yaml:" in line and "'ic." in line for line in said.splitlines())
    change(folder, "kafka.KafkaInbound", "kafka.KafkaInbond")
    said = refused("apply", "routing", folder / "main.yaml", "--project", "ic")
    assert "main.yaml:" in said
    assert "did you mean kafka.KafkaInbound" in said
    change(folder, "kafka.KafkaInbond", "kafka.KafkaInbound")
    change(folder, "task_result == 1000", "task_result = 1000")
    assert "use == to compare" in refused(
        "apply", "routing", folder / "main.yaml", "--project", "ic"
    )
    assert not ConfigVersion.objects.exists()


def test_it_is_registered() -> None:
    assert isinstance(find_kind("routing"), RoutingKind)


def test_passwords_are_shown_in_no_difference() -> None:
    text = """
project: p
outbound:
- {name: a, selector: x == 1, class: redis_queue.RedisListOutbound,
   init: {url: 'redis://:hunter2@redis:6379/0', key: k}}
"""
    kind = RoutingKind()
    data = kind.read(text.encode())
    changes = [
        *kind.diff({}, data),
        *kind.diff(data, kind.read(text.replace("hunter2", "hunter3").encode())),
    ]
    assert changes[0].what is ChangeKind.ADDED
    assert len(changes) == 2
    assert "hunter" not in " ".join(map(str, changes))


def test_what_a_class_refuses_is_found_in_data_too() -> None:
    rules, _problems = read_rules(
        "project: p\noutbound:\n- {name: a, class: redis_queue.RedisListOutbound, "
        "init: {url: 'redis://h:6379/0', key: k}}\n",
        None,
    )
    assert rules is not None
    data = to_data(rules)
    kind = RoutingKind()
    assert not [each for each in kind.check(data) if not each.warning]
    data["outbound"][0]["init"] = {"url": "ftp://h/", "key": "k"}
    assert from_data(data)[0] is not None
    (problem,) = [each for each in kind.check(data) if not each.warning]
    assert "url" in str(problem)
