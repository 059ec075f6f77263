"""How two processes share the tests, seen from a small project of their own."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.plugins.groups import rotated
from tools.requirement_marks import ROOT

pytestmark = pytest.mark.slow("whole runs of pytest with two processes each")

SHARED = ("-n2", "--dist=loadgroup", "--no-loadscope-reorder")
# Every test writes down who ran it. The first of each process waits until both have begun: else
# one of them would have run everything before the other is ready.
CONFTEST = """
import os, pathlib, time
import pytest

FOLDER = pathlib.Path(__file__).parent

@pytest.fixture(scope="session")
def both_have_begun():
    (FOLDER / f"begun-{os.environ.get('PYTEST_XDIST_WORKER', '')}").touch()
    deadline = time.monotonic() + 60
    while len(list(FOLDER.glob("begun-*"))) < int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1)):
        assert time.monotonic() < deadline
        time.sleep(0.01)

@pytest.fixture(autouse=True)
def written_down(request, both_have_begun):
    with (FOLDER / "ran").open("a") as ran:
        ran.write(os.environ.get("PYTEST_XDIST_WORKER", "") + " " + request.node.name + "\\n")

@pytest.fixture(scope="session")
def own_rabbit():
    pass
"""
INI = "[pytest]\nmarkers =\n docker\n browser\n services\n fault\n"
HEAD = "import pytest\n"
FILES = {
    "test_a": HEAD + "def test_a_one(): pass\ndef test_a_two(): pass\n",
    "test_b": HEAD + "@pytest.mark.docker\ndef test_b_docker(): pass\n"
    "@pytest.mark.parametrize('x', ['a@b', 'c'])\ndef test_b_quick(x): assert x == 'c'\n",
    "test_c": HEAD + "def test_c_one(): pass\ndef test_c_two(): pass\ndef test_c_three(): pass\n",
    "test_d": HEAD + "@pytest.mark.fault\ndef test_d_slow(): pass\n",
    "test_e": HEAD + "@pytest.mark.docker\ndef test_e_docker(): assert False\n",
    "tests/e2e/test_f": HEAD + "def test_f_cluster(own_rabbit): pass\n",
    "test_g": HEAD + "@pytest.mark.browser\ndef test_g_browser(): pass\n",
    "tests/e2e/test_h": HEAD + "def test_h_cluster(own_rabbit): pass\n",
}


class Project:
    """A folder of tests that run under the plugin ``groups`` and no other of this project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
        (folder / "pytest.ini").write_text(INI, encoding="utf-8")
        for name, source in FILES.items():
            path = folder / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source, encoding="utf-8")

    def run(self, *arguments: str) -> str:
        """What pytest says; ``ran`` tells of this run only."""
        for path in (self.folder / "ran", *self.folder.glob("begun-*")):
            path.unlink(missing_ok=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-pno:django", "-ptests.plugins.groups", *arguments],
            cwd=self.folder,
            env={**kept, "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
        return done.stdout

    def ran(self) -> list[tuple[str, str]]:
        """(process, test) in the order in which they began."""
        lines = (self.folder / "ran").read_text(encoding="utf-8").splitlines()
        return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_groups_stay_together_and_the_longest_begin_first(project: Project) -> None:
    project.run(*SHARED)
    ran = project.ran()
    places: dict[str, set[str]] = defaultdict(set)
    for process, test in ran:
        _test, file, kind = test.split("[")[0].split("_")
        places[kind if kind in ("docker", "cluster") else file].add(process)
    assert {group: len(processes) for group, processes in places.items()} == dict.fromkeys(
        ["docker", "cluster", "a", "b", "c", "d", "g"], 1
    )
    assert {process for process, _test in ran} == {"gw0", "gw1"}
    expected = {"docker": 0, "cluster": 1, "browser": 2, "slow": 3}
    for process in ("gw0", "gw1"):
        kinds = [test.split("[")[0].split("_")[2] for who, test in ran if who == process]
        ranks = [expected.get(kind, 4) for kind in kinds]
        assert ranks == sorted(ranks), ran


def test_each_turn_begins_with_another_file(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rotated([f"test_{name}.py" for name in "abcdefgh"], 1)[0]
    monkeypatch.setenv("CRAWLYARD_TEST_TURN", "1")
    project.run("-n1", *SHARED[1:])
    _process, test = project.ran()[0]
    assert first.startswith(test[: len("test_a")])


@pytest.mark.parametrize("count", [1, 7, 299, 640])
def test_all_files_come_first_in_turn(count: int) -> None:
    files = [f"tests/test_{number}.py" for number in range(count)]
    part = math.ceil(count / 10)
    for turn in (0, 8_111):
        seen = {file for n in range(11) for file in rotated(files, turn + n)[:part]}
        assert seen == set(files)
        assert {rotated(files, turn + n)[0] for n in range(count)} == set(files)


def test_what_failed_is_found_again(project: Project) -> None:
    said = project.run(*SHARED)
    assert "sched" not in said
    assert "FAILED test_b.py::test_b_quick[a@b] - " in said
    assert "FAILED test_e.py::test_e_docker - " in said
    named = said.partition("slowest files")[2]
    assert all(f"s  {name}.py" in named for name in FILES)
    assert "processes: gw0 " in named
    assert ", gw1 " in named
    project.run("--last-failed", "--last-failed-no-failures", "none")
    assert {test for _process, test in project.ran()} == {"test_b_quick[a@b]", "test_e_docker"}


def test_one_process_keeps_the_order_of_the_files(project: Project) -> None:
    project.run()
    assert "".join(test[len("test_")] for _process, test in project.ran()) == "aabbbcccdegfh"


def test_a_process_that_dies_costs_one_test(project: Project) -> None:
    (project.folder / "test_i.py").write_text(
        "import os\ndef test_i_before(): pass\ndef test_i_dies(): os._exit(3)\n"
        "def test_i_after(): pass\n",
        encoding="utf-8",
    )
    said = project.run(*SHARED)
    assert "FAILED test_i.py::test_i_dies" in said
    assert " 3 failed, 13 passed in " in said
    began = [test for _process, test in project.ran()]
    assert len(began) == len(set(began)) == 16
