"""Fixtures that lend a test storage nodes and queues of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.conf import LazySettings

if TYPE_CHECKING:
    from apps.requeststore.services.store import RequestStore


@pytest.fixture
def request_nodes(
    tmp_path: Path, settings: LazySettings, sqlite_broker_url: str
) -> Iterator[dict[str, str]]:
    """Two embedded storage nodes, ``default`` and ``second``, and an embedded broker."""
    # Not at the top: some tests run with a few of the apps only.
    from apps.requeststore.services.store import close_shared_request_store
    from apps.runtime.services import close_shared_broker

    nodes = {name: f"sqlite:///{tmp_path / name}" for name in ("default", "second")}
    settings.REQUESTS_NODES = nodes
    settings.REDIS_URL = ""
    close_shared_broker()
    settings.BROKER_URL = sqlite_broker_url
    close_shared_request_store()
    yield nodes
    close_shared_request_store()
    close_shared_broker()


@pytest.fixture
def yard(request_nodes: dict[str, str]) -> Iterator[RequestStore]:
    """A yard on these nodes; ``setup`` is the test's affair."""
    from apps.requeststore.services.store import RequestStore

    made = RequestStore(name="tester")
    yield made
    made.close()
