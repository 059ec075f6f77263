"""``yardspider run module:Class`` runs a spider on the platform, or locally with ``--local``.

``yardspider init NAME`` makes a new project, ``yardspider describe`` prints its spiders.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from yardkit.env import EnvError
from yardkit.protocol import DownloaderSettings
from yardkit.stop import Stop, die_with_parent_if_asked
from yardspider import environment
from yardspider.accounting import CrawlAccounting
from yardspider.errors import BadInput, RunFailed
from yardspider.item_publisher import ItemPublisher
from yardspider.loader import load_spider, make_spider
from yardspider.local_dataset import LocalDataset
from yardspider.outcome import CrawlOutcome
from yardspider.outputs import ITEMS_FILE, ItemFile, ItemSink, write_exit
from yardspider.project import main as describe_project
from yardspider.request import Request
from yardspider.resources.port import Pools
from yardspider.runner import EXIT_FAILED, exit_content, finish, outcome_content, run_process
from yardspider.saved_requests import read_saved, restored
from yardspider.scaffold import make_project, version
from yardspider.seeds.memory import MemoryFrontier
from yardspider.seeds.port import RunFrontier
from yardspider.settings import SpiderSettings
from yardspider.transports.base import RunTransport

log = logging.getLogger("yardspider")

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# An agent times out before the run does, so that its reason arrives first.
_AGENT_SHARE = 0.8
# A recording needs no politeness.
_UNPACED = {"speed": 0, "slow_start_seconds": 0, "retry_delay_seconds": 0}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 0 exited, 2 failed or bad input, 128 + signal."""
    options = _parser().parse_args(argv)
    _set_up_logging(quiet=options.quiet)
    run_dir: Path | None = None
    try:
        if options.command == "init":
            return _init(options)
        if options.command == "describe":
            return describe_project(options.modules)
        with Stop() as stop:
            die_with_parent_if_asked(os.environ)
            run_dir = environment.read_run_dir(os.environ)
            return _run(options, run_dir, stop)
    except (BadInput, EnvError, RunFailed) as error:
        log.error("%s", error)
        _leave_failure(run_dir, str(error))
        return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="yardspider", description=__doc__)
    parser.add_argument("--version", action="version", version=f"yardspider {version()}")
    parser.set_defaults(quiet=False)
    commands = parser.add_subparsers(dest="command", required=True)
    init = commands.add_parser("init", help="make a project: a spider, its test, its Dockerfile")
    init.add_argument("name", metavar="NAME", help="such as book-shop")
    init.add_argument("--dir", type=Path, metavar="DIR", help="where to; else a folder NAME here")
    describe = commands.add_parser(
        "describe", help="print the project's spiders and their arguments as JSON"
    )
    describe.add_argument(
        "modules", nargs="*", metavar="MODULE", help="such as quotes; else all of this folder"
    )
    run = commands.add_parser("run", help="run a spider to its end")
    run.add_argument("spider", metavar="module:Class", help="such as quotes:Quotes")
    run.add_argument(
        "--local", action="store_true", help="fetch in this process, without any service"
    )
    run.add_argument(
        "--replay", type=Path, metavar="PATH", help="as --local, from a recording instead of sites"
    )
    run.add_argument(
        "--replay-missing",
        choices=("fail", "fetch"),
        default="fail",
        help="what happens to requests that are not recorded",
    )
    run.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting"
    )
    run.add_argument(
        "--argument", action="append", default=[], metavar="KEY=VALUE", help="for the spider"
    )
    output = run.add_mutually_exclusive_group()
    output.add_argument("--output", type=Path, metavar="FILE", help="append items, JSON lines")
    output.add_argument(
        "--dataset", type=Path, metavar="FOLDER", help="of a local run: items as Parquet, and files"
    )
    run.add_argument("--json", action="store_true", help="print one JSON object at the end")
    run.add_argument("--quiet", action="store_true", help="print errors only")
    return parser


def _init(options: argparse.Namespace) -> int:
    for path in make_project(options.name, options.dir):
        sys.stdout.write(f"made {path}\n")
    sys.stdout.flush()
    return 0


class _OneLine(logging.Formatter):
    """Log formatter: UTC; a message cannot forge a second line or colour a terminal."""

    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = super().formatMessage(record)
        return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def _set_up_logging(*, quiet: bool) -> None:
    formatter = _OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.ERROR if quiet else logging.INFO, handlers=[handler])


def _leave_failure(run_dir: Path | None, reason: str) -> None:
    if run_dir is not None:
        try:
            write_exit(run_dir, exit_content("failed", reason, CrawlAccounting()))
        except OSError as error:
            log.error("cannot write into %s: %s", run_dir, error.strerror or error)


