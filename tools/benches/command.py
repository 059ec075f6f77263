"""manage.py bench NAME: one measurement beside its peer or its limit, in one run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tools.benches import (
    api,
    dispatch,
    download,
    harvest,
    heartbeats,
    items,
    logs,
    requests,
    router,
    routing,
    scrapy_runs,
    seeds,
    web,
)
from tools.benches.measuring import BenchFailed

# Dimensions that are multiplied by default: the cost per unit must not grow with them.
GROWTH = (1, 3, 10)
PAGES = 3000
# What runs each, and the arguments it takes.
BENCHES: dict[str, tuple[Callable[..., dict[str, Any]], tuple[str, ...]]] = {
    "download": (download.run, ("pages", "scales", "peer")),
    "scrapy": (scrapy_runs.run, ("pages", "scales", "peer")),
    "heartbeats": (heartbeats.run, ("agents", "seconds")),
    "dispatch": (dispatch.run, ("policies", "sizes", "rate", "seconds", "polite")),
    "routing": (routing.run, ("sizes", "items", "scales", "peer")),
    "router": (router.run, ("items", "scales", "peer")),
    "seeds": (seeds.run, ("seeds", "scales", "store", "peer")),
    "requests": (requests.run, ("requests", "scales", "store", "peer", "servers")),
    "harvest": (harvest.run, ("records", "scales", "servers")),
    "api": (api.run, ("rows", "scales", "servers", "calls", "fresh")),
    "logs": (logs.run, ("lines", "scales", "peer", "servers")),
    "items": (items.run, ("items", "scale", "peer", "servers")),
}


class Command(BaseCommand):
    """Run one bench and print its figures as text, or as one JSON object with --json."""

    help = "Measure; figures count only as ratios within one run."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the name of the bench and its sizes."""
        parser.add_argument("name", choices=BENCHES)
        parser.add_argument("--json", action="store_true", help="one JSON object")
        parser.add_argument(
            "--scale",
            type=int,
            help="factor of the size (1, 3 and 10 in turn); dispatch: of the requests a second (1)",
        )
        parser.add_argument(
            "--no-peer",
            action="store_true",
            help="do not measure the peer, the same work by the store's own client",
        )
        parser.add_argument(
            "--engines",
            choices=("embedded", "configured"),
            default="embedded",
            help="configured: the stores of the settings",
        )
        parser.add_argument(
            "--store",
            default="",
            help="seeds: URL of an empty store; requests: of a node, such as mongodb://...",
        )
        _add_sizes(parser)
        _add_dispatch(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Measure and print."""
        numbers = (
            *("scale", "pages", "agents", "seconds", "rate", "items", "seeds", "requests"),
            *("records", "rows", "calls", "lines", "rounds"),
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
        for side in ("ours", "peer", "bare", "growth"):
            if result.get(side):
                for line in _lines(result[side]):
                    self.stdout.write(f"{side:>6}: {line}")
        if result["ratio"] is not None:
            self.stdout.write(f" ratio: {result['ratio']} times what the peer does in a second")
        if result["limit_ratio"] is not None:
            self.stdout.write(f" limit: {result['limit']}, used {result['limit_ratio']} of it")


def _add_sizes(parser: CommandParser) -> None:
    parser.add_argument(
        "--pages", type=int, help=f"download, scrapy: at scale 1 ({PAGES}; web: {web.PAGES})"
    )
    parser.add_argument(
        "--profile",
        choices=("local", "web"),
        default="local",
        help="download: web for TLS, compressed pages of 100 KB, 5,000 hosts and politeness",
    )
    parser.add_argument(
        "--rounds", type=int, help=f"download --profile web: crawls of each side ({web.ROUNDS})"
    )
    parser.add_argument("--agents", type=int, default=1000, help="heartbeats: at scale 1")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[10, 100, 1000],
        help="dispatch: numbers of runs, and of agents a run; routing: of outbounds",
    )
    parser.add_argument(
        "--items",
        type=int,
        help=f"routing, router: items at scale 1 ({routing.ITEMS}); items: their number"
        f" ({items.ITEMS})",
    )
    parser.add_argument("--seeds", type=int, default=seeds.SEEDS, help="seeds: adds at scale 1")
    parser.add_argument(
        "--requests", type=int, default=requests.REQUESTS, help="requests: at scale 1"
    )
    parser.add_argument("--lines", type=int, default=logs.LINES, help="logs: at scale 1")
    parser.add_argument("--records", type=int, default=harvest.RECORDS, help="harvest: at scale 1")
    parser.add_argument("--rows", type=int, default=api.ROWS, help="api: of a list at scale 1")
    parser.add_argument("--calls", type=int, default=api.CALLS, help="api: calls of each list")
    parser.add_argument("--fresh", action="store_true", help="api: create the rows again")


def _add_dispatch(parser: CommandParser) -> None:
    parser.add_argument("--seconds", type=float, help="heartbeats, dispatch: seconds a size")
    parser.add_argument(
        "--rate", type=int, default=2000, help="dispatch: requests a second of all runs"
    )
    parser.add_argument(
        "--policies",
        nargs="+",
        choices=dispatch.POLICIES,
        default=list(dispatch.POLICIES),
        help="dispatch: agent policies",
    )
    parser.add_argument(
        "--polite", action="store_true", help="dispatch: with politeness, without limits"
    )


def _run(options: dict[str, Any]) -> dict[str, Any]:
    scales = [options["scale"]] if options["scale"] else GROWTH
    values = {
        **options,
        "scales": scales,
        "agents": [options["agents"] * scale for scale in scales],
        "rate": options["rate"] * (options["scale"] or 1),
        "peer": not options["no_peer"],
        "servers": options["engines"] == "configured",
    }
    run, names = BENCHES[options["name"]]
    if options["profile"] == "web":
        if options["name"] != "download":
            raise CommandError("--profile web is for download", returncode=2)
        run, names = web.run, ("pages", "peer", "rounds")
    elif values["pages"] is None:
        values["pages"] = PAGES
    # None: as the bench itself has it.
    return run(**{name: values[name] for name in names if values[name] is not None})


def _lines(side: dict[str, Any]) -> list[str]:
    """One line for the figures, and one for each item of a list among them."""
    plain = {name: value for name, value in side.items() if not isinstance(value, list)}
    lines = [", ".join(f"{name} {value}" for name, value in plain.items())]
    for value in side.values():
        if isinstance(value, list):
            lines += [", ".join(f"{name} {one[name]}" for name in one) for one in value]
    return lines
