"""A project whose biz reads a shop."""

from __future__ import annotations

import pytest

from apps.projects.models import Project
from apps.requeststore.models import SamplePage
from tests.requeststore.factories import make_bizzes
from tests.requeststore.tester.shop import BIZ, make_sample


@pytest.fixture
def project(db: None, request_nodes: dict[str, str]) -> Project:
    """With the biz ``news``."""
    return make_bizzes(news=BIZ)


@pytest.fixture
def sample(project: Project) -> SamplePage:
    """A kept page with two goods."""
    return make_sample(project)