def _run(options: argparse.Namespace, run_dir: Path | None, stop: Stop) -> int:
    options.local = options.local or options.replay is not None
    platform = environment.on_platform(os.environ)
    if not (platform or options.local):
        raise BadInput(
            f"{environment.RUN} is not set, so no center fetches for this run; "
            "start it as a job, or add --local to fetch in this process"
        )
    spider_class = load_spider(options.spider)
    arguments, settings = _pairs(options.argument, "--argument"), spider_class.settings
    if platform and not options.local:
        run = environment.read_run(os.environ)
        settings = settings.changed(run.settings, origin="CRAWLYARD_SETTINGS")
        overridden = spider_class.settings.differences(settings)
        if overridden:
            log.info("settings overridden by the job: %s", overridden)
        arguments = {**run.arguments, **arguments}
    if options.replay is not None:
        settings = settings.changed(_UNPACED, origin="--replay")
    settings = settings.changed(_pairs(options.set, "--set"), origin="--set")
    spider = make_spider(spider_class, arguments)
    make_transport: Callable[[], RunTransport]
    frontier: RunFrontier | None
    pools: Pools | None = None
    start: Callable[[], Iterable[Request]] | None = None
    accounting = CrawlAccounting()
    items: Path | ItemSink | None = options.output
    if platform and not options.local:
        if options.dataset is not None:
            raise BadInput("--dataset is for --local: the platform has a dataset for the job")
        copy = None if options.output is None else ItemFile(options.output)
        items = ItemPublisher(run, settings, accounting.dropped, copy)
        make_transport = _platform_transport(run, settings)
        frontier = _platform_frontier(run)
        pools = _platform_pools(run)
        if run.requests:
            start = partial(map, restored, read_saved(run.requests))
    else:
        make_transport = _local_transport(settings, options)
        frontier = MemoryFrontier()
        if options.dataset is not None:
            items = LocalDataset(options.dataset, accounting.dropped)
        elif items is None and run_dir is not None:
            items = run_dir / ITEMS_FILE
    outcome = run_process(
        spider,
        settings,
        make_transport,
        items=items,
        run_dir=run_dir,
        stop=stop,
        frontier=frontier,
        pools=pools,
        accounting=accounting,
        start=start,
    )
    status = finish(outcome, run_dir, stop)
    _print_summary(options, outcome)
    return status


def _pairs(texts: Sequence[str], option: str) -> dict[str, Any]:
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not (separator and key):
            raise BadInput(f"{option} {text!r}: write it as KEY=VALUE")
        pairs[key] = value
    return pairs


def _local_transport(
    settings: SpiderSettings, options: argparse.Namespace
) -> Callable[[], RunTransport]:
    try:
        from yardkit.fetcher import Fetcher
        from yardspider.transports.local import ANYWHERE, LocalTransport
    except ModuleNotFoundError as error:
        raise BadInput(
            f"--local needs {error.name}, which is not installed; "
            "install the SDK as yardspider[local]"
        ) from error
    downloader = environment.read_downloader(os.environ)
    downloader = _timed(msgspec.structs.replace(downloader, allowed_networks=ANYWHERE), settings)
    if options.replay is None:
        return lambda: LocalTransport(downloader)
    from yardkit.recordings import RecordingError, open_recording
    from yardkit.recordings.replay import ReplayFetcher

    try:
        recording = open_recording(options.replay)
    except RecordingError as error:
        raise BadInput(f"--replay {error}") from error
    fetches = options.replay_missing == "fetch"
    return lambda: LocalTransport(
        downloader,
        lambda settings: ReplayFetcher(recording, settings, Fetcher(settings) if fetches else None),
    )


def _platform_transport(
    run: environment.RunEnvironment, settings: SpiderSettings
) -> Callable[[], RunTransport]:
    from yardspider.transports.remote import RemoteTransport

    run = dataclasses.replace(run, downloader=_timed(run.downloader, settings))
    folder = environment.read_run_dir(os.environ)
    return lambda: RemoteTransport(run, settings, folder=folder)


def _platform_frontier(run: environment.RunEnvironment) -> RunFrontier | None:
    if not run.frontier:
        return None
    from yardspider.seeds.remote import RemoteFrontier

    owner = f"run:{run.run}:{run.incarnation}"
    return RemoteFrontier(run.broker_url, run.frontier, run.frontier_token, owner=owner)


def _platform_pools(run: environment.RunEnvironment) -> Pools | None:
    if not run.pools:
        return None
    from yardspider.resources.remote import RemotePools

    owner = f"run:{run.run}:{run.incarnation}"
    return RemotePools(run.broker_url, run.pools, run.pools_token, owner=owner)


def _timed(downloader: DownloaderSettings, settings: SpiderSettings) -> DownloaderSettings:
    longest = settings.request_timeout_seconds * _AGENT_SHARE
    return msgspec.structs.replace(
        downloader, timeout_seconds=min(downloader.timeout_seconds, longest)
    )


def _print_summary(options: argparse.Namespace, outcome: CrawlOutcome) -> None:
    counts = outcome.accounting
    if options.json:
        content = outcome_content(outcome)
        sys.stdout.write(msgspec.json.encode(content).decode() + "\n")
    elif options.local and not options.quiet:
        sys.stdout.write(
            f"{outcome.state}: {counts.pages} pages, {counts.total} requests ({counts.success} "
            f"succeeded, {counts.failed} failed, {counts.left} left), {counts.items} items "
            f"in {outcome.seconds:.1f} s\n"
        )
        if outcome.seeds.any:
            sys.stdout.write(f"seeds: {outcome.seeds}\n")
        for note in outcome.failures:
            sys.stdout.write(f"failed: {note.url}: {note.reason}\n")
    sys.stdout.flush()
