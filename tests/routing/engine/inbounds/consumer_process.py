"""Router process that a test kills: takes, acknowledges some items, prints them and waits.

``python -m tests.routing.engine.inbounds.consumer_process ORDER`` with the JSON of ``Maker.order``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from apps.routing.engine.inbounds.base import Context, Inbound
from apps.routing.engine.inbounds.registry import find


def main() -> None:
    order = json.loads(sys.argv[1])
    fields = order["context"] | {name: Path(order["context"][name]) for name in ("state", "files")}
    inbound: Inbound = find(order["cls"])(Context(**fields), order["init"])
    limit, acks = order["limit"], order["acks"]
    taken = []
    while len(taken) < limit:
        taken += inbound.take(limit, 0.5)
    inbound.ack([each.handle for each in taken[:acks]])
    # At its limit it gets these only because the acks were heard.
    while len(taken) < limit + acks:
        taken += inbound.take(limit, 0.5)
    print(json.dumps([each.raw.decode() for each in taken]), flush=True)
    while True:
        inbound.take(limit, 1.0)


if __name__ == "__main__":
    main()
