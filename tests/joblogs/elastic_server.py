"""An Elasticsearch for tests: the double, or a real one that ``CRAWLYARD_TEST_ELASTIC_URL`` names.

Indexes of tests begin with a prefix of their own and are deleted afterwards.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from apps.joblogs.stores.base import ErrorCount, FoundLines, LogStore, Search
from tests.joblogs.elastic_double import ElasticDouble

if TYPE_CHECKING:
    from apps.joblogs.stores.elastic.store import ElasticLogStore

REAL_URL = os.environ.get("CRAWLYARD_TEST_ELASTIC_URL", "")
WANTED = pytest.mark.skipif(
    importlib.util.find_spec("elasticsearch") is None,
    reason="Elasticsearch: its client is not installed (pip install '.[elasticsearch]')",
)


def with_prefix(url: str, prefix: str) -> str:
    """The address with the names of indexes beginning like that."""
    return f"{url}{'&' if urlsplit(url).query else '?'}index={prefix}"


def open_patient(url: str) -> ElasticLogStore:
    """A store that makes lines searchable before it searches: tests need not wait a second."""
    from apps.joblogs.stores.elastic.address import read_address
    from apps.joblogs.stores.elastic.store import ElasticLogStore

    class Patient(ElasticLogStore):
        def search(self, search: Search, *, cursor: str = "", limit: int) -> FoundLines:
            self._connection.refresh(self._names.lines)
            return super().search(search, cursor=cursor, limit=limit)

        def groups(self, search: Search, *, limit: int) -> list[ErrorCount]:
            self._connection.refresh(self._names.lines)
            return super().groups(search, limit=limit)

    return Patient(read_address(url))


@contextlib.contextmanager
def lend_store() -> Iterator[LogStore]:
    """An empty store, in a double of its own or in the real server."""
    with lend_url() as url:
        store = open_patient(url)
        store.setup()
        try:
            yield store
        finally:
            store.close()


@contextlib.contextmanager
def lend_url() -> Iterator[str]:
    """LOGS_URL of an empty store."""
    prefix = f"cyt{secrets.token_hex(4)}"
    if not REAL_URL:
        double = ElasticDouble()
        try:
            yield with_prefix(double.url, prefix)
        finally:
            double.stop()
        return
    with warnings.catch_warnings():
        # Such as that it is not secured, which is for its owner to know.
        warnings.simplefilter("ignore")
        try:
            yield with_prefix(REAL_URL, prefix)
        finally:
            clear(with_prefix(REAL_URL, prefix), prefix)


def clear(url: str, prefix: str) -> None:
    """Delete what a store has made, also when its setup failed halfway."""
    from apps.joblogs.stores.elastic.address import read_address
    from apps.joblogs.stores.elastic.connection import ElasticConnection

    connection = ElasticConnection(read_address(url))
    names = connection.ask(lambda client: client.indices.get(index=f"{prefix}-*"))
    if names:
        connection.ask(lambda client: client.indices.delete(index=list(names)))
    for template in (f"{prefix}-lines", f"{prefix}-streams"):
        connection.ask(
            lambda client, name=template: client.indices.delete_index_template(name=name),
            missing={},
        )
    connection.ask(lambda client: client.ilm.delete_lifecycle(name=prefix), missing={})
    connection.close()
