"""What all tests of this app share."""

from __future__ import annotations

import pytest

from apps.routing.queries.tracks import track_of


@pytest.fixture(autouse=True)
def no_tracks_of_other_tests() -> None:
    """Versions of another test's database have the same ids and other rules."""
    track_of.cache_clear()
