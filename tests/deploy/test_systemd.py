"""systemd: the units are valid, each process has one, and each is hardened."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crawlyard.units import box
from tools.requirement_marks import ROOT

UNITS = ROOT / "deploy" / "systemd"
TEMPLATE = "crawlyard@.service"
# Its own unit: the same command as the worker, with other arguments.
BUILDS = "crawlyard-builds.service"
# What of them differs on purpose.
OF_BUILDS = {"ExecStart", "SupplementaryGroups", "EnvironmentFile"}


def section(name: str, part: str = "Service") -> dict[str, list[str]]:
    """The settings of a unit; one that is there several times has several values."""
    found: dict[str, list[str]] = {}
    inside = ""
    for line in (UNITS / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            inside = line.strip("[]")
        elif inside == part and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def instances() -> set[str]:
    """What the template is started as for each process of a box but the builds."""
    commands = {unit.argv[2] for unit in box(host="x", port=1, agents=1)}
    assert all(command.startswith("run_") for command in commands)
    return {command.removeprefix("run_") for command in commands}


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze (apt-get install systemd)"
)
def test_systemd_takes_every_unit(tmp_path: Path) -> None:
    units = tmp_path / "units"
    shutil.copytree(UNITS, units)
    for path in units.rglob("*.*"):
        if path.is_file():
            # It looks whether the program is there.
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace("/opt/crawlyard/.venv/bin/python", sys.executable))
    names = ["crawlyard.target", "crawlyard-migrate.service", BUILDS]
    names += [f"crawlyard@{name}.service" for name in sorted(instances())]
    for name in names:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", name],
            env={"PATH": os.environ["PATH"], "SYSTEMD_UNIT_PATH": f"{units}:"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stderr}"
        said = [line for line in done.stderr.splitlines() if "crawlyard" in line]
        assert said == [], name


def test_a_mistake_would_be_found(tmp_path: Path) -> None:
    """The check above can fail: a unit with an unknown setting is told of."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze (apt-get install systemd)")
    unit = tmp_path / "crawlyard-x.service"
    unit.write_text("[Service]\nExecStart=/bin/true\nTypo=yes\n")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Typo" in done.stderr


def test_every_process_has_a_unit() -> None:
    assert section(TEMPLATE)["ExecStart"] == [
        "/opt/crawlyard/.venv/bin/python /opt/crawlyard/manage.py run_%i $ARGUMENTS"
    ]
    commands = ROOT.glob("*/*/management/commands/run_*.py")
    known = {path.stem.removeprefix("run_") for path in commands}
    assert instances() <= known
    for folder in UNITS.glob("crawlyard@?*.service.d"):
        assert folder.name.removeprefix("crawlyard@").removesuffix(".service.d") in instances()
    assert "run_worker --queues celery.builds" in section(BUILDS)["ExecStart"][0]


def test_builds_differ_from_the_others_in_nothing_else() -> None:
    builds, others = section(BUILDS), section(TEMPLATE)
    differing = {key for key in builds.keys() | others if builds.get(key) != others.get(key)}
    assert differing <= OF_BUILDS


def test_they_say_that_they_are_ready_and_are_watched() -> None:
    unit = section(TEMPLATE)
    assert unit["Type"] == ["notify"]
    # Signs of life come each 5 s; the web's and the loops' checks of a container wait as long.
    assert int(unit["WatchdogSec"][0]) == 60
    assert unit["RestartPreventExitStatus"] == ["2"]
    assert section(TEMPLATE, "Unit")["PartOf"] == ["crawlyard.target"]


@pytest.mark.parametrize("name", [TEMPLATE, BUILDS])
def test_they_have_no_rights_but_those_they_need(name: str) -> None:
    unit = section(name)
    for key in (
        "NoNewPrivileges",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "RestrictSUIDSGID",
    ):
        assert unit[key] == ["yes"], key
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["CapabilityBoundingSet"] == [""]
    assert unit["User"] == ["crawlyard"]


def test_drop_ins_can_be_read() -> None:
    for path in UNITS.rglob("*.conf"):
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(path)
        assert parser.sections() == ["Service"], path
