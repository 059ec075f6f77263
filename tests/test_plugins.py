"""What tests stand on: the marks, seen from a small project of their own, stores and rows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from apps.projects.models import Project
from tests.plugins import markers, migrated_databases, stores
from tests.postgres_rerun import run_again
from tools.coverage_doc import load_reasons, marks_by_id, render
from tools.requirement_marks import ROOT, Mark, MarkError, requirement_ids, scan

PLUGINS = (
    "no:django",
    "no:cacheprovider",
    "tests.plugins.covers",
    "tests.plugins.markers",
    "tests.plugins.long_tests",
    "tests.plugins.tiers",
)
NOTHING_LISTENS = "127.0.0.1:1"


def run_pytest(
    folder: Path, source: str, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run one test file under the project's own plugins and nothing else of the project."""
    (folder / "test_sample.py").write_text(source, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    plugins = [f"-p{name}" for name in PLUGINS]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", *plugins, *options, str(folder)],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_requirement_ids_are_unique_and_without_gaps() -> None:
    ids = requirement_ids()
    assert len(ids) == len(set(ids))
    for seed, count in {"S0": 40, "S1": 59, "S2": 38, "S3": 21, "S4": 30}.items():
        numbers = sorted(int(one.split(".")[1]) for one in ids if one.startswith(f"{seed}."))
        assert numbers == list(range(1, count + 1))


def test_unknown_requirement_stops_the_run_and_is_named(tmp_path: Path) -> None:
    result = run_pytest(
        tmp_path, "import pytest\n@pytest.mark.covers('S1.20', 'S9.99')\ndef test_it(): pass\n"
    )
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_sample.py::test_it: there is no requirement 'S9.99'" in result.stderr
    assert "S1.20" not in result.stderr


TWINS = """
import pytest
@pytest.mark.parametrize("store", [pytest.param("file", marks=pytest.mark.twin), "server"])
def test_it(store): pass
"""


@pytest.mark.slow("4 s")
@pytest.mark.parametrize(
    ("environment", "passed"),
    [
        ({}, "2 passed"),
        ({"CRAWLYARD_REQUIRE": "docker,services"}, "1 passed, 1 skipped"),
        ({"CRAWLYARD_REQUIRE": "services", "CRAWLYARD_FAULTS": "full"}, "2 passed"),
    ],
    ids=["anywhere", "servers", "full"],
)
def test_twins_are_skipped_where_the_others_are_sure_to_run(
    tmp_path: Path, environment: dict[str, str], passed: str
) -> None:
    result = run_pytest(tmp_path, TWINS, **environment)
    assert result.returncode == pytest.ExitCode.OK
    # The mark is not known to the small project, which warns of it.
    assert f" {passed}, 1 warning in " in result.stdout


TIERS = """
import pytest
@pytest.mark.docker
def test_engine(): pass
@pytest.mark.slow("starts a cluster")
def test_cluster(): pass
@pytest.mark.quick
@pytest.mark.browser
def test_kept(): pass
def test_plain(): pass
"""


@pytest.mark.slow("3 s")
@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--tier", "quick"], {"test_kept", "test_plain"}),
        (["--tier", "rest"], {"test_engine", "test_cluster"}),
        ([], {"test_kept", "test_plain", "test_engine", "test_cluster"}),
    ],
    ids=["quick", "rest", "all"],
)
def test_each_test_is_in_one_tier(tmp_path: Path, options: list[str], found: set[str]) -> None:
    result = run_pytest(tmp_path, TIERS, "--collect-only", "-q", *options)
    assert set(re.findall(r"::(test_\w+)", result.stdout)) == found


@pytest.mark.slow("1 s")
def test_a_slow_test_must_say_what_it_costs(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, TIERS.replace('"starts a cluster"', ""))
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_cluster: slow() says what the test costs" in result.stderr


LATE = """
import pytest
@pytest.mark.fault
def test_slow(): pass
def test_quick(): pass
"""


@pytest.mark.slow("3 s")
@pytest.mark.parametrize(
    ("deadline", "end", "said"),
    [
        ("5", "", "1 passed, 1 skipped"),
        ("9999999999", "9999999999", "2 passed"),
        ("9999999999", "5", "2 skipped"),
    ],
    ids=["slow", "in-time", "all"],
)
def test_those_that_come_too_late_are_skipped(
    tmp_path: Path, deadline: str, end: str, said: str
) -> None:
    result = run_pytest(tmp_path, LATE, CRAWLYARD_TEST_DEADLINE=deadline, CRAWLYARD_TEST_END=end)
    assert result.returncode == pytest.ExitCode.OK
    assert f" {said}, 1 warning in " in result.stdout


LONG = """
import pytest
@pytest.mark.long("test_short")
def test_long(): pass
def test_short(): pass
"""


@pytest.mark.slow("2 s")
def test_long_ones_are_left_out_and_say_what_stands_in_for_them(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, LONG)
    assert " 1 passed, 1 skipped, 1 warning in " in result.stdout
    assert "make test-long; in short: test_short" in result.stdout
    result = run_pytest(tmp_path, LONG, CRAWLYARD_LONG="full")
    assert " 2 passed, 1 warning in " in result.stdout


