"""Log store in Elasticsearch. Only this package imports its client."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from apps.joblogs.stores.elastic.address import read_address
from apps.joblogs.stores.factory import BadAddress

if TYPE_CHECKING:
    from apps.joblogs.stores.elastic.store import ElasticLogStore


def open_elastic(url: str) -> ElasticLogStore:
    """Return the store at ``http(s)://...``; it connects at the first call.

    Raises:
        BadAddress: the URL is invalid, or the client library is not installed.
    """
    address = read_address(url)
    if importlib.util.find_spec("elasticsearch") is None:
        raise BadAddress(
            f"{address.shown} is an Elasticsearch, and its client is not installed:"
            " pip install '.[elasticsearch]'"
        )
    # Imported lazily: other stores do not need the client library.
    from apps.joblogs.stores.elastic.store import ElasticLogStore

    return ElasticLogStore(address)
