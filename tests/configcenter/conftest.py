"""Fixture that registers the sample kind in every test of this folder."""

from __future__ import annotations

import pytest

from apps.configcenter.engine import kinds
from tests.configcenter.factories import KIND, SampleKind


@pytest.fixture(autouse=True)
def sample_kind(monkeypatch: pytest.MonkeyPatch) -> SampleKind:
    """Register the sample kind for one test."""
    kind = SampleKind()
    monkeypatch.setitem(kinds._kinds, KIND, kind)
    return kind
