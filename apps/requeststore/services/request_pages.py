"""Pages of requests, which are in no database table: after (ts, ID) of the last one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from apps.requeststore.engine.limits import MAX_ID, MAX_TS
from apps.requeststore.services.store import BoundBiz, FoundRequest, RequestStore

_CURSOR: Final = re.compile(r"([0-9]{1,15})\.([0-9]{1,19})")


def page_of(
    request_store: RequestStore,
    bizzes: Sequence[BoundBiz],
    *,
    flag: int | None,
    since: int,
    until: int,
    after: tuple[int, int] | None,
    limit: int,
) -> tuple[list[FoundRequest], str | None]:
    """Return requests of these bizzes, newest first, and the cursor of the next page."""
    rows: list[FoundRequest] = []
    for bound in bizzes:
        rows += request_store.page(
            bound, flag=flag, since=since, until=until, after=after, limit=limit + 1
        )
    rows.sort(key=lambda found: (-found.request.ts, -found.request.id))
    more = len(rows) > limit
    del rows[limit:]
    last = rows[-1].request if rows and more else None
    return rows, None if last is None else f"{last.ts}.{last.id}"


def read_cursor(text: str) -> tuple[int, int] | None:
    """Parse a cursor; None for "", the first page. Raises ``ValueError``."""
    if not text:
        return None
    matched = _CURSOR.fullmatch(text)
    if matched is None or int(matched[1]) > MAX_TS or int(matched[2]) > MAX_ID:
        raise ValueError("no cursor of requests")
    return int(matched[1]), int(matched[2])
