"""The column *Measured* is what the tests have kept, and nothing of a test that has failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.measurements import passed
from tests.test_plugins import run_pytest
from tools.reliability_doc import FailedError, as_lines, together, told, written

HEAD = "| What is done | What must hold | Tests | Measured |\n|---|---|---|---|\n"
ROW = "| killed | all is there | [`a_kill`](../tests/jobs/test_a.py), [`b`](../tests/test_b.py) |"


def result(seconds: float = 1.0, passed: bool = True, **told: object) -> dict[str, Any]:
    whole = {"of": 0, "lost": 0, "twice": 0, "back_s": None, "note": ""} | told
    return {"passed": passed, "seconds": seconds, "measured": [whole] if told else []}


def test_the_cases_of_all_tests_of_a_row_are_added_up() -> None:
    kept = {
        "tests/jobs/test_a.py::test_a_kill[x-1]": result(10.2, of=1000, lost=0, back_s=0.4),
        "tests/jobs/test_a.py::test_a_kill[x-2]": result(11.0, of=1000, twice=3, back_s=2.06),
        "tests/test_b.py::TestAll::test_b": result(2.0, note="100 MB"),
        "tests/test_b.py::test_bb": result(500.0, of=5),
        "tests/jobs/test_b.py::test_b": result(500.0, of=5),
    }
    document = f"{HEAD}{ROW} not measured |\nand so on\n"
    measured = "3 cases in 23 s; lost 0 of 2,000, twice 3; back after 0.4 to 2.1 s; 100 MB"
    assert written(document, kept) == f"{HEAD}{ROW} {measured} |\nand so on\n"


def test_all_of_them_are_added_up() -> None:
    kept = {"tests/a.py::test_a": result(2.0, of=7, note="x"), "tests/b.py::test_b": result(1.0)}
    told_of_all = "2 cases in 3 s; lost 0 of 7, twice 0."
    assert written("All of them together: nothing\n", kept) == (
        f"All of them together: {told_of_all}\n"
    )


def test_what_was_not_measured_is_named() -> None:
    kept = {"tests/test_b.py::test_b": result(2.0)}
    measured = "1 case in 2 s; not measured: a_kill"
    assert written(f"{ROW} not measured |\n", kept) == f"{ROW} {measured} |\n"


def test_a_row_of_which_nothing_was_kept_stays_as_it_is() -> None:
    document = f"{HEAD}{ROW} not measured |\n"
    assert written(document, {"tests/test_c.py::test_a_kill": result()}) == document


def test_of_one_that_failed_nothing_is_written() -> None:
    with pytest.raises(FailedError, match=r"test_b\.py::test_b has failed"):
        written(f"{HEAD}{ROW} ok |\n", {"tests/test_b.py::test_b": result(passed=False)})


def test_one_that_counted_nothing_says_how_often_it_passed() -> None:
    assert told([result(0.5)]) == "1 case in 0 s"
    assert told([result(61.0, back_s=0.31), result(1.0)]) == "2 cases in 62 s; back after 0.3 s"


CONFTEST = """
from pathlib import Path
from tests.plugins.measurements import Keeper, measured

def pytest_configure(config):
    config.addinivalue_line("markers", "fault: a fault")
    config.pluginmanager.register(Keeper(Path("faults.jsonl")))
"""
TESTS = """
import pytest

@pytest.mark.fault
@pytest.mark.parametrize("where", ["router.sent=kill@3"])
def test_kill(where, measured):
    measured(of=60, lost=1, back_s=0.5)

@pytest.mark.fault
def test_bad(measured):
    measured(of=2)
    raise ValueError

@pytest.mark.fault
def test_skipped():
    pytest.skip("no server")

def test_no_fault(measured):
    measured(of=2)
"""
KILL, BAD = "test_sample.py::test_kill[router.sent=kill@3]", "test_sample.py::test_bad"


@pytest.mark.slow("2 s")
def test_a_run_keeps_what_its_tests_of_faults_have_measured(tmp_path: Path) -> None:
    kept = tmp_path / "faults.jsonl"
    before = [{"test": name, "passed": True} for name in ("other", BAD)]
    kept.write_text("".join(json.dumps(line) + "\n" for line in before))
    (tmp_path / "conftest.py").write_text(CONFTEST)
    result = run_pytest(tmp_path, TESTS)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout
    found = together(tmp_path / "none.json", kept)
    assert set(found) == {"other", BAD, KILL}
    assert found[KILL]["passed"]
    assert found[KILL]["measured"] == [{"of": 60, "lost": 1, "twice": 0, "back_s": 0.5, "note": ""}]
    assert not found[BAD]["passed"]
    assert passed(kept) == {"other", KILL}
    assert passed(tmp_path / "none.jsonl") == set()


def test_what_was_measured_elsewhere_stays_until_it_is_measured_again(tmp_path: Path) -> None:
    figures, kept = tmp_path / "faults.json", tmp_path / "faults.jsonl"
    figures.write_text(as_lines({"b": result(2.0), "a": result(1.0, passed=False)}))
    assert len(figures.read_text().splitlines()) == 4
    again = [result(seconds) | {"test": "a"} for seconds in (7.0, 8.0)]
    kept.write_text("".join(json.dumps(line) + "\n" for line in again))
    known = together(figures, kept)
    assert list(known) == ["a", "b"]
    assert known == {"a": result(8.0), "b": result(2.0)}


RESUMED = """
from pathlib import Path
from tests.plugins import measurements

measurements.KEPT = Path("faults.jsonl")
pytest_addoption = measurements.pytest_addoption
pytest_collection_modifyitems = measurements.pytest_collection_modifyitems
"""


@pytest.mark.slow("1 s")
def test_a_run_goes_on_with_what_has_not_passed(tmp_path: Path) -> None:
    lines = [{"test": KILL, "passed": False}, {"test": KILL, "passed": True}]
    lines.append({"test": BAD, "passed": False})
    (tmp_path / "faults.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "conftest.py").write_text(CONFTEST + RESUMED)
    result = run_pytest(tmp_path, TESTS, PYTEST_ADDOPTS="--resume --collect-only -q")
    assert "3/4 tests collected (1 deselected)" in result.stdout
    assert "test_kill" not in result.stdout
