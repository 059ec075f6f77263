"""Fixtures of the source tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sources.collector_setup import CollectorHarness
from tests.sources.octoparse_double import OctoparseDouble, serving


@pytest.fixture
def double() -> Iterator[OctoparseDouble]:
    """Run the Octoparse test server without records."""
    with serving(OctoparseDouble()) as made:
        yield made


@pytest.fixture
def make_yard(
    db: None, tmp_path: Path, double: OctoparseDouble
) -> Iterator[Callable[..., CollectorHarness]]:
    """Return a factory of test setups; ``broker_url`` defaults to an embedded broker."""
    made: list[CollectorHarness] = []

    def make(**fields: Any) -> CollectorHarness:
        made.append(CollectorHarness(tmp_path, double, **fields))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def harness(make_yard: Callable[..., CollectorHarness]) -> CollectorHarness:
    """Test setup with default settings."""
    return make_yard()
