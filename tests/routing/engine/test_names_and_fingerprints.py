"""UUIDs of items, and the fingerprints by which their values are found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.routing.engine.fingerprints import BYTES, fingerprint, fingerprints, values_of
from apps.routing.engine.uuids import new_task_uuid, new_task_uuids

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
items = st.dictionaries(st.text(), values, max_size=5)


@pytest.mark.slow("4 s")
@given(st.lists(items, max_size=4))
def test_a_page_has_the_fingerprint_of_each_value_that_can_be_asked_for(
    page: list[dict[str, Any]],
) -> None:
    packed = fingerprints(page)
    found = [packed[at : at + BYTES] for at in range(0, len(packed), BYTES)]
    assert len(found) == len(set(found))
    assert set(found) == {fingerprint(text) for item in page for _, text in values_of(item)}


def test_what_nearly_every_item_holds_is_not_asked_for() -> None:
    assert fingerprints([{"a": True, "b": None, "c": "", "d": [False, {"e": ""}]}]) == b""


def test_names_are_of_version_7_and_grow_with_time() -> None:
    names = new_task_uuids(NOW, 1000)
    assert len(set(names)) == 1000
    assert {(name.version, name.variant) for name in names} == {(7, "specified in RFC 4122")}
    assert {name.int >> 80 for name in names} == {int(NOW.timestamp() * 1000)}
    assert new_task_uuid(NOW + timedelta(milliseconds=1)) > max(names)
