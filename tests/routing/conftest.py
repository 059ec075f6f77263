"""Fixtures for all tests of the routing app."""

from __future__ import annotations

import pytest

from apps.routing.queries.tracks import track_of


@pytest.fixture(autouse=True)
def no_tracks_of_other_tests() -> None:
    """Clear the cache of compiled rules: versions of another test's database have the same ids."""
    track_of.cache_clear()
