"""How much may be sent: judged before any of it is kept."""

from __future__ import annotations

import pytest

from apps.seeds.engine.limits import MAX_BODY_BYTES, MAX_IMPORT_BYTES
from crawlyard.body_limit import MOST_ELSEWHERE, _limit_of


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/api/v1/frontiers/7/add", MAX_BODY_BYTES),
        ("/api/v1/frontiers/7/finish/", MAX_BODY_BYTES),
        ("/api/v1/frontiers/7/import", MAX_IMPORT_BYTES),
        ("/api/v1/frontiers/7/import/", MAX_IMPORT_BYTES),
        ("/api/v1/frontiers/7", MOST_ELSEWHERE),
    ],
)
def test_each_path_has_its_limit(path: str, limit: int) -> None:
    assert _limit_of(path) == limit