@pytest.mark.slow("3 s")
def test_long_ones_that_break_something_are_among_the_faults(tmp_path: Path) -> None:
    fault = LONG.replace("@pytest.mark.long", "@pytest.mark.fault\n@pytest.mark.long")
    result = run_pytest(tmp_path, fault)
    assert " 1 passed, 1 skipped, 2 warnings in " in result.stdout
    assert "make test-faults; in short: test_short" in result.stdout
    for name in ("CRAWLYARD_FAULTS", "CRAWLYARD_LONG"):
        result = run_pytest(tmp_path, fault, **{name: "full"})
        assert " 2 passed, 2 warnings in " in result.stdout


@pytest.mark.slow("1 s")
def test_a_long_one_must_say_what_stands_in_for_it(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, LONG.replace('"test_short"', ""))
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_long: long() names what proves the same in short" in result.stderr


PARTS = """
from tests.plugins.long_tests import examples, part
def test_it():
    turns = [list(part(range(25), turn)) for turn in range(20)]
    assert turns[3] == turns[13] == [3, 13, 23]
    assert sorted(sum(turns[:10], [])) == list(range(25))
    assert [list(part("abc", turn)) for turn in range(4)] == [["a"], ["b"], ["c"], ["a"]]
    assert examples(300) == 30
"""


@pytest.mark.slow("2 s")
def test_a_tenth_is_tried_and_all_in_a_full_run(tmp_path: Path) -> None:
    assert " 1 passed in " in run_pytest(tmp_path, PARTS).stdout
    full = run_pytest(
        tmp_path,
        """
from tests.plugins.long_tests import examples, part
def test_it():
    assert list(part(range(25), 3)) == list(range(25))
    assert examples(300) == 300
""",
        CRAWLYARD_FUZZ="full",
    )
    assert " 1 passed in " in full.stdout


@pytest.mark.slow("2 s")
def test_empty_covers_mark_is_refused(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, "import pytest\n@pytest.mark.covers()\ndef test_it(): pass\n")
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_sample.py::test_it: covers() names no requirement" in result.stderr


SERVICES_TEST = "import pytest\n@pytest.mark.services\ndef test_it(): pass\n"
UNREACHABLE = {
    "CRAWLYARD_TEST_POSTGRES_URL": f"postgresql://postgres@{NOTHING_LISTENS}/postgres",
    "CRAWLYARD_TEST_REDIS_URL": f"redis://{NOTHING_LISTENS}/0",
    "CRAWLYARD_TEST_BROKER_URL": f"amqp://guest:guest@{NOTHING_LISTENS}/%2F",
}


@pytest.mark.slow("2 s")
def test_missing_services_skip_and_the_summary_says_which(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, SERVICES_TEST, **UNREACHABLE)
    assert result.returncode == 0, result.stdout
    for name in ("PostgreSQL", "Redis", "RabbitMQ"):
        assert f"{name}: nothing answers on {NOTHING_LISTENS}" in result.stdout
    assert "1 skipped" in result.stdout


@pytest.mark.slow("1 s")
def test_missing_services_fail_when_required(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, SERVICES_TEST, CRAWLYARD_REQUIRE="services", **UNREACHABLE)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED
    assert "required by CRAWLYARD_REQUIRE but missing: PostgreSQL" in result.stdout


@pytest.mark.slow("3 s")
def test_requiring_one_kind_leaves_the_others_skippable(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, SERVICES_TEST, CRAWLYARD_REQUIRE="browser", **UNREACHABLE)
    assert result.returncode == 0, result.stdout


@pytest.mark.slow("1 s")
def test_missing_browser_skips(tmp_path: Path) -> None:
    source = "import pytest\n@pytest.mark.browser\ndef test_it(): pass\n"
    result = run_pytest(tmp_path, source, CRAWLYARD_TEST_CHROMIUM="no-such-browser")
    assert result.returncode == 0, result.stdout
    assert "Chromium: no no-such-browser on PATH" in result.stdout


@pytest.mark.slow("1 s")
def test_mistyped_require_is_refused(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, "def test_it(): pass\n", CRAWLYARD_REQUIRE="service")
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "CRAWLYARD_REQUIRE: service is none of services, docker, browser" in result.stderr


