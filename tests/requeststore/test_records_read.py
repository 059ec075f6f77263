"""The records of one request, read back from where they were put."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.requeststore.engine.biz import DestinationKind, Records
from apps.requeststore.sinks.factory import SinkContext
from apps.requeststore.sinks.stored_records import MOST_RECORDS, FoundRecords, records_of
from tests.requeststore.test_sinks import NOW, context, gathered, opened, records_url

__all__ = ["context", "records_url"]


def look(
    context: SinkContext, number: int, to: DestinationKind = DestinationKind.TABLE
) -> FoundRecords:
    return records_of(
        number,
        project_id=7,
        biz="news",
        records=Records(to=to),
        finished_at=NOW,
        records_url=context.records_url,
        folder=context.folder,
    )


@pytest.mark.covers("S4.29")
@pytest.mark.parametrize("to", [DestinationKind.TABLE, DestinationKind.JSON_LINES])
def test_they_come_back_in_their_order_and_no_others(
    context: SinkContext, to: DestinationKind
) -> None:
    before = look(context, 12, to)
    assert (before.records, before.problem) == ([], "")
    sink = opened(context, to)
    rows = [{"title": f"标题 {number}", "price": number} for number in range(3)]
    sink.write([gathered(1, {"title": "other"}), gathered(12, *rows), gathered(123, {"x": 1})])
    sink.write([gathered(12, *rows, again=True)])
    found = look(context, 12, to)
    assert found.records is not None
    shown: list[dict[str, Any]] = [each.get("record", each) for each in found.records]
    assert [(each["title"], each["price"]) for each in shown] == [
        ("标题 0", 0),
        ("标题 1", 1),
        ("标题 2", 2),
    ]
    assert {each["request_id"] for each in found.records} == {"12"}
    assert (found.more, found.problem) == (False, "")
    assert "news" in found.where
    assert look(context, 2, to).records == []
    sink.close()


def test_no_more_than_somebody_reads(context: SinkContext) -> None:
    sink = opened(context)
    sink.write([gathered(5, *({"n": number} for number in range(MOST_RECORDS + 9)))])
    found = look(context, 5)
    assert found.records is not None
    assert (len(found.records), found.more) == (MOST_RECORDS, True)
    sink.close()


def test_what_cannot_be_read_says_why(tmp_path: Path, context: SinkContext) -> None:
    assert look(context, 5, DestinationKind.QUEUE).records is None
    assert look(context, 5, DestinationKind.NOWHERE).records == []
    away = SinkContext(
        "postgresql://u:canary@127.0.0.1:9/x", tmp_path, context.broker, "box", lambda: 0
    )
    found = look(away, 5)
    assert found.records is None
    assert found.problem
    assert "canary" not in found.problem
