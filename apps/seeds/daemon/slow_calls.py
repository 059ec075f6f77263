"""Calls that may take their time, answered by threads of their own, one after another.

What needs no seeds has its place in ``HANDLERS``: from a message to the function that answers it.
It may raise ``SeedError`` for what is refused; connections to the database are looked after.
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


def manage(desk: SeedCallHandler, call: ManageSeeds, now: int) -> SeedsManaged:
    """Execute a management call. Raises ``SeedError``, ``DatabaseError``."""
    frontiers = desk.frontiers
    frontiers.managed(call.frontier, call.token)
    # A change of the frontier made before this call is in effect for all calls.
    frontiers.look()
    ground = frontiers.managed(call.frontier, call.token)
    ground.check_usable()
    operation = decode_operation(call.operation)
    result = perform(desk.store, call.frontier, ground.rules, operation, now)
    return SeedsManaged(result=msgspec.Raw(msgspec.msgpack.encode(result)))
