"""Values that must never be seen in clear are looked for wherever an installation leaves traces."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.installation import Installation
from tests.e2e.rest import Rest, send
from yardkit import topology
from yardkit.broker import BrokerError, QueueSpec, connect
from yardkit.broker.base import DEAD_QUEUE
from yardkit.secretbox import generate_key

pytestmark = pytest.mark.timeout(500)

FERNET, SIGNING = generate_key(), "canary-signing-" + generate_key()
# What people and operators hand in.
GIVEN = {
    "git": "canary-git-4f1b",
    "registry": "canary-registry-88d2",
    "webhook": "canary-webhook-secret-19ac",
    "job": "canary-job-secret-77e0",
    "cookie": "canary-cookie-53bd",
    "channel": "canary-channel-secret-0c6e",
    "address": "canary-channel-address-b1d8",
    "source user": "canary-source-user-9d03",
    "source password": "canary-source-password-e4c7",
    "source token": "canary-source-token-2b5e",
    "source header": "canary-source-header-71fa",
    "resource": "canary-resource-proxy-c8a6",
}
# What processes are started with; a run gets none of them.
SETTINGS = {
    "fernet": FERNET,
    "signing": SIGNING,
    "metrics": "canary-metrics-token-6aa3",
    "proxy": "canary-proxy-2c9f",
    "proxy source": "canary-proxy-source-d417",
    "node": "canary-requests-node-05be",
    "records": "canary-records-store-b3f2",
}
# Of fetchers alone: nothing is there, so whatever they say of it is said of an error.
AWAY = {
    "REQUESTS_NODES": f"cold=postgresql://u:{SETTINGS['node']}@127.0.0.1:9/x",
    "RECORDS_URL": f"postgresql://u:{SETTINGS['records']}@127.0.0.1:9/x",
}
# No secret at all: what does not find this one would not find the others.
OPEN = "canary-in-the-open-e310"
_SESSION = """
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from apps.access.models import User
from apps.access.services.sessions import SessionStore
user = User.objects.get(username="admin")
made = SessionStore()
made[SESSION_KEY] = str(user.pk)
made[BACKEND_SESSION_KEY] = "apps.access.services.login_backend.SessionBackend"
made[HASH_SESSION_KEY] = user.get_session_auth_hash()
made.save()
print(made.session_key)
"""
PAGES = [
    "/admin/",
    "/admin/projects/project/{project}/change/",
    "/admin/jobs/job/{job}/change/",
    "/admin/alerts/channel/{channel}/change/",
    "/admin/jobs/run/",
    "/admin/sources/credential/{credential}/change/",
    "/admin/sources/harvest/",
    "/admin/seeds/resource/{resource}/change/",
    "/admin/requeststore/shardreport/",
    "/admin/runtime/daemon/",
    "/admin/health",
]
CALLS = [
    "/projects",
    "/projects/{project}",
    "/jobs",
    "/jobs/{job}",
    "/jobs/export",
    "/runs/{run}",
    "/runs/{run}/logs",
    "/runs/{run}/counters",
    "/channels",
    "/channels/{channel}",
    "/notices",
    "/audit",
    "/dead-letters",
    "/agents",
    "/hosts",
    "/source-credentials",
    "/source-credentials/{credential}",
    "/harvests",
    "/resource-pools",
    "/resources",
    "/resources/{resource}",
    "/bizzes",
    "/config/versions",
    "/daemons",
    "/health/parts",
]


class Receiver:
    """What a channel is sent, as it came; and a record API, with what it was asked."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.asked: list[str] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                receiver.bodies.append(f"{self.headers}{self.rfile.read(length)!r}")
                self.send_response(204)
                self.end_headers()

            def do_GET(self) -> None:
                receiver.asked.append(str(self.headers))
                body = json.dumps({"total": 1, "records": [{"id": 1}]}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self.url = f"{self.address}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def installation(stores: dict[str, str], tmp_path: Path) -> Iterator[Installation]:
    with Installation(
        tmp_path,
        stores,
        SECRETBOX_KEYS=FERNET,
        SECRET_KEY=SIGNING,
        METRICS_TOKEN=SETTINGS["metrics"],
        AGENT_PROXIES=f"http://user:{SETTINGS['proxy']}@127.0.0.1:9",
        AGENT_PROXY_SOURCE=f"http://user:{SETTINGS['proxy source']}@127.0.0.1:9/list",
        ALERTS_ALLOWED_NETWORKS="127.0.0.0/8",
    ) as installation:
        installation.start(agents=1)
        yield installation


class Search:
    """Where each canary was seen."""

    def __init__(self, canaries: dict[str, str]) -> None:
        self._canaries = {name: value.encode() for name, value in canaries.items()}
        self.seen: list[tuple[str, str]] = []
        self.found_open: set[str] = set()
        self.looked_at = 0

    def look(self, where: str, body: bytes, *, but: frozenset[str] = frozenset()) -> None:
        self.looked_at += 1
        if OPEN.encode() in body:
            self.found_open.add(where.split()[0])
        self.seen += [
            (name, where)
            for name, value in self._canaries.items()
            if name not in but and value in body
        ]

    def look_in(self, folder: Path, what: str) -> None:
        for file in sorted(folder.rglob("*")):
            # What an agent has been told is on its own disk, readable by nobody else.
            if file.is_file() and file.suffix != ".alloc":
                with suppress(FileNotFoundError):
                    self.look(f"{what} {file.relative_to(folder)}", file.read_bytes())


def look_at_processes(search: Search, installation: Installation, run: int) -> bool:
    """Command lines of all, and the environment of the run, which gets its own secrets only."""
    found = False
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            search.look(f"command line {process.pid}", " ".join(process.cmdline()).encode())
            environment = process.environ()
            if environment.get("CRAWLYARD_RUN") == str(run) and environment.get(
                "CRAWLYARD_RUN_DIR", ""
            ).startswith(str(installation.daemons.folder)):
                found = True
                body = json.dumps(environment).encode()
                # A job's own secrets are what it is given them for.
                search.look("environment of the run", body, but=frozenset({"job"}))
    return found


def look_at_queues(search: Search, url: str) -> None:
    specs = [*topology.SHARED, QueueSpec(DEAD_QUEUE), topology.agent_commands("agent-1")]
    with closing(connect(url, name="canary", timeout=10)) as broker:
        for spec in specs:
            with suppress(BrokerError):
                subscription = broker.subscribe(spec.name, prefetch=1000)
                deliveries = subscription.take(1000, timeout=0.3)
                for each in deliveries:
                    search.look(f"queue {spec.name}", bytes(each.body))
                subscription.requeue(deliveries)
                subscription.close()


def configure(rest: Rest, project: int, kind: str, data: dict[str, Any]) -> None:
    version = rest.make("/config/versions", project=project, kind=kind, data=data)["version"]["id"]
    rest.act(f"/config/versions/{version}/activate")


def harvest(installation: Installation, project: int, receiver: Receiver) -> int:
    """Read a record API with credentials; their id."""
    rest = installation.rest
    credential = rest.make(
        "/source-credentials",
        project=project,
        name="vendor",
        username=GIVEN["source user"],
        password=GIVEN["source password"],
        token=GIVEN["source token"],
        headers=json.dumps({"X-Api-Key": GIVEN["source header"]}),
    )["id"]
    # Each kind of them is used by one source.
    asked = {"total": "total", "records": "records"}
    sources = {
        auth: {
            "kind": "json",
            "base_url": f"{receiver.address}/{auth}",
            "credentials": "vendor",
            "json": {**asked, "auth": auth},
        }
        for auth in ("basic", "bearer", "headers")
    }
    configure(rest, project, "sources", {"sources": sources})
    installation.daemons.start("collector", "run_collector", "--name", installation.name)

    def ended() -> bool:
        return [row["state"] for row in rest.rows("/harvests")] == ["completed"] * 3

    rest.until(ended, "harvests")
    told = "".join(receiver.asked)
    assert GIVEN["source token"] in told
    assert GIVEN["source header"] in told
    return int(credential)


def fetch(installation: Installation, project: int, url: str) -> None:
    """Have a fetcher fail at a store of records, and a node, that are away."""
    rest, daemons = installation.rest, installation.daemons
    rule = {"fields": {"title": "h1"}}
    configure(rest, project, "biz", {"bizzes": {"news": {"rules": {"page": rule}}}})
    daemons.start("fetcher", "run_fetcher", "--name", installation.name, **AWAY)
    asked = {"url": url, "rule": "page"}
    added = {"project": project, "biz": "news", "requests": [asked]}
    rest.call("POST", "/requests", added, status=201)
    rest.until(lambda: "127.0.0.1" in daemons.log("fetcher"), "the fetcher's complaint")


def test_no_secret_is_seen_in_clear_anywhere(installation: Installation, tmp_path: Path) -> None:
    rest, environment = installation.rest, installation.daemons.environment
    search = Search({**GIVEN, **SETTINGS, "token": rest.headers["Authorization"].split()[1]})
    receiver = Receiver()
    project = rest.make(
        "/projects",
        name="Sites",
        slug="sites",
        description=OPEN,
        allowed_networks=["127.0.0.0/8"],
        git_url="http://127.0.0.1:9/x.git",
        git_username="u",
        git_password=GIVEN["git"],
        registry_password=GIVEN["registry"],
        webhook_secret=GIVEN["webhook"],
    )["id"]
    channel = rest.make(
        "/channels",
        name="ops",
        kind="webhook",
        secrets={"url": f"{receiver.url}?token={GIVEN['address']}", "key": GIVEN["channel"]},
    )["id"]
    with CountingSite(tree(60), delay_seconds=0.2) as site:
        job = rest.make(
            "/jobs",
            project=project,
            name="a site",
            spider="yardspider.spiders:SiteSpider",
            arguments={"url": site.url},
            secrets={"PASSWORD": GIVEN["job"]},
            cookies={"session": GIVEN["cookie"]},
            speed=10,
        )["id"]
        rest.until(installation.agents_serve, "agents")
        run = rest.make(f"/jobs/{job}/start")["id"]
        rest.until(lambda: look_at_processes(search, installation, run), "the process of the run")
        rest.call("POST", f"/channels/{channel}/test", status=202)
        credential = harvest(installation, project, receiver)
        fetch(installation, project, site.url)
        done = rest.until(
            lambda: (row := rest.get(f"/runs/{run}"))["state"] in {"exited", "failed"} and row,
            "the end of the run",
        )
        assert done["state"] == "exited", rest.explain()
    time.sleep(1.0)
    pool = rest.make("/resource-pools", project=project, name="proxies")["id"]
    secret = {"url": f"http://user:{GIVEN['resource']}@127.0.0.1:9"}
    resource = rest.make("/resources", pool=pool, name="one", secret=secret)["id"]
    leased = rest.act(f"/resource-pools/{pool}/lease", status=201)["resource"]
    assert leased["secret"] == secret
    for how in ([], ["--json"]):
        said = installation.daemons.manage("doctor", *how, status=1, **AWAY)
        search.look("doctor", f"{said.stdout}{said.stderr}".encode())
    names = {"project": project, "job": job, "run": run, "channel": channel}
    names |= {"credential": credential, "resource": resource}
    session = installation.daemons.manage("shell", "-v0", "-c", _SESSION).stdout.strip()
    bearer = {"Authorization": rest.headers["Authorization"]}
    for path in CALLS:
        url = f"{rest.address}/api/v1{path.format(**names)}"
        code, headers, body = send(url, method="GET", body=None, headers=bearer)
        assert code == 200, (path, code, body[:300])
        search.look(f"REST {path}", f"{headers}".encode() + body)
    for path in PAGES:
        url = f"{rest.address}{path.format(**names)}"
        cookie = {"Cookie": f"sessionid={session}"}
        code, headers, body = send(url, method="GET", body=None, headers=cookie)
        assert code == 200, (path, code)
        assert b"/admin/logout/" in body, "not logged in"
        search.look(f"page {path}", f"{headers}".encode() + body)
    assert receiver.bodies, rest.explain()
    for told in receiver.bodies:
        search.look("delivery of a channel", told.encode())
    receiver.close()
    broker = environment.get("BROKER_URL", f"sqlite:///{tmp_path / 'data' / 'broker.sqlite3'}")
    look_at_queues(search, broker)
    installation.daemons.manage("backup", str(tmp_path / "backup"))
    installation.end()
    search.look_in(tmp_path, "file")
    if "REDIS_URL" in environment:
        with closing(redis.Redis.from_url(environment["REDIS_URL"])) as client:
            for key in client.scan_iter():
                search.look(f"Redis {key!r}", bytes(key) + (client.dump(key) or b""))
    if "DATABASE_URL" in environment:
        dumped = subprocess.run(
            ["pg_dump", "--dbname", environment["DATABASE_URL"]], capture_output=True, check=True
        )
        search.look("database", dumped.stdout)
    assert search.looked_at > 100
    assert search.found_open >= {"REST", "page"}
    assert search.found_open & {"file", "database"}
    assert search.seen == []
