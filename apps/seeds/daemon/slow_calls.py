"""Slow calls, answered one after another by separate threads.

Calls that need no seeds are in ``HANDLERS``: from a message type to the function that answers it,
which may raise ``SeedError``. The caller manages database connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from apps.seeds.daemon.call_handler import SeedCallHandler
from apps.seeds.daemon.resources import HANDLERS as RESOURCES
from apps.seeds.stores.operations import decode_operation, perform
from yardkit.protocol import AnyMessage, ManageSeeds, SeedsManaged

HANDLERS: Final[dict[type, Callable[[Any], AnyMessage]]] = {**RESOURCES}


def manage(handler: SeedCallHandler, call: ManageSeeds, now: int) -> SeedsManaged:
    """Execute a management call. Raises ``SeedError``, ``DatabaseError``."""
    frontiers = handler.frontiers
    frontiers.managed(call.frontier, call.token)
    # Reload, so that earlier changes of the frontier apply to this call.
    frontiers.look()
    active = frontiers.managed(call.frontier, call.token)
    active.check_usable()
    operation = decode_operation(call.operation)
    result = perform(handler.store, call.frontier, active.rules, operation, now)
    return SeedsManaged(result=msgspec.Raw(msgspec.msgpack.encode(result)))
