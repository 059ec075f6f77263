"""Imports from a local HTTP API into a real queue: order, filters and counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from apps.sources.engine import harvester
from apps.sources.models import Harvest
from tests.sources.collector_setup import QUEUE, CollectorHarness
from tests.sources.octoparse_double import OctoparseDouble, record

MakeYard = Callable[..., CollectorHarness]


def old_below(limit: int) -> Callable[[int], dict[str, Any]]:
    """Return a record factory that dates records below ``limit`` to last year."""
    return lambda number: (
        record(number) | ({"date": "2025-12-01 10:00:00"} if number < limit else {})
    )


def counts(harvest: Harvest) -> tuple[int, int, int, int, int]:
    return (harvest.read, harvest.published, harvest.filtered, harvest.re_read, harvest.refused)


@pytest.mark.slow("2 s")
@pytest.mark.covers("S0.3", "S0.4", "S0.5", "S0.6", "S0.8", "S0.9", "S0.10", "S0.11", "S0.12")
@pytest.mark.covers("S0.1", "S0.2", "S0.13", "S0.18", "S0.19", "S0.25")
def test_the_seeds_two_runs(harness: CollectorHarness, double: OctoparseDouble) -> None:
    double.total = 270_000
    double.make = old_below(269_650)
    first = harness.harvest()
    # Seven batches: four with a valid record and the three that end it.
    offsets = [offset for offset, _size in double.asked]
    # The first request asks for the total, with the smallest batch.
    assert double.asked[0] == (0, 1)
    assert offsets[1:8] == [269_900, 269_800, 269_700, 269_600, 269_500, 269_400, 269_300]
    assert {size for _offset, size in double.asked[1:]} == {100}
    assert (first.state, first.reason, first.first) == ("completed", "expired", True)
    assert (first.start_offset, first.end_offset, first.total) == (269_900, 0, 270_000)
    assert counts(first) == (700, 350, 350, 0, 0)
    assert first.gaps == [{"from": 0, "to": 269_299, "why": "expired"}]
    assert harness.state.marker == 269_900
    published = harness.numbers()
    assert published[:3] == [269_900, 269_901, 269_902]
    # Newest batch first; within a batch in the API's order.
    assert [number for number in published if number % 100 == 0] == [*(269_900, 269_800, 269_700)]
    assert sorted(published) == list(range(269_650, 270_000))

    double.total = 270_500
    double.asked.clear()
    second = harness.harvest()
    assert [offset for offset, _ in double.asked[1:]] == [
        *(270_400, 270_300, 270_200, 270_100, 270_000, 269_900)
    ]
    assert (second.start_offset, second.end_offset, second.first) == (270_400, 269_900, False)
    assert (second.state, second.reason) == ("completed", "end")
    # Six batches: 500 new records and 100 already imported ones.
    assert (second.batches, *counts(second)) == (6, 600, 500, 0, 100, 0)
    assert sorted(harness.numbers()) == list(range(270_000, 270_500))
    assert harness.state.marker == 270_400

    double.asked.clear()
    third = harness.harvest()
    assert [offset for offset, _ in double.asked[1:]] == [270_400]
    assert (third.batches, *counts(third)) == (1, 100, 0, 0, 100, 0)
    assert harness.numbers() == []


@pytest.mark.covers("S0.8", "S0.11")
def test_each_batch_is_in_the_queue_before_the_next_and_the_marker_moves_at_the_end(
    harness: CollectorHarness, double: OctoparseDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    double.total = 500
    broker = harness.open_broker()
    seen: list[tuple[int, str, int | None]] = []

    def hit(name: str) -> None:
        if name == "sources.after_checkpoint":
            seen.append((broker.depth(QUEUE).ready, harness.newest.state, harness.state.marker))

    monkeypatch.setattr(harvester, "hit", hit)
    harness.harvest()
    assert seen == [(count, "running", None) for count in (100, 200, 300, 400, 500)]
    assert harness.state.marker == 400


@pytest.mark.slow("6 s")
@pytest.mark.covers("S0.14", "S0.15")
@pytest.mark.parametrize("total", [0, 1, 99, 100, 101, 1050])
def test_every_record_is_read_whatever_the_total(
    harness: CollectorHarness, double: OctoparseDouble, total: int
) -> None:
    double.total = total
    harvest = harness.harvest()
    assert harvest.state == "completed"
    assert harvest.reason == ("end" if total else "nothing")
    assert sorted(harness.numbers()) == list(range(total))
    assert counts(harvest) == (total, total, 0, 0, 0)
    assert harness.state.marker == (max(total - 100, 0) if total else None)
    # Later records are not lost either.
    double.total = total + 130
    again = harness.harvest()
    assert sorted(harness.numbers()) == list(range(total, total + 130))
    assert again.read == again.published + again.re_read


@pytest.mark.covers("S0.7", "S0.21")
def test_too_old_records_are_left_out_and_a_valid_one_begins_the_count_anew(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    double.total = 1000
    # 95 of the newest batch are valid, and one in the batch at 600.
    valid = {*range(905, 1000), 650}
    double.make = lambda number: (
        record(number) | ({} if number in valid else {"date": "2026-01-09 11:59:59"})
    )
    harvest = harness.harvest()
    # 800 and 700 are expired, 600 is not; 500, 400 and 300 end the harvest.
    assert harvest.batches == 7
    assert harvest.reason == "expired"
    assert counts(harvest) == (700, 96, 604, 0, 0)
    assert sorted(harness.numbers()) == sorted(valid)
    assert harvest.next_offset == 200


@pytest.mark.covers("S0.19")
def test_only_a_first_run_ends_with_expired_batches(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    double.total = 200
    harness.harvest()
    double.total = 1200
    double.make = old_below(5000)
    harvest = harness.harvest()
    assert (harvest.reason, harvest.batches) == ("end", 11)
    assert harvest.filtered == 1100


@pytest.mark.slow("2 s")
@pytest.mark.covers("S0.16")
def test_a_source_that_was_cleared_is_read_anew(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    double.total = 500
    harness.harvest()
    harness.numbers()
    double.total = 120
    double.make = lambda number: record(number) | {"title": f"other {number}"}
    harvest = harness.harvest()
    assert harvest.notes == [{"code": "shrunk", "from": 500, "to": 120}]
    assert (harvest.state, harvest.first) == ("completed", True)
    assert sorted(harness.numbers()) == list(range(120))
    assert harness.state.marker == 20
    double.total = 0
    assert harness.harvest().reason == "nothing"
    assert harness.state.marker is None
    double.total = 30
    assert harness.harvest().published == 30


@pytest.mark.covers("S0.16")
def test_a_cleared_source_is_only_reported_where_that_is_wanted(
    make_yard: MakeYard, double: OctoparseDouble
) -> None:
    harness = make_yard(shrunk="report")
    double.total = 500
    harness.harvest()
    double.total = 499
    harvest = harness.harvest()
    assert (harvest.state, harvest.reason, harvest.read) == ("completed", "shrunk", 0)
    assert harness.state.marker == 400


def test_a_source_that_was_cleared_and_filled_again_is_noted(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    double.total = 300
    harness.harvest()
    double.total = 500
    double.make = lambda number: record(number) | {"title": f"other {number}"}
    harvest = harness.harvest()
    assert harvest.notes == [{"code": "replaced", "records": 100}]
    # The records there are new and not taken for the former ones.
    assert counts(harvest) == (300, 300, 0, 0, 0)


@pytest.mark.slow("1 s")
def test_growth_during_a_harvest_is_read_by_the_next(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    double.total = 1000

    def growing(number: int) -> dict[str, Any]:
        double.total = max(double.total, 1070)
        return record(number)

    double.make = growing
    assert harness.harvest().published == 1000
    assert harness.harvest().published == 70
    assert sorted(harness.numbers()) == list(range(1070))


def test_a_short_answer_is_asked_for_its_rest(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    double.total = 230
    double.most_a_page = 40
    assert counts(harness.harvest()) == (230, 230, 0, 0, 0)
    assert sorted(harness.numbers()) == list(range(230))


def test_records_that_vanish_while_they_are_read_are_reported(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    double.total = 400

    def vanishing(number: int) -> dict[str, Any]:
        if number == 399:
            double.total = 150
        return record(number)

    double.make = vanishing
    harvest = harness.harvest()
    found = harness.numbers()
    missing = sum(gap["to"] - gap["from"] + 1 for gap in harvest.gaps)
    assert {gap["why"] for gap in harvest.gaps} == {"missing"}
    assert harvest.read == len(found) == 400 - missing
    assert harness.state.gaps == harvest.gaps


def test_every_message_says_what_it_is(make_yard: MakeYard, double: OctoparseDouble) -> None:
    harness = make_yard(id_field="编号")
    double.total = 3
    harness.harvest()
    found = harness.deliveries()
    assert [json.loads(each.body) for each in found] == [record(number) for number in range(3)]
    assert [each.headers["offset"] for each in found] == [0, 1, 2]
    assert {each.headers["source"] for each in found} == {"news"}
    assert {each.headers["project"] for each in found} == {harness.project.slug}
    assert len({each.message_id for each in found}) == 3


def test_with_an_id_of_its_own_a_record_is_known_though_it_has_changed(
    make_yard: MakeYard, double: OctoparseDouble
) -> None:
    harness = make_yard(id_field="编号")
    double.total = 150
    harness.harvest()
    double.make = lambda number: record(number) | {"views": number}
    double.total = 160
    assert counts(harness.harvest()) == (100, 10, 0, 90, 0)
