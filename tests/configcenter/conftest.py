"""The sample kind is there in every test of this folder."""

from __future__ import annotations

import pytest

from apps.configcenter.engine import kinds
from tests.configcenter.factories import KIND, SampleKind


@pytest.fixture(autouse=True)
def sample_kind(monkeypatch: pytest.MonkeyPatch) -> SampleKind:
    """Registered for one test."""
    kind = SampleKind()
    monkeypatch.setitem(kinds._kinds, KIND, kind)
    return kind
