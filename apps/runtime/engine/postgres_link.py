"""TCP keep-alive settings that detect a lost PostgreSQL server.

A host that loses power, or a firewall that drops a connection, sends nothing: by default the system
probes after two hours, and waits fifteen minutes for unacknowledged data. Options in the query of
the URL take precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# In seconds, except the last, which is in milliseconds.
LINK: Final[Mapping[str, int]] = {
    "connect_timeout": 5,
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


def link_options(url: str) -> dict[str, Any]:
    """Return the options that the URL does not set; none for an invalid URL."""
    import psycopg

    try:
        given = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        given = {}
    return {name: value for name, value in LINK.items() if name not in given}
