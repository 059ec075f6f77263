"""manage.py seeds: what it prints, writes, and ends with."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from apps.access.models import AuditRecord
from apps.seeds.models import Frontier, Operation
from apps.seeds.services import client_of, management, show_segments
from apps.seeds.services.clients import manager_of
from apps.seeds.stores.operations import now_ms
from tests.access.factories import make_project
from tests.seeds.services.small_service import Desk
from yardkit.protocol import Seed, SeedFinish, SeedOutcome

pytestmark = pytest.mark.django_db
DAY = 86_400_000
Said = Callable[..., tuple[str, str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run a verb; stdout and stderr."""

    def run(*words: str) -> tuple[str, str]:
        call_command("seeds", *words)
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a verb that ends badly; its exit status, its last words, and stderr before them."""

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(CommandError) as error:
            call_command("seeds", *words)
        return error.value.returncode, str(error.value), capsys.readouterr().err

    return run


def finish(frontier: Frontier, count: int, outcome: SeedOutcome) -> None:
    client = client_of(frontier, owner="w")
    leased = client.lease(count)
    client.finish(
        [SeedFinish(one.segment, one.key, leased.generation, outcome) for one in leased.seeds]
    )


@pytest.mark.slow("2 s")
def test_frontiers_are_made_and_listed(say: Said, frontier: Frontier) -> None:
    project = make_project(name="Prices", slug="prices")
    out, _ = say(
        *("create", "shops", "--project", "prices", "--segments", "week"),
        *("--time-zone", "Asia/Shanghai", "--keys", "canonical", "--ignored-parameter", "t"),
    )
    made = Frontier.objects.get(name="shops")
    assert out == f"prices/shops is number {made.pk}\n"
    assert (made.project, made.segments, made.ignored_parameters) == (project, "week", ["t"])
    assert "manage.py seeds" in AuditRecord.objects.get().actor_label
    Frontier.objects.filter(pk=made.pk).update(is_paused=True)
    made.reports.create(segment=0, added=1234, pending=1234, reported_at=made.created_at)
    out, _ = say("list")
    assert out.splitlines()[0].split()[:4] == ["FRONTIER", "NUMBER", "SEGMENTS", "ZONE"]
    line = next(each for each in out.splitlines() if "prices/shops" in each)
    assert line.split()[2:7] == ["week", "Asia/Shanghai", "canonical", "paused", "1,234"]
    out, _ = say("list", "--project", "prices", "--json")
    (only,) = json.loads(out)
    assert (only["name"], only["pending"], only["is_paused"]) == ("shops", 1234, True)


def test_a_frontier_that_cannot_be_made_is_refused(refused: Any, frontier: Frontier) -> None:
    status, text, _ = refused("create", "a b", "--time-zone", "Mars")
    assert status == 2
    assert "time_zone: there is no time zone 'Mars'" in text
    assert "name: Only letters" in text
    status, text, _ = refused("create", "x", "--keys", "guess")
    assert (status, "there is no resolver 'guess'" in text) == (2, True)


def test_a_frontier_is_found_by_its_names(say: Said, refused: Any, frontier: Frontier) -> None:
    slug = frontier.project.slug
    for name in ("news", f"{slug}/news", str(frontier.pk)):
        assert "all seeds accounted for" in say("segments", name)[1]
    Frontier.objects.create(project=make_project(), name="news")
    status, text, _ = refused("segments", "news")
    assert (status, f"{slug}/news" in text) == (2, True)
    status, text, _ = refused("segments", "nws")
    assert status == 2
    assert "there is no frontier 'nws'; is " in text
    assert refused("segments", "nowhere/news")[0] == 2


def test_seeds_are_added_and_looked_up(say: Said, refused: Any, frontier: Frontier) -> None:
    out, _ = say("add", "news", "http://host/1", "http://host/2", "--at", "yesterday")
    assert out == "new\thttp://host/1\nnew\thttp://host/2\n"
    out, _ = say("add", "news", "http://host/1", "--at", "yesterday")
    assert out.startswith("known since 20")
    assert out.endswith(", init\thttp://host/1\n")
    status, text, _ = refused("add", "news", "http://host/3", "")
    assert (status, text) == (1, "1 of 2 were refused")
    finish(frontier, 1, SeedOutcome.SUCCESS)
    out, _ = say("look-up", "news", "http://host/3")
    assert out.splitlines()[0].startswith("known since 20")
    assert "succeeded since 20" in out
    out, _ = say("look-up", "news", "http://host/1")
    assert out.splitlines() == ["new", "segment  default (0)", "key      http://host/1"]
    out, _ = say("look-up", "news", "http://host/1", "--at", "yesterday", "--json")
    found = json.loads(out)
    assert (found["new"], found["state"], found["retry"]) == (False, "init", 0)
    client_of(frontier, owner="run:7").lease(1)
    assert (
        "leased   by run:7 until 20"
        in say("look-up", "news", "http://host/1", "--at", "yesterday")[0]
    )


@pytest.mark.slow("1 s")
@pytest.mark.covers("S3.19")
def test_a_file_of_seeds_is_loaded_in_batches(
    say: Said, refused: Any, frontier: Frontier, tmp_path: Path, desk: Desk
) -> None:
    file = tmp_path / "seeds.txt"
    lines = [f"http://host/{number}" for number in range(5000)]
    file.write_text("\ufeff" + "\n\n".join(lines) + "\r\n   \n")
    slug = frontier.project.slug
    assert say("load", "news", str(file))[0] == (
        f"{slug}/news: 5,000 new, 0 known already, 0 refused\n"
    )
    packed = tmp_path / "seeds.gz"
    packed.write_bytes(gzip.compress(b"http://host/0\nhttp://host/new\n\x00bad\n\xff\n"))
    status, text, said = refused("load", "news", str(packed))
    assert (status, text) == (1, "2 lines were refused")
    assert "line 3: the data has a control character, U+0000 at position 1 (binary_data)" in said
    assert "line 4: no UTF-8 at byte 1" in said
    assert {one.books.added for one in show_segments(frontier)} == {5001}
    status, text, _ = refused("load", "news", str(tmp_path / "none"))
    assert (status, text) == (2, f"{tmp_path / 'none'}: No such file or directory")


def test_single_seeds_are_reopened_and_forgotten(
    say: Said, refused: Any, frontier: Frontier
) -> None:
    say("add", "news", "a", "b")
    finish(frontier, 1, SeedOutcome.SUCCESS)
    assert say("reopen", "news", "default", "a")[0] == "pending again in default: a\n"
    assert say("forget", "news", "0", "b")[0] == "forgotten in default: b\n"
    status, text, _ = refused("reopen", "news", "default", "a")
    assert (status, text) == (1, "the seed has not ended, it is pending or leased (seed_not_final)")
    status, text, _ = refused("forget", "news", "default", "c")
    assert (status, text) == (2, "segment default has no key c (unknown_key)")
    status, text, _ = refused("forget", "news", "someday", "c")
    assert (status, "'someday' is no time" in text) == (2, True)


def test_failed_seeds_are_crawled_again_today(say: Said, refused: Any, frontier: Frontier) -> None:
    say("add", "news", "a", "b", "c", "--at", "yesterday")
    finish(frontier, 2, SeedOutcome.GIVEN_UP)
    out, _ = say("reopen-failed", "news", "yesterday")
    today = Frontier.objects.get().rules().segments(now_ms())
    assert out.startswith("2 failed seeds are pending in 20")
    assert out.endswith(", 0 were known there\n")
    assert {one.segment: one.books.pending for one in show_segments(frontier)}[today] == 2
    status, text, _ = refused("reopen-failed", "news", "2001-02-03")
    assert status == 2
    assert text.startswith("there is no segment 2001-02-03 (")


def test_what_takes_seeds_away_asks_first(say: Said, refused: Any, frontier: Frontier) -> None:
    say("add", "news", "a", "b")
    say("add", "news", "c", "--at", "today")
    for verb in (["drop", "news", "default"], ["wipe", "news"]):
        status, text, _ = refused(*verb)
        assert status == 2
        assert "seeds" in text
        assert text.endswith("Nothing was done: say --yes")
    assert not Operation.objects.exists()
    client_of(frontier, owner="w").lease(1)
    status, text, _ = refused("drop", "news", "default", "--yes")
    assert status == 1
    assert "1 seeds of the segment are leased" in text
    out, _ = say("drop", "news", "default", "--yes", "--leased-too")
    assert out == "default is gone, with 2 seeds\n"
    out, _ = say("wipe", "news", "--yes")
    slug = frontier.project.slug
    assert out == f"{slug}/news is empty: 1 segments and 1 seeds are gone\n"
    out, _ = say("operations", "news")
    assert [line.split()[1:3] for line in out.splitlines()[1:]] == [
        ["wipe", "done"],
        ["drop", "done"],
        ["drop", "failed"],
    ]


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("name", ["seeds.jsonl", "seeds.jsonl.gz"])
def test_seeds_go_from_one_frontier_to_another(
    say: Said, refused: Any, frontier: Frontier, desk: Desk, tmp_path: Path, name: str
) -> None:
    say("add", "news", "a", "b", "--at", "yesterday")
    finish(frontier, 1, SeedOutcome.GIVEN_UP)
    say("add", "news", "c", "--urgent")
    file = tmp_path / name
    _, told = say("export", "news", str(file))
    assert told.endswith(f"news: 3 seeds in {file}\n")
    assert list(tmp_path.glob("*.tmp")) == []
    other = Frontier.objects.create(project=make_project(), name="copy", segments="week")
    desk.follow(other)
    assert say("import", "copy", str(file))[0].endswith("3 new, 0 known already, 0 refused\n")
    found = {
        one.key: one
        for segment in desk.store.segments(other.pk)
        for one in desk.store.export(other.pk, segment.segment)
    }
    before = {
        one.key: one
        for segment in desk.store.segments(frontier.pk)
        for one in desk.store.export(frontier.pk, segment.segment)
    }
    fields = ("data", "state", "retry", "max_retry", "added_at", "changed_at", "due")
    for key, one in before.items():
        assert [getattr(found[key], f) for f in fields] == [getattr(one, f) for f in fields]
    assert say("import", "copy", str(file))[0].endswith("0 new, 3 known already, 0 refused\n")
    assert {one.kind for one in Operation.objects.all()} == {"import"}


def test_bad_lines_are_named_and_keep_no_other_out(
    refused: Any, frontier: Frontier, tmp_path: Path
) -> None:
    file = tmp_path / "seeds.jsonl"
    file.write_text(
        '{"data": "good"}\n\nnonsense\n{"data": 5}\n{"data": "x", "state": "sleeping"}\n'
        '{"data": "x", "due_at": "soon"}\n{"data": ""}\n{"data": "good", "state": "failed"}\n'
    )
    status, text, said = refused("import", "news", str(file))
    assert (status, text) == (1, "5 lines were refused")
    for line in (
        "line 3: JSON is malformed",
        "line 4: Expected `str`, got `int` - at `$.data`",
        "line 5: unknown state 'sleeping'; expected one of: init, succeeded",
        "line 6: due_at is not a time: soon",
        "line 7: the data is empty (empty_data)",
    ):
        assert line in said
    (segment,) = show_segments(frontier)
    assert (segment.books.added, segment.books.duplicates) == (1, 1)


def test_an_export_that_cannot_be_written_leaves_nothing(
    refused: Any, frontier: Frontier, tmp_path: Path
) -> None:
    client_of(frontier).add([Seed("a")])
    status, text, _ = refused("export", "news", str(tmp_path / "no" / "seeds.jsonl"))
    assert (status, text.endswith("No such file or directory")) == (1, True)
    folder = tmp_path / "folder"
    folder.mkdir()
    assert refused("export", "news", str(folder))[0] == 1
    assert not [one for one in tmp_path.iterdir() if one.name.endswith(".tmp")]


def test_granularity_is_shown_and_changed(say: Said, refused: Any, frontier: Frontier) -> None:
    for day in ("2026-03-02", "2026-03-03"):
        say("add", "news", "a", f"on-{day}", "--at", day)
    out, _ = say("granularity", "news", "--segments", "week", "--preview")
    assert out.splitlines() == [
        "segments: day -> week",
        "SEGMENT     PENDING  LEASED  ENDED  GOES TO",
        "2026-03-02        2       0      0  2026-03-02: 2",
        "2026-03-03        2       0      0  2026-03-02: 2",
        "4 seeds",
        "1 would meet another one with their key, and count as duplicates",
        "1 would be new again if only the rules were changed",
    ]
    out, _ = say("granularity", "news", "--segments", "week", "--preview", "--json")
    assert json.loads(out)["meeting_at_most"] == 1
    assert refused("granularity", "news", "--segments", "week")[0] == 2
    assert refused("granularity", "news", "--yes")[:2] == (2, "these are the rules already")
    status, text, _ = refused("granularity", "news", "--time-zone", "Mars", "--preview")
    assert (status, text) == (2, "there is no time zone 'Mars'")
    out, _ = say("granularity", "news", "--segments", "week", "--yes")
    slug = frontier.project.slug
    assert out.splitlines()[-1] == (
        f"{slug}/news has the new rules: 3 seeds are in place, 1 met another one and count as "
        "duplicates, 0 keep an old key"
    )
    frontier.refresh_from_db()
    assert (frontier.segments, frontier.is_frozen) == ("week", False)


def test_segments_are_told_with_their_books(say: Said, frontier: Frontier) -> None:
    say("add", "news", "a", "b", "a", "--at", "2026-03-02")
    out, told = say("segments", "news")
    head = "SEGMENT START-MS ADDED DUPLICATES PENDING LEASED SUCCEEDED FAILED IGNORED FORGOTTEN"
    assert out.splitlines()[0].split() == [*head.split(), "SIZE"]
    assert out.splitlines()[1].split()[:6] == ["2026-03-02", "1772409600000", "2", "1", "2", "0"]
    assert told.endswith("news: 1 segments, all seeds accounted for; times of UTC\n")
    (one,) = json.loads(say("segments", "news", "--json")[0])
    assert (one["begins"], one["added"], one["balances"]) == ("2026-03-02", 2, True)


def test_a_service_that_is_away_is_told_at_once(
    refused: Any, frontier: Frontier, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(management, "manager_of", lambda one, **_told: manager_of(one, timeout=0.3))
    desk.away.set()
    for words in (["segments", "news"], ["wipe", "news", "--yes"]):
        status, text, _ = refused(*words)
        assert status == 1
        assert "the seed service does not answer" in text
        assert "manage.py run_seeds --status" in text
    assert not Operation.objects.exists()
