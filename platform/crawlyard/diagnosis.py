"""Checks of ``manage.py doctor``: each connects to one store and reports one line."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
import redis
from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import Error as DatabaseError

from apps.configcenter.models import Configuration
from apps.joblogs.stores.base import LogStoreUnavailable as LogsAway
from apps.joblogs.stores.factory import BadAddress, open_log_store
from apps.jobs.models import Schedule
from apps.jobs.runners.accounts import BrokerAccounts
from apps.jobs.runners.base import RunnerAway
from apps.jobs.runners.factory import DOCKER, make_runner, runner_kind
from apps.requeststore.engine.biz import DEFAULT_NODE
from apps.requeststore.engine.errors import RequestStoreError
from apps.requeststore.engine.validation import read_settings
from apps.requeststore.services.kind import KIND as BIZZES
from apps.requeststore.stores.factory import open_node
from apps.routing.placeholders import placeholders, problems
from apps.routing.queries.tracks import KIND
from apps.runtime.queries import live_daemons, queue_problems
from apps.runtime.services.objects import problem_of_signed_addresses, shared_objects
from apps.seeds.engine.errors import SeedError, StoreInUse
from apps.seeds.models import Frontier
from apps.seeds.stores.factory import open_store
from apps.sources.engine.settings import catalog_of
from apps.sources.queries import KIND as SOURCES
from yardkit.broker import BrokerError, MessageRefused, Outgoing, connect
from yardkit.env import EnvError
from yardkit.errors import first_line
from yardkit.masks import masked
from yardkit.objects import ObjectStoreError
from yardkit.objects.base import probe
from yardkit.protocol import MAX_MESSAGE_BYTES

# Enough for the longest message over a slow link.
PUBLISH_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """Row of the table. ``how`` says how to fix it when it is not ok."""

    setting: str
    value: str
    ok: bool
    detail: str
    how: str = ""


def diagnose() -> list[StoreCheck]:
    """Return every finding; unreachable stores are findings, not exceptions."""
    checks: list[Callable[[], StoreCheck]] = [
        _python,
        _data,
        _database,
        check_broker,
        _cache,
        _seeds,
        *(partial(_requests, name) for name in settings.REQUESTS_NODES),
        _logs,
        _objects,
        _runner,
        _accounts,
        _queues,
        _celery,
        _routers,
        _fetchers,
        _collectors,
        _placeholders,
        _failure_folders,
    ]
    return [check() for check in checks]


def _python() -> StoreCheck:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return StoreCheck("Python", version, ok=sys.version_info >= (3, 11), detail=sys.executable)


def _data() -> StoreCheck:
    # Importing the settings has verified that the folder is writable.
    return StoreCheck("CRAWLYARD_DATA", str(settings.DATA_DIR), ok=True, detail="writable")


def _database() -> StoreCheck:
    shown = masked(settings.DATABASE_URL)
    try:
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SHOW server_version")
            else:
                cursor.execute("SELECT sqlite_version()")
            version = cursor.fetchone()[0]
        executor = MigrationExecutor(connection)
        waiting = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        return StoreCheck(
            "DATABASE_URL",
            shown,
            ok=False,
            detail=first_line(error),
            how="is the server up, and do name, user and password fit?",
        )
    if waiting:
        return StoreCheck(
            "DATABASE_URL",
            shown,
            ok=False,
            detail=f"{connection.vendor} {version}, {len(waiting)} migrations not applied",
            how="make up applies them; without it, run manage.py migrate",
        )
    return StoreCheck("DATABASE_URL", shown, ok=True, detail=f"{connection.vendor} {version}")


def check_broker() -> StoreCheck:
    """Check that the broker takes a message of the largest size; the message goes to no queue."""
    shown = masked(settings.BROKER_URL)
    try:
        broker = connect(settings.BROKER_URL, name="crawlyard doctor", timeout=5.0)
    except BrokerError as error:
        return StoreCheck(
            "BROKER_URL",
            shown,
            ok=False,
            detail=str(error),
            how="sqlite:///path/to/file or amqp://user:password@host:5672/vhost",
        )
    # The broker measures a message before it drops it, so neither queue nor right to one is needed.
    longest = Outgoing(bytes(MAX_MESSAGE_BYTES), f"reply.doctor.{uuid4().hex}", mandatory=False)
    check = partial(StoreCheck, "BROKER_URL", shown)
    try:
        with closing(broker):
            broker.publish([longest]).result(PUBLISH_SECONDS)
    except MessageRefused:
        return check(
            ok=False,
            detail=f"the broker refuses messages of {MAX_MESSAGE_BYTES} bytes",
            how=f"set max_message_size = {MAX_MESSAGE_BYTES}, or more, in its rabbitmq.conf",
        )
    except (BrokerError, TimeoutError) as error:
        if "ACCESS_REFUSED" in str(error):
            detail = "connected; longest message not tried: no right to write to amq.default"
            return check(ok=True, detail=detail)
        problem = str(error) or f"not confirmed in {PUBLISH_SECONDS:g} s"
        how = "is it out of memory or disk? rabbitmqctl status lists alarms"
        return check(ok=False, detail=f"connected; the longest message: {problem}", how=how)
    return check(ok=True, detail="connected")


def _cache() -> StoreCheck:
    if not settings.REDIS_URL:
        return StoreCheck("REDIS_URL", "", ok=True, detail="not set: memory of each process")
    shown = masked(settings.REDIS_URL)
    try:
        cache.set("doctor", "ok", 5)
        works = cache.get("doctor") == "ok"
    except (redis.RedisError, ValueError) as error:
        return StoreCheck(
            "REDIS_URL", shown, ok=False, detail=str(error), how="redis://host:6379/0"
        )
    return StoreCheck("REDIS_URL", shown, ok=works, detail="connected")


def _seeds() -> StoreCheck:
    url = settings.SEEDS_URL
    shown = masked(url)
    try:
        services = live_daemons(kind="seeds").count()
        frontiers = Frontier.objects.count()
    except DatabaseError:
        return StoreCheck("SEEDS_URL", shown, ok=True, detail="not known: see DATABASE_URL")
    running = f"services: {services}, frontiers: {frontiers}"
    try:
        open_store(url).close()
    except StoreInUse as error:
        # It accepts connections, so a process listens.
        if services:
            return StoreCheck("SEEDS_URL", shown, ok=True, detail=f"in use by run_seeds, {running}")
        how = "is a run_seeds of another installation, or without this database, at work?"
        return StoreCheck("SEEDS_URL", shown, ok=False, detail=str(error), how=how)
    except SeedError as error:
        how = "rocksdb:///folder that can be written, or postgresql://user:password@host:5432/name"
        return StoreCheck("SEEDS_URL", shown, ok=False, detail=str(error), how=how)
    return StoreCheck(
        "SEEDS_URL",
        shown,
        ok=bool(services) or not frontiers,
        detail=f"reachable, {running}",
        how="manage.py up starts one; without it, run manage.py run_seeds",
    )


def _requests(name: str) -> StoreCheck:
    """Check a storage node of requests: ``default`` is REQUESTS_URL, others are in
    REQUESTS_NODES.
    """
    url = settings.REQUESTS_NODES[name]
    setting = "REQUESTS_URL" if name == DEFAULT_NODE else f"REQUESTS_NODES {name}"
    shown = masked(url)
    try:
        node = open_node(name, url)
        with closing(node):
            health = node.health()
    except RequestStoreError as error:
        how = "sqlite:///folder, postgresql://host/name or mongodb://host/?replicaSet=rs0"
        return StoreCheck(setting, shown, ok=False, detail=str(error), how=how)
    members = f", {', '.join(health.members)}" if health.members else ""
    return StoreCheck(setting, shown, ok=True, detail=f"{health.kind} {health.version}{members}")


def _logs() -> StoreCheck:
    url = settings.LOGS_URL
    shown = masked(url)
    how = "sqlite:///folder, postgresql://user:password@host:5432/name or http://host:9200"
    try:
        store = open_log_store(url)
        with closing(store):
            store.setup()
            detail = store.check()
            kept = store.usages()
    except (BadAddress, LogsAway) as error:
        return StoreCheck("LOGS_URL", shown, ok=False, detail=str(error), how=how)
    lines, size = sum(usage.lines for usage in kept), sum(usage.bytes for usage in kept)
    text = f"{detail}, {lines} lines, {size / 2**20:.1f} MiB of text"
    return StoreCheck("LOGS_URL", shown, ok=True, detail=text)


def _objects() -> StoreCheck:
    url = settings.OBJECTS_URL
    store = shared_objects()
    try:
        probe(store, f"{socket.gethostname()}-{os.getpid()}")
    except ObjectStoreError as error:
        how = "a folder that can be written, or a bucket and keys that may write"
        return StoreCheck("OBJECTS_URL", url, ok=False, detail=str(error), how=how)
    if problem := problem_of_signed_addresses(store):
        how = "start run_objects, and set OBJECTS_PUBLIC_URL to its address"
        shown = settings.OBJECTS_PUBLIC_URL
        return StoreCheck("OBJECTS_PUBLIC_URL", shown, ok=False, detail=problem, how=how)
    if store.local_path("any") is not None and not settings.BROKER_URL.startswith("sqlite:"):
        detail = "writable; with several hosts the folder must be shared by all of them"
        return StoreCheck("OBJECTS_URL", url, ok=True, detail=detail)
    return StoreCheck("OBJECTS_URL", url, ok=True, detail="writable")


def _runner() -> StoreCheck:
    url = settings.RUNNER_URL
    try:
        in_containers = runner_kind(url) == DOCKER
    except EnvError as error:
        return StoreCheck(
            "RUNNER_URL", url, ok=False, detail=str(error), how="process:// or docker://"
        )
    if not in_containers:
        return StoreCheck("RUNNER_URL", url, ok=True, detail="runs are local processes")
    runner = make_runner(url, installation="", host="", network=settings.RUN_NETWORK)
    try:
        engine = runner.engine()
    except RunnerAway as error:
        how = "is the engine up, and may this user open its socket?"
        return StoreCheck("RUNNER_URL", url, ok=False, detail=str(error), how=how)
    finally:
        runner.close()
    if settings.RUN_BROKER_URL.startswith("sqlite:"):
        return StoreCheck(
            "RUNNER_URL",
            url,
            ok=False,
            detail=f"{engine}, but a container cannot reach the embedded broker",
            how="set BROKER_URL to an amqp:// URL, and RUN_BROKER_URL to one that containers reach",
        )
    return StoreCheck(
        "RUNNER_URL", url, ok=True, detail=f"{engine}, network {settings.RUN_NETWORK}"
    )


def _accounts() -> StoreCheck:
    """Check that spiders have accounts limited to their own queues."""
    name, url = "BROKER_MANAGEMENT_URL", settings.BROKER_MANAGEMENT_URL
    if not url:
        return StoreCheck(
            name, "", ok=True, detail="not set: runs share the broker with the platform, as trusted"
        )
    try:
        accounts = BrokerAccounts(url, settings.RUN_BROKER_URL, installation="")
        who = accounts.check()
    except (ValueError, RunnerAway) as error:
        how = "http://user:password@host:15672 of a RabbitMQ user with the tag administrator"
        return StoreCheck(name, masked(url), ok=False, detail=str(error), how=how)
    return StoreCheck(
        name, masked(url), ok=True, detail=f"{who} makes each run an account of its own"
    )


def _queues() -> StoreCheck:
    try:
        watched = live_daemons(kind="monitor").exists()
        problems = queue_problems()
    except DatabaseError:
        # Reported by the check of the database.
        return StoreCheck("Queues", "", ok=True, detail="not known: see DATABASE_URL")
    if not watched:
        return StoreCheck("Queues", "", ok=True, detail="not known: no run_monitor is running")
    return StoreCheck(
        "Queues",
        "",
        ok=not problems,
        detail="; ".join(f"{name}: {problem}" for name, problem in sorted(problems.items()))
        or "the monitor's messages come back",
        how="restart the process that reads the queue; docs/runbook.md names it",
    )


def _celery() -> StoreCheck:
    shown = urlsplit(settings.CELERY_BROKER_URL).scheme
    try:
        workers, beats = (live_daemons(kind=kind).count() for kind in ("worker", "beat"))
        schedules = Schedule.objects.filter(next_at__isnull=False).count()
    except DatabaseError:
        # Reported by the check of the database.
        return StoreCheck("Celery", shown, ok=True, detail="not known: see DATABASE_URL")
    return StoreCheck(
        "Celery",
        shown,
        ok=not schedules or bool(workers and beats),
        detail=f"workers: {workers}, beats: {beats}, jobs with a schedule: {schedules}",
        how="manage.py up starts both; without it, run manage.py run_worker and run_beat",
    )


def _routers() -> StoreCheck:
    try:
        routers = live_daemons(kind="router").count()
        rules = Configuration.objects.filter(kind=KIND, active__isnull=False).count()
    except DatabaseError:
        return StoreCheck("Router", "", ok=True, detail="not known: see DATABASE_URL")
    return StoreCheck(
        "Router",
        "",
        ok=bool(routers) or not rules,
        detail=f"routers: {routers}, projects with active rules: {rules}",
        how="manage.py up starts one; without it, run manage.py run_router",
    )


def _fetchers() -> StoreCheck:
    try:
        fetchers = live_daemons(kind="fetcher").count()
        configurations = Configuration.objects.filter(kind=BIZZES, active__isnull=False)
        rows = configurations.select_related("active")
        books = [read_settings(row.active.data)[0] for row in rows if row.active is not None]
    except DatabaseError:
        return StoreCheck("Fetcher", "", ok=True, detail="not known: see DATABASE_URL")
    count = sum(biz.enabled for book in books if book for biz in book.bizzes.values())
    return StoreCheck(
        "Fetcher",
        "",
        ok=bool(fetchers) or not count,
        detail=f"fetchers: {fetchers}, enabled bizzes: {count}",
        how="manage.py up starts one; without it, run manage.py run_fetcher",
    )


def _collectors() -> StoreCheck:
    try:
        collectors = live_daemons(kind="collector").count()
        configurations = Configuration.objects.filter(kind=SOURCES, active__isnull=False)
        count = sum(
            source.enabled
            for row in configurations.select_related("active")
            if row.active is not None
            for source in catalog_of(row.active.data).sources.values()
        )
    except DatabaseError:
        return StoreCheck("Collector", "", ok=True, detail="not known: see DATABASE_URL")
    except msgspec.ValidationError as error:
        how = "save the sources of that project anew"
        return StoreCheck(
            "Collector", "", ok=False, detail=f"settings of sources: {error}", how=how
        )
    return StoreCheck(
        "Collector",
        "",
        ok=bool(collectors) or not count,
        detail=f"collectors: {collectors}, enabled sources: {count}",
        how="manage.py up starts one; without it, run manage.py run_collector",
    )


def _placeholders() -> StoreCheck:
    """List the names only: a value may be a password."""
    name, shown = "ROUTING_PLACEHOLDERS", ", ".join(sorted(placeholders("project")))
    rules = Configuration.objects.filter(kind=KIND).select_related("active", "project")
    try:
        problems_found = [
            f"project {configuration.home_slug}: {problem}"
            for configuration in rules
            if configuration.active
            for problem in problems(configuration.active.data)
        ]
    except DatabaseError:
        return StoreCheck(name, shown, ok=True, detail="rules not known: see DATABASE_URL")
    if problems_found:
        return StoreCheck(
            name, shown, ok=False, detail=problems_found[0], how="or mend the rules of the project"
        )
    return StoreCheck(name, shown, ok=True, detail="all that active rules name have a value")


def _failure_folders() -> StoreCheck:
    shown = ", ".join(map(str, settings.ROUTING_FAILURE_DIRS))
    bad = [folder for folder in settings.ROUTING_FAILURE_DIRS if not _may_write(_nearest(folder))]
    how = f"let this user write to {bad[0]}" if bad else ""
    return StoreCheck("ROUTING_FAILURE_DIRS", shown, ok=not bad, detail="failure files", how=how)


def _may_write(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _nearest(folder: Path) -> Path:
    """Return the folder, or its nearest existing parent: missing folders are created on use."""
    return next(existing for existing in (folder, *folder.parents) if existing.exists())
