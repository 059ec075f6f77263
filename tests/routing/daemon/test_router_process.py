"""A real router process between real servers."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.e2e.daemon_processes import Daemons
from yardkit.broker import Broker, Outgoing, QueueSpec, connect

pytestmark = pytest.mark.slow("routers as processes")

PATIENCE_SECONDS = 60.0
RULES = """
import json, sys
from apps.configcenter.services import activate, save_version
from apps.projects.models import Project
from django.utils import timezone
project, _ = Project.objects.get_or_create(slug="routed", defaults={"name": "routed"})
data = {"version": 1, "needs": 1, "project": "routed", **json.loads(%r)}
saved = save_version(
    kind="routing", project_id=project.pk, data=data, actor=None, now=timezone.now()
)
activate(version=saved.version, actor=None, now=timezone.now())
"""
ASK = """
import json
from apps.projects.models import Project
from apps.routing.queries import reconcile_items
audit = reconcile_items(Project.objects.get(slug="routed").pk)
print(json.dumps({
    "rows": audit.rows, "holds": audit.holds, "received": audit.books.received,
    "filtered": audit.books.filtered, "results": audit.books.results,
}))
"""


class Site:
    """HTTP server that records received items."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        # While cleared, no request is answered.
        self.answers = threading.Event()
        self.answers.set()
        self.asked = threading.Event()
        items, answers, asked = self.items, self.answers, self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                asked.set()
                if not answers.is_set():
                    # The client times out long before.
                    answers.wait(PATIENCE_SECONDS)
                    return
                items.append(json.loads(body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                """Do not log requests."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/items"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.answers.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def wait_for(condition: Callable[[], object], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


@contextmanager
def running(folder: Path, **environment: str) -> Iterator[Daemons]:
    daemons = Daemons(folder, **environment)
    daemons.migrate()
    try:
        yield daemons
    finally:
        daemons.end()


def use(daemons: Daemons, **rules: Any) -> None:
    daemons.manage("shell", "-v0", "-c", RULES % json.dumps(rules))


def ask(daemons: Daemons) -> dict[str, Any]:
    answer = daemons.manage("shell", "-v0", "-c", ASK).stdout.splitlines()[-1]
    found: dict[str, Any] = json.loads(answer)
    return found


@pytest.mark.timeout(240)
@pytest.mark.covers("S2.3")
def test_from_a_file_to_a_web_service_with_nothing_but_python(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    environment = {
        "ROUTING_FILES_DIR": str(files),
        "ROUTING_ALLOWED_NETWORKS": "127.0.0.0/8",
        "DATABASE_URL": f"sqlite:///{tmp_path / 'crawlyard.sqlite3'}",
        "BROKER_URL": f"sqlite:///{tmp_path / 'broker.sqlite3'}",
    }
    lines = files / "in.jsonl"
    with running(tmp_path, **environment) as daemons, closing(Site()) as site:
        daemons.start("router", "run_router")
        daemons.until_logged("router", "is running")
        # Rules are activated while it runs.
        use(
            daemons,
            inbound=[{"name": "logs", "class": "file.FileInbound", "init": {"path": "in.jsonl"}}],
            outbound=[
                {
                    "name": "site",
                    "class": "http.HttpOutbound",
                    "init": {"url": site.url},
                    "selector": ["n >= 0"],
                }
            ],
        )
        lines.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(50)), "utf-8")
        wait_for(lambda: len(site.items) == 50, lambda: daemons.log("router"))
        assert "running" in daemons.manage("run_router", "--status").stdout
        status, seconds = daemons.stop("router", signal.SIGTERM)
        assert status == 0, daemons.log("router")
        assert seconds < 5.0
        assert "Traceback" not in daemons.log("router")
        with lines.open("a", encoding="utf-8") as more:
            more.write('{"n": 50}\n{"n": -1}\nno item\n')
        daemons.manage("run_router", "--once", "--project", "routed")
        assert [each["n"] for each in site.items] == list(range(51))
        told = ask(daemons)
        assert told["holds"]
        assert told["rows"] == {"succeeded": 51, "rejected": 1, "dead": 1}
        daemons.manage("run_router", "--project", "nobody", "--once", status=1)


@pytest.mark.timeout(240)
def test_a_target_that_hangs_holds_up_no_stop_and_gets_everything_later(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    environment = {
        "ROUTING_FILES_DIR": str(files),
        "ROUTING_ALLOWED_NETWORKS": "127.0.0.0/8",
        "DATABASE_URL": f"sqlite:///{tmp_path / 'crawlyard.sqlite3'}",
        "BROKER_URL": f"sqlite:///{tmp_path / 'broker.sqlite3'}",
    }
    (files / "in.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(20)), "utf-8")
    with running(tmp_path, **environment) as daemons, closing(Site()) as site:
        site.answers.clear()
        use(
            daemons,
            inbound=[{"name": "logs", "class": "file.FileInbound", "init": {"path": "in.jsonl"}}],
            outbound=[
                {
                    "name": "site",
                    "class": "http.HttpOutbound",
                    "init": {"url": site.url},
                    "selector": ["True"],
                }
            ],
        )
        daemons.start("router", "run_router")
        assert site.asked.wait(PATIENCE_SECONDS), daemons.log("router")
        _, seconds = daemons.stop("router", signal.SIGTERM)
        assert seconds < 5.0
        assert ask(daemons)["holds"]
        site.answers.set()
        daemons.start("router", "run_router")
        wait_for(
            lambda: len({each["n"] for each in site.items}) == 20, lambda: daemons.log("router")
        )
        wait_for(lambda: ask(daemons)["rows"] == {"succeeded": 20}, lambda: daemons.log("router"))


@pytest.mark.services
@pytest.mark.timeout(240)
@pytest.mark.covers("S2.1", "S2.3", "S2.34", "S2.35")
def test_from_rabbitmq_to_redis_and_back(
    tmp_path: Path, postgres_database: str, rabbit_vhost: str, redis_url: str
) -> None:
    environment = {
        "DATABASE_URL": postgres_database,
        "BROKER_URL": rabbit_vhost,
        "REDIS_URL": redis_url,
    }
    client = redis.Redis.from_url(redis_url)
    broker = connect(rabbit_vhost, name="test")
    with running(tmp_path, **environment) as daemons, closing(broker), closing(client):
        broker.declare(QueueSpec("routed_logs"), QueueSpec("routed_list"))
        use(
            daemons,
            routing={"limits": -1, "terminal_codes": [1000]},
            inbound=[
                {
                    "name": "logs",
                    "class": "rabbitmq.RabbitInbound",
                    "init": {"url": "{broker_url}", "queue": "routed_logs"},
                }
            ],
            outbound=[
                {
                    "name": "captcha",
                    "class": "redis_queue.RedisListOutbound",
                    "init": {"url": "{redis_url}", "key": "captcha"},
                    "selector": ["data_type == 'change'"],
                    "retry_limits": 1,
                },
                {
                    "name": "list",
                    "class": "rabbitmq.RabbitQueueOutbound",
                    "init": {"url": "{broker_url}", "queue": "routed_list"},
                    "selector": ["data_type == 'list'"],
                },
            ],
        )
        for name in ("one", "two"):
            daemons.start(name, "run_router", "--name", name)
            daemons.until_logged(name, "is running")
        put(broker, *({"n": n, "data_type": ("change", "list")[n % 2]} for n in range(400)))
        log = lambda: daemons.log("one") + daemons.log("two")  # noqa: E731
        wait_for(lambda: client.llen("captcha") == 200, log)
        wait_for(lambda: broker.depth("routed_list").ready == 200, log)
        messages = [json.loads(each) for each in client.lrange("captcha", 0, -1)]
        client.delete("captcha")
        assert sorted(each["n"] for each in messages) == list(range(0, 400, 2))
        # Half of them succeed, the others are retried once.
        put(broker, *(
            {"task_result": 1000 if each["n"] % 4 else 2000, "task_params": each}
            for each in messages
        ))  # fmt: skip
        wait_for(lambda: client.llen("captcha") == 100, log)
        wait_for(lambda: broker.depth("routed_logs").ready == 0, log)
        for name in ("one", "two"):
            status, seconds = daemons.stop(name, signal.SIGTERM)
            assert status == 0, daemons.log(name)
            assert seconds < 5.0
        told = ask(daemons)
        assert told["holds"]
        assert told["rows"] == {"succeeded": 300, "dispatched": 100}
        assert told["results"] == 200
        assert broker.depth("routed_logs").ready == 0


@pytest.mark.services
@pytest.mark.timeout(300)
@pytest.mark.covers("S4.10")
def test_rules_change_while_items_flow_and_none_is_lost_or_doubled(
    tmp_path: Path, postgres_database: str, rabbit_vhost: str, redis_url: str
) -> None:
    environment = {
        "DATABASE_URL": postgres_database,
        "BROKER_URL": rabbit_vhost,
        "REDIS_URL": redis_url,
    }
    client = redis.Redis.from_url(redis_url)
    broker = connect(rabbit_vhost, name="test")

    def rules(key: str, **of_inbound: Any) -> dict[str, Any]:
        init = {"url": "{broker_url}", "queue": "flowing", **of_inbound}
        return {
            "inbound": [{"name": "logs", "class": "rabbitmq.RabbitInbound", "init": init}],
            "outbound": [
                {
                    "name": "out",
                    "class": "redis_queue.RedisListOutbound",
                    "init": {"url": "{redis_url}", "key": key},
                    "selector": ["True"],
                }
            ],
        }

    versions = [rules("flow:a"), rules("flow:b"), rules("flow:b", declare=False), rules("flow:c")]
    with running(tmp_path, **environment) as daemons, closing(broker), closing(client):
        broker.declare(QueueSpec("flowing"))
        use(daemons, **versions[0])
        daemons.start("router", "run_router")
        daemons.until_logged("router", "is running")
        ended = threading.Event()
        count = 0

        def flow() -> None:
            nonlocal count
            while not ended.is_set():
                bodies = [json.dumps({"n": n}).encode() for n in range(count, count + 50)]
                broker.publish([Outgoing(body=body, key="flowing") for body in bodies]).result(30)
                count += 50
                ended.wait(0.02)

        flowing = threading.Thread(target=flow)
        flowing.start()
        try:
            for version in versions[1:]:
                use(daemons, **version)
        finally:
            last = rules("flow:c")["outbound"][0]["init"]["key"]
            wait_for(lambda: client.llen(last) > 0, lambda: daemons.log("router"))
            ended.set()
            flowing.join()
        found = lambda: [  # noqa: E731
            json.loads(each)["n"]
            for key in ("flow:a", "flow:b", "flow:c")
            for each in client.lrange(key, 0, -1)
        ]
        wait_for(lambda: len(found()) >= count, lambda: daemons.log("router"))
        assert sorted(found()) == list(range(count))
        assert all(client.llen(key) for key in ("flow:a", "flow:b"))
        assert "Traceback" not in daemons.log("router")
        daemons.stop("router", signal.SIGTERM)
        told = ask(daemons)
        assert told["holds"]
        assert told["rows"] == {"dispatched": count}


@pytest.mark.services
@pytest.mark.timeout(240)
@pytest.mark.parametrize("point", ["received", "sent", "moved"])
def test_a_message_with_an_id_is_one_item_however_often_it_comes(
    tmp_path: Path, postgres_database: str, rabbit_vhost: str, redis_url: str, point: str
) -> None:
    environment = {
        "DATABASE_URL": postgres_database,
        "BROKER_URL": rabbit_vhost,
        "REDIS_URL": redis_url,
    }
    queue, key = f"named_{point}", f"named:{point}"
    client = redis.Redis.from_url(redis_url)
    broker = connect(rabbit_vhost, name="test")
    with running(tmp_path, **environment) as daemons, closing(broker), closing(client):
        before = sum(ask(daemons)["rows"].values()) if has_project(daemons) else 0
        broker.declare(QueueSpec(queue))
        init = {"url": "{broker_url}", "queue": queue}
        to = {"url": "{redis_url}", "key": key}
        use(
            daemons,
            inbound=[{"name": queue, "class": "rabbitmq.RabbitInbound", "init": init}],
            outbound=[
                {
                    "name": "out",
                    "class": "redis_queue.RedisListOutbound",
                    "init": to,
                    "selector": ["True"],
                }
            ],
        )
        messages = [
            Outgoing(body=json.dumps({"n": n}).encode(), key=queue, message_id=f"{point}-{n}")
            for n in range(30)
        ]
        broker.publish(messages).result(30)
        killed = daemons.start("router", "run_router", FAILPOINTS=f"router.{point}=kill@1")
        assert killed.wait(PATIENCE_SECONDS) == -signal.SIGKILL, daemons.log("router")
        daemons.start("router", "run_router")
        log = lambda: daemons.log("router")  # noqa: E731
        found = lambda: {json.loads(each)["n"] for each in client.lrange(key, 0, -1)}  # noqa: E731
        wait_for(lambda: len(found()) == 30, log)
        wait_for(lambda: broker.depth(queue).ready == 0, log)
        daemons.stop("router", signal.SIGTERM)
        told = ask(daemons)
        assert told["holds"]
        assert sum(told["rows"].values()) - before == 30


def has_project(daemons: Daemons) -> bool:
    code = 'from apps.projects.models import Project; print(Project.objects.filter(slug="routed"))'
    return "routed" in daemons.manage("shell", "-v0", "-c", code).stdout


def put(broker: Broker, *items: dict[str, Any]) -> None:
    broker.publish(
        [Outgoing(body=json.dumps(each).encode(), key="routed_logs") for each in items]
    ).result(30)
