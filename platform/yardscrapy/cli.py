"""``yardscrapy crawl NAME`` runs a spider of a Scrapy project, on the platform or locally.

The options are those of ``scrapy crawl``: -a, -s, -o, -O, -L and so on, and of local runs
--dataset FOLDER, --replay PATH and --replay-missing fail|fetch.
``yardscrapy describe`` prints the project's spiders as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from yardkit.env import EnvError
from yardkit.stop import die_with_parent_if_asked
from yardspider import environment
from yardspider.accounting import CrawlAccounting
from yardspider.errors import BadInput, RunFailed
from yardspider.outputs import write_exit
from yardspider.runner import EXIT_FAILED, exit_content

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from yardscrapy.session import Session

log = logging.getLogger("yardscrapy")

_STOPPED: Final = 143  # 128 + SIGTERM
_CLOSE_SECONDS: Final = 3.0
# A hung connection must not keep an ended crawl: the limits of the parts are smaller.
_FINISH_SECONDS: Final = 65.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 0 exited, 2 failed or bad input, 143 stopped."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="yardscrapy", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=["crawl", "describe"])
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...")
    options = parser.parse_args(words)
    if options.command == "describe":
        from yardscrapy import describe

        return describe.main(options.rest)
    run_dir: Path | None = None
    try:
        die_with_parent_if_asked(os.environ)
        run_dir = environment.read_run_dir(os.environ)
        return _crawl(options.rest, run_dir)
    except (BadInput, EnvError, RunFailed) as error:
        sys.stderr.write(f"yardscrapy: {error}\n")
        if run_dir is not None:
            write_exit(run_dir, exit_content("failed", str(error), CrawlAccounting()))
        return EXIT_FAILED


def _crawl(words: list[str], run_dir: Path | None) -> int:
    from yardscrapy.session import open_session

    settings = _project_settings()
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--dataset", type=Path, metavar="FOLDER")
    own.add_argument("--replay", type=Path, metavar="PATH")
    own.add_argument("--replay-missing", choices=("fail", "fetch"), default="fail")
    mine, words = own.parse_known_args(words)
    name, arguments = _read_words(words, settings)
    session = open_session(os.environ)
    if session is None:
        return _crawl_locally(name, arguments, settings, mine)
    if mine.dataset is not None:
        raise BadInput("--dataset is for local runs: the platform has a dataset for the job")
    if mine.replay is not None:
        raise BadInput("--replay is for local runs: on the platform, agents replay")
    from yardscrapy import addon, extension, logs

    logs.install(settings)
    ours = {addon.PATH: addon.ORDER, extension.ReportAddon: addon.ORDER + 1}
    addons = {**settings.getdict("ADDONS"), **ours}
    settings.set("ADDONS", addons, priority="cmdline")
    arguments = {"_job": str(session.run.run), **session.run.arguments, **arguments}
    began = time.monotonic()
    crawl = _run(name, arguments, settings)
    return _finish(session, crawl, run_dir, time.monotonic() - began)


def _project_settings() -> Settings:
    from scrapy.utils.project import get_project_settings, inside_project

    try:
        settings = get_project_settings()
        inside = inside_project()
    except Exception as error:
        traceback.print_exc()
        raise BadInput(f"the project's settings cannot be read: {_described(error)}") from error
    if not inside:
        raise BadInput(
            f"no Scrapy project in {Path.cwd()}: there is no scrapy.cfg in it or above it,"
            " and SCRAPY_SETTINGS_MODULE names no module that can be imported"
        )
    return settings


def _read_words(words: list[str], settings: Settings) -> tuple[str, dict[str, Any]]:
    """Apply the options of ``scrapy crawl``; return the spider's name and arguments."""
    from scrapy.commands.crawl import Command
    from scrapy.exceptions import UsageError

    command = Command()
    parser = argparse.ArgumentParser(
        prog="yardscrapy crawl",
        usage="yardscrapy crawl NAME [--dataset FOLDER] [--replay PATH] [options]",
        conflict_handler="resolve",
    )
    settings.setdict(command.default_settings, priority="command")
    command.settings = settings
    command.add_options(parser)
    options, names = parser.parse_known_args(words)
    try:
        command.process_options(names, options)
    except UsageError as error:
        raise BadInput(str(error)) from error
    if len(names) != 1:
        raise BadInput(f"name one spider: yardscrapy crawl NAME, not {' '.join(names) or 'none'}")
    return names[0], dict(options.spargs)


