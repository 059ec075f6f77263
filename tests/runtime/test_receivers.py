"""The watch over connections to a PostgreSQL that takes no writes."""

from __future__ import annotations

from typing import Any

from django.db import ConnectionHandler

from apps.runtime.receivers import raise_if_read_only, watch_writes
from crawlyard.settings.database import database


def test_who_wraps_statements_for_a_while_does_not_take_the_watch_away() -> None:
    known = database("postgresql://u:p@127.0.0.1:9/none")
    connection = ConnectionHandler({"default": known})["default"]

    def note(execute: Any, *arguments: Any) -> Any:
        return execute(*arguments)

    # As when the first statement inside it makes the connection.
    with connection.execute_wrapper(note):
        watch_writes(connection)
        watch_writes(connection)
    assert connection.execute_wrappers == [raise_if_read_only]