def test_scan_reads_functions_classes_modules_and_parameters(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "import pytest\n"
        "pytestmark = [pytest.mark.covers('S0.1')]\n"
        "@pytest.mark.covers('S0.2', 'S0.3')\n"
        "class TestOne:\n"
        "    @pytest.mark.covers('S0.4')\n"
        "    async def test_it(self): pass\n"
        "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.covers('S0.5'))])\n"
        "def test_more(x): pass\n",
        encoding="utf-8",
    )
    found = {mark.name: mark.ids for mark in scan(tmp_path)}
    assert found == {
        "": ("S0.1",),
        "TestOne": ("S0.2", "S0.3"),
        "TestOne::test_it": ("S0.4",),
        "test_more": ("S0.5",),
    }


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("@pytest.mark.covers('S0.1')\ndef helper(): pass\n", "neither on a test"),
        ("ID = 'S0.1'\n@pytest.mark.covers(ID)\ndef test_it(): pass\n", "as strings"),
    ],
)
def test_scan_refuses_marks_nobody_would_find(tmp_path: Path, source: str, reason: str) -> None:
    (tmp_path / "test_a.py").write_text(f"import pytest\n{source}", encoding="utf-8")
    with pytest.raises(MarkError, match=reason):
        scan(tmp_path)


@pytest.mark.services
def test_stores_on_loan_can_be_used(
    postgres_database: str, rabbit_vhost: str, redis_url: str
) -> None:
    with psycopg.connect(postgres_database) as connection:
        row = connection.execute("SELECT current_database()").fetchone()
    assert row == (urlsplit(postgres_database).path.removeprefix("/"),)
    assert postgres_database != markers.POSTGRES_URL
    with redis.Redis.from_url(redis_url) as client:
        # Tests before this one may have left keys of theirs: it is empty for the session.
        assert client.get(stores.REDIS_OWNER_KEY) == str(os.getpid()).encode()
        assert client.set("a key", "a value")
    assert urlsplit(rabbit_vhost).scheme == "amqp"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("turn", ["first", "second"])
def test_what_migrations_made_outlives_a_test_that_empties_tables(turn: str) -> None:
    assert [(each.slug, each.name) for each in Project.objects.all()] == [("default", "Default")]
    Project.objects.update(name=f"Changed by the {turn}")
    Project.objects.create(slug="other", name="Other")


def test_what_is_kept_of_migrations_is_of_these_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrated_databases, "ROOT", tmp_path)
    (tmp_path / "requirements.txt").write_text("django==5\n", encoding="utf-8")
    (tmp_path / "apps").mkdir()
    seen = [migrated_databases.state_of_sources()]
    for name, text in [("a.py", "A = 1"), ("a.py", "A = 2"), ("b.py", "A = 2")]:
        (tmp_path / "apps" / name).write_text(text, encoding="utf-8")
        seen.append(migrated_databases.state_of_sources())
    assert len(set(seen)) == 4
    (tmp_path / "apps" / "b.py").unlink()
    assert migrated_databases.state_of_sources() == seen[2]


@pytest.mark.slow("10 s")
@pytest.mark.services
def test_what_migrations_made_outlives_it_on_postgres_too(postgres_database: str) -> None:
    said = run_again([Path(__file__)], postgres_database, "-k", "outlives_a_test")
    assert "2 passed" in said


REASONS = '[[reason]]\nids = ["S0.1-2"]\nwhy = "arrives later"\n'


def reasons_file(folder: Path, text: str) -> Path:
    """A file of reasons with this content."""
    path = folder / "reasons.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_coverage_document_shows_tests_and_reasons(tmp_path: Path) -> None:
    ids = ["S0.1", "S0.2"]
    mark = Mark(path=ROOT / "tests" / "jobs" / "test_a.py", line=1, name="test_x", ids=("S0.1",))
    reasons = load_reasons(set(ids), {"S0.1"}, reasons_file(tmp_path, REASONS))
    text = render(ids, marks_by_id([mark], set(ids)), reasons)
    assert "| S0.1 | [jobs/test_a.py::test_x](../tests/jobs/test_a.py) |" in text
    assert "| S0.2 | *arrives later* |" in text
    assert "| S0 | 2 | 1 | 1 |" in text


def test_coverage_document_refuses_unexplained_lines() -> None:
    with pytest.raises(MarkError, match=r"neither a test nor a reason .*: S0\.2$"):
        render(["S0.1", "S0.2"], {}, {"S0.1": "arrives later"})


@pytest.mark.parametrize(
    ("tested", "text", "problem"),
    [
        ({"S0.1", "S0.2"}, REASONS, "have tests now, drop the entry"),
        (set(), REASONS * 2, r"S0\.1 has two reasons"),
        (set(), REASONS.replace("S0.1-2", "S0.1-9"), r"there is no requirement S0\.3"),
        (set(), REASONS.replace("S0.1-2", "all"), "neither an id nor a range"),
    ],
)
def test_reasons_must_be_about_something(
    tmp_path: Path, tested: set[str], text: str, problem: str
) -> None:
    with pytest.raises(MarkError, match=problem):
        load_reasons({"S0.1", "S0.2"}, tested, reasons_file(tmp_path, text))


def test_mark_of_an_unknown_line_is_refused() -> None:
    mark = Mark(path=ROOT / "tests" / "test_a.py", line=7, name="test_x", ids=("S9.9",))
    with pytest.raises(MarkError, match=r"test_a\.py:7: there is no requirement 'S9\.9'"):
        marks_by_id([mark], {"S0.1"})
