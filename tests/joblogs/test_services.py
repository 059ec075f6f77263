"""Lines are stored once, whatever comes twice, late or broken."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.joblogs.services import log_store, store_lines
from tests.joblogs.factories import (
    NOW,
    batch,
    make_build,
    record,
    seqs,
    store_texts,
    stored,
    whole_log,
)
from tests.jobs.factories import make_run
from yardkit.protocol import LogBatch

pytestmark = pytest.mark.django_db


def test_lines_of_runs_and_builds_are_stored() -> None:
    run, build = make_run(), make_build()
    batches = [batch(run.stream, [1, 2]), batch(build.stream, [1]), batch(run.stream, [3])]
    assert store_lines(batches=batches, now=NOW) == []
    assert stored(run.stream) == ["line 1", "line 2", "line 3"]
    assert stored(build.stream) == ["line 1"]
    first = whole_log(run.stream)[0]
    assert (first.project, first.job) == (run.job.project_id, run.job_id)
    assert (first.boot, str(first.ref), first.at) == ("b1", "1.1", NOW)
    [line] = whole_log(build.stream)
    assert (line.project, line.job) == (build.project_id, 0)


def test_repeats_and_reordering_change_nothing() -> None:
    stream = make_run().stream
    whole = [batch(stream, range(begin, begin + 10)) for begin in (1, 11, 21)]
    for batches in ([whole[2]], [whole[0], whole[0]], whole, [batch(stream, range(5, 28))]):
        assert store_lines(batches=batches, now=NOW) == []
    assert seqs(stream) == list(range(1, 31))


def test_the_first_text_of_a_number_stays() -> None:
    stream = make_run().stream
    store_texts(stream, "first")
    again = LogBatch(stream=stream, boot="b1", lines=[record(1, "second"), record(1, "third")])
    assert store_lines(batches=[again], now=NOW) == []
    assert stored(stream) == ["first"]


def test_executions_of_a_run_are_kept_apart() -> None:
    stream = make_run().stream
    store_lines(batches=[batch(stream, [1], "b1"), batch(stream, [1], "b2")], now=NOW)
    assert [str(line.ref) for line in whole_log(stream)] == ["1.1", "2.1"]


def test_dropped_lines_are_counted_absolutely() -> None:
    stream = make_run().stream
    for boot, count in (("b1", 5), ("b1", 3), ("b1", 9), ("b2", 1)):
        store_lines(batches=[batch(stream, [], boot, count)], now=NOW)
    state = log_store().stream_state(stream)
    assert state is not None
    assert state.dropped == 10
    assert log_store().stream_state("run:987654") is None


def test_what_cannot_be_stored_is_refused_alone() -> None:
    stream = make_run().stream
    bad = [
        batch("run:987654", [1]),
        batch("build:987654", [1]),
        batch("spider:1", [1]),
        batch(stream, [1], boot="no boot"),
        batch(stream, [1, 0]),
        batch(stream, [2], dropped=-1),
        batch(stream, [2], dropped=2**63),
    ]
    refused = store_lines(batches=[batch(stream, [1]), *bad, batch(stream, [2])], now=NOW)
    assert stored(stream) == ["line 1", "line 2"]
    reasons = {id(one.batch): one.reason for one in refused}
    words = ["does not exist"] * 2 + ["no stream", "no boot", "count from 1"] + ["dropped"] * 2
    for one, word in zip(bad, words, strict=True):
        assert word in reasons[id(one)]


def test_anything_a_line_holds_can_be_stored_and_read() -> None:
    stream = make_run().stream
    hostile = ["\x00", "\x1b]0;x\x07", "'; DROP TABLE x; --", "\udfff", "😀" * 3000, "%s %(x)s {}"]
    lines = store_texts(stream, *hostile, source="\x00\x1b[2J")
    assert [line.text for line in lines] == [
        "\\x00",
        "",
        "'; DROP TABLE x; --",
        "\\udfff",
        "😀" * 3000,
        "%s %(x)s {}",
    ]


def test_a_batch_costs_few_queries() -> None:
    streams = [make_run().stream for _ in range(3)]
    with CaptureQueriesContext(connection) as queries:
        store_lines(batches=[batch(one, range(1, 11)) for one in streams for _ in "ab"], now=NOW)
    # Whose they are; the rest is the log store's.
    assert len(queries) <= 3


@pytest.mark.slow("1 s")
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_is_repeated_every_line_is_there_once(data: st.DataObject) -> None:
    stream = make_run().stream
    count = data.draw(st.integers(1, 60))
    pieces = data.draw(st.lists(st.tuples(st.integers(1, count), st.integers(1, 30)), max_size=10))
    ranges = [range(first, min(first + size, count + 1)) for first, size in pieces]
    ranges.insert(data.draw(st.integers(0, len(ranges))), range(1, count + 1))
    taken = data.draw(st.integers(1, 4))
    for begin in range(0, len(ranges), taken):
        batches = [batch(stream, one) for one in ranges[begin : begin + taken]]
        assert store_lines(batches=batches, now=NOW) == []
    assert seqs(stream) == list(range(1, count + 1))
