"""manage.py bench NAME: one measurement beside its peer or its limit, in one run."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from crawlyard.benches import (
    api,
    dispatch,
    download,
    harvest,
    heartbeats,
    logs,
    requests,
    router,
    routing,
    seeds,
)
from crawlyard.benches.measuring import BenchFailed

BENCHES = (
    *("download", "heartbeats", "dispatch", "routing", "router", "seeds", "requests", "harvest"),
    *("api", "logs"),
)
# What is multiplied when nobody says by how much: cost per unit must not grow with it.
GROWTH = (1, 3, 10)


class Command(BaseCommand):
    """Figures for people, or one JSON object with --json."""

    help = "Measure; figures count only as ratios within one run."

    def add_arguments(self, parser: CommandParser) -> None:
        """What to measure and how big."""
        parser.add_argument(
            "name",
            choices=BENCHES,
        )
        parser.add_argument("--json", action="store_true", help="one JSON object")
        parser.add_argument(
            "--scale",
            type=int,
            help="multiply the pages, agents, items, seeds, requests, records, rows or lines (1, 3"
            " and 10 in turn); dispatch: the requests a second (1)",
        )
        parser.add_argument("--pages", type=int, default=3000, help="download: at scale 1")
        parser.add_argument(
            "--no-peer", action="store_true", help="all but heartbeats and dispatch: ours alone"
        )
        parser.add_argument("--agents", type=int, default=1000, help="heartbeats: at scale 1")
        parser.add_argument(
            "--seconds", type=float, help="heartbeats, dispatch: how long to look at each size"
        )
        parser.add_argument(
            "--rate", type=int, default=2000, help="dispatch: requests a second of all runs"
        )
        parser.add_argument(
            "--sizes",
            type=int,
            nargs="+",
            default=[10, 100, 1000],
            help="dispatch: how many runs, and how many agents a run; routing: outbounds",
        )
        parser.add_argument(
            "--items", type=int, default=routing.ITEMS, help="routing, router: items at scale 1"
        )
        parser.add_argument("--seeds", type=int, default=seeds.SEEDS, help="seeds: adds at scale 1")
        parser.add_argument(
            "--requests", type=int, default=requests.REQUESTS, help="requests: at scale 1"
        )
        parser.add_argument("--lines", type=int, default=logs.LINES, help="logs: at scale 1")
        parser.add_argument(
            "--records", type=int, default=harvest.RECORDS, help="harvest: at scale 1"
        )
        parser.add_argument("--rows", type=int, default=api.ROWS, help="api: of a list at scale 1")
        parser.add_argument(
            "--calls", type=int, default=api.CALLS, help="api: how often each list is asked for"
        )
        parser.add_argument(
            "--fresh", action="store_true", help="api: without the rows of the last time"
        )
        parser.add_argument(
            "--store",
            default="",
            help="seeds: address of an empty store (RocksDB of its own); requests: of one more"
            " node, such as mongodb://...",
        )
        parser.add_argument(
            "--policies",
            nargs="+",
            choices=dispatch.POLICIES,
            default=list(dispatch.POLICIES),
            help="dispatch: how the runs' agents are chosen",
        )
        parser.add_argument(
            "--polite",
            action="store_true",
            help="dispatch: to hosts that must be spared, without any limit",
        )
        parser.add_argument(
            "--engines",
            choices=("embedded", "configured"),
            default="embedded",
            help="configured: the stores that DATABASE_URL, BROKER_URL and REDIS_URL name",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Measure and print."""
        numbers = (
            *("scale", "pages", "agents", "seconds", "rate", "items", "seeds", "requests"),
            *("records", "rows", "calls", "lines"),
        )
        if any(options[one] is not None and options[one] <= 0 for one in numbers):
            raise CommandError("sizes must be above 0", returncode=2)
        if any(size < 1 for size in options["sizes"]):
            raise CommandError("--sizes must be above 0", returncode=2)
        try:
            result = _run(options)
        except BenchFailed as failure:
            raise CommandError(str(failure), returncode=1) from failure
        if options["json"]:
            self.stdout.write(json.dumps(result))
            return
        self._print(result)

    def _print(self, result: dict[str, Any]) -> None:
        for side in ("ours", "peer", "growth"):
            if result.get(side):
                for line in _lines(result[side]):
                    self.stdout.write(f"{side:>6}: {line}")
        if result["ratio"] is not None:
            self.stdout.write(f" ratio: {result['ratio']} times what the peer does in a second")
        if result["limit_ratio"] is not None:
            self.stdout.write(f" limit: {result['limit']}, used {result['limit_ratio']} of it")


def _run(options: dict[str, Any]) -> dict[str, Any]:
    scale, seconds = options["scale"], options["seconds"]
    if options["name"] == "heartbeats":
        agents = [options["agents"] * one for one in ([scale] if scale else GROWTH)]
        return heartbeats.run(agents=agents, seconds=seconds or heartbeats.SECONDS)
    if options["name"] == "dispatch":
        return dispatch.run(
            policies=options["policies"],
            sizes=options["sizes"],
            rate=options["rate"] * (scale or 1),
            seconds=seconds or dispatch.SECONDS,
            polite=options["polite"],
        )
    if options["name"] == "routing":
        return routing.run(
            sizes=options["sizes"],
            items=options["items"],
            scales=[scale] if scale else GROWTH,
            peer=not options["no_peer"],
        )
    if options["name"] == "router":
        return router.run(
            items=options["items"],
            scales=[scale] if scale else GROWTH,
            peer=not options["no_peer"],
        )
    if options["name"] == "seeds":
        return seeds.run(
            seeds=options["seeds"],
            scales=[scale] if scale else GROWTH,
            store=options["store"],
            peer=not options["no_peer"],
        )
    if options["name"] == "logs":
        return logs.run(
            lines=options["lines"],
            scales=[scale] if scale else GROWTH,
            peer=not options["no_peer"],
            servers=options["engines"] == "configured",
        )
    if options["name"] == "requests":
        return requests.run(
            requests=options["requests"],
            scales=[scale] if scale else GROWTH,
            store=options["store"],
            peer=not options["no_peer"],
            servers=options["engines"] == "configured",
        )
    if options["name"] == "api":
        return api.run(
            rows=options["rows"],
            scales=[scale] if scale else GROWTH,
            servers=options["engines"] == "configured",
            calls=options["calls"],
            fresh=options["fresh"],
        )
    if options["name"] == "harvest":
        return harvest.run(
            records=options["records"],
            scales=[scale] if scale else GROWTH,
            servers=options["engines"] == "configured",
        )
    return download.run(
        pages=options["pages"],
        scales=[scale] if scale else GROWTH,
        peer=not options["no_peer"],
    )


def _lines(side: dict[str, Any]) -> list[str]:
    """One line for the figures, and one for each item of a list among them."""
    plain = {name: value for name, value in side.items() if not isinstance(value, list)}
    lines = [", ".join(f"{name} {value}" for name, value in plain.items())]
    for value in side.values():
        if isinstance(value, list):
            lines += [", ".join(f"{name} {one[name]}" for name in one) for one in value]
    return lines
