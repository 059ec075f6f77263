"""Log lines in an Elasticsearch. Only this package imports its client."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from apps.joblogs.stores.elastic.address import read_address
from apps.joblogs.stores.factory import BadAddress

if TYPE_CHECKING:
    from apps.joblogs.stores.elastic.store import ElasticLogStore


def open_elastic(url: str) -> ElasticLogStore:
    """The store that ``http(s)://...`` names; it connects when it is first asked.

    Raises:
        BadAddress: the address cannot be read, or the client's library is not installed.
    """
    address = read_address(url)
    if importlib.util.find_spec("elasticsearch") is None:
        raise BadAddress(
            f"{address.shown} is an Elasticsearch, and its client is not installed:"
            " pip install '.[elasticsearch]'"
        )
    # Imported where wanted: others have no use for its library.
    from apps.joblogs.stores.elastic.store import ElasticLogStore

    return ElasticLogStore(address)