class _Crawl:
    """A crawl that has ended. ``problem``: why it could not be run."""

    def __init__(self) -> None:
        self.crawler: Any = None
        self.problem = ""

    @property
    def stats(self) -> dict[str, Any]:
        # From 2.18 the attribute raises while there are none.
        try:
            stats = self.crawler.stats
        except RuntimeError:
            return {}
        return {} if stats is None else dict(stats.get_stats())


def _run(name: str, arguments: dict[str, Any], settings: Settings) -> _Crawl:
    """Run a spider to its end with Scrapy's public API."""
    crawl = _Crawl()
    process = _process(settings)
    try:
        crawl.crawler = process.create_crawler(name)
    except KeyError as error:
        spiders = sorted(process.spider_loader.list())
        raise BadInput(
            f"there is no spider {name!r} in this project; "
            f"there are: {', '.join(spiders) or 'none'}"
        ) from error
    ended = process.crawl(crawl.crawler, **arguments)

    def note(error: BaseException | None) -> None:
        if error is not None and not isinstance(error, asyncio.CancelledError):
            crawl.problem = f"the crawl could not be run: {_described(error)}"
            log.error("%s", crawl.problem, exc_info=error)

    if isinstance(ended, asyncio.Future):
        ended.add_done_callback(lambda task: note(None if task.cancelled() else task.exception()))
    else:
        ended.addErrback(lambda failure: note(failure.value))
    process.start()
    return crawl


def _process(settings: Settings) -> Any:
    """Return the process class that ``scrapy crawl`` would take."""
    from scrapy import crawler

    asyncio_reactor = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
    awaits = settings["TWISTED_REACTOR"] == asyncio_reactor and not settings.getbool(
        "FORCE_CRAWLER_PROCESS"
    )
    without_reactor = not settings.getbool("TWISTED_REACTOR_ENABLED", True)
    try:
        if (awaits or without_reactor) and hasattr(crawler, "AsyncCrawlerProcess"):
            return crawler.AsyncCrawlerProcess(settings)
        return crawler.CrawlerProcess(settings)
    except Exception as error:
        traceback.print_exc()
        raise BadInput(f"the project's spiders cannot be read: {_described(error)}") from error


def _finish(session: Session, crawl: _Crawl, run_dir: Path | None, seconds: float) -> int:
    """Send what is left, write ``exit.json``; return the exit status."""
    from yardscrapy import extension
    from yardscrapy.outcome import exceptions_in, judge
    from yardscrapy.report import stats_json

    client, control, problem = session.client, extension.control_of_run, crawl.problem
    stats = crawl.stats
    stop_reason = finish = ""
    if control is not None:
        stop_reason = control.stop_reason
        finish = control.close_reason
        failure = control.failure
        hurry = bool(stop_reason or failure) or finish == "shutdown"
        if client.transport is not None:
            last = asyncio.run_coroutine_threadsafe(control.finish(stats, hurry=hurry), client.loop)
            failure = failure or last.result(_FINISH_SECONDS)
        problem = problem or str(failure or "")
    client.close(_CLOSE_SECONDS)
    counts = session.accounting
    state, reason = judge(stats, counts, finish=finish, problem=problem, stop_reason=stop_reason)
    if run_dir is not None:
        content = exit_content(state, reason, counts, seconds)
        content |= {"exceptions": exceptions_in(stats), "scrapy": stats_json(stats)}
        write_exit(run_dir, content)
    log.info(
        "ended after %.1f s: %s%s; %d requests succeeded, %d failed; %d items",
        seconds,
        state,
        f" ({reason})" if reason else "",
        counts.success,
        counts.failed,
        counts.items,
    )
    if state == "stopped":
        return _STOPPED
    return 0 if state == "exited" else EXIT_FAILED


def _crawl_locally(
    name: str, arguments: dict[str, Any], settings: Settings, mine: argparse.Namespace
) -> int:
    """Run as ``scrapy crawl`` would; keep items and files in a dataset, replay, if asked for."""
    from yardscrapy import local

    if mine.replay is not None:
        from yardscrapy import replay

        replay.use(mine.replay, settings, fetches_missing=mine.replay_missing == "fetch")
    sink = local.open_sink(mine.dataset)
    local.use(sink, settings)
    crawl = _run(name, arguments, settings)
    asyncio.run(sink.finish(0.0))
    if crawl.problem or crawl.crawler.spider is None:
        return EXIT_FAILED
    return 0


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
