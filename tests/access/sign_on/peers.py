"""Peers of sign-in tests: npm's certified oidc-provider, and Debian's slapd."""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
import requests

# A folder with node_modules/oidc-provider; without one npm installs it there.
FOLDER = Path(os.environ.get("CRAWLYARD_TEST_OIDC", Path.home() / ".cache/crawlyard-oidc"))
VERSION = "9"
BASE = "dc=example,dc=com"
READER, READER_PASSWORD = f"cn=reader,{BASE}", "reads-all"


@dataclass
class Peer:
    """A running OpenID Connect provider."""

    issuer: str
    process: subprocess.Popen[str]

    def accounts(self, **accounts: dict[str, Any]) -> None:
        """Replace all accounts, by name."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(accounts) + "\n")
        self.process.stdin.flush()
        # Its warnings are printed there, too.
        while line := self.process.stdout.readline():
            if line == "done\n":
                return
        raise AssertionError("the provider has ended")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def log_in(self, address: str, name: str) -> str:
        """Play the browser at the provider's own pages; return the address of the answer."""
        with requests.Session() as browser:
            got = browser.get(address, allow_redirects=False)
            for _step in range(20):
                if got.is_redirect:
                    address = urljoin(got.url, got.headers["location"])
                    if address.startswith("http://testserver/"):
                        return address
                    got = browser.get(address, allow_redirects=False)
                    continue
                form = re.search(r'<form[^>]*action="([^"]+)"', got.text)
                assert form is not None, got.text[:500]
                fields = dict(re.findall(r'name="(prompt)" value="(\w+)"', got.text))
                fields |= {"login": name, "password": "any"} if "login" in fields.values() else {}
                target = urljoin(got.url, html.unescape(form[1]))
                got = browser.post(target, data=fields, allow_redirects=False)
        raise AssertionError("the provider goes round in circles")


def _installed() -> Path:
    module = FOLDER / "node_modules/oidc-provider/lib/index.js"
    if not module.exists():
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            pytest.skip("node and npm are not installed")
        FOLDER.mkdir(parents=True, exist_ok=True)
        call = [npm, "install", "--no-audit", "--no-fund", f"oidc-provider@{VERSION}"]
        got = subprocess.run(call, cwd=FOLDER, capture_output=True, text=True, check=False)
        if got.returncode:
            pytest.skip(f"npm cannot install oidc-provider: {got.stderr[-300:]}")
    return module


@contextlib.contextmanager
def oidc_provider(**environ: str) -> Iterator[Peer]:
    """Run a provider without accounts."""
    process = subprocess.Popen(
        ["node", str(Path(__file__).with_name("provider.mjs"))],
        env=os.environ | {"OIDC_PROVIDER": str(_installed())} | environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    while line and not line.startswith("http://127.0.0.1:"):
        line = process.stdout.readline()
    assert line, "the provider has not started"
    try:
        yield Peer(line.strip(), process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        assert process.stdin is not None
        process.stdin.close()


@dataclass
class Directory:
    """A running slapd."""

    url: str
    process: subprocess.Popen[bytes]

    def connection(self) -> Any:
        import ldap3

        server = ldap3.Server(self.url)
        return ldap3.Connection(server, f"cn=admin,{BASE}", "admin", auto_bind=True)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def slapd(folder: Path) -> Iterator[Directory]:
    """Run a slapd with two people, a group and an account that reads."""
    program = shutil.which("slapd") or shutil.which("slapd", path="/usr/sbin")
    if program is None:
        pytest.skip("slapd is not installed")
    (folder / "data").mkdir()
    (folder / "slapd.conf").write_text(f"""
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
pidfile {folder}/pid
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
suffix "{BASE}"
rootdn "cn=admin,{BASE}"
rootpw admin
directory {folder}/data
access to attrs=userPassword by anonymous auth by * none
access to * by users read by anonymous none
""")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"ldap://127.0.0.1:{probe.getsockname()[1]}"
    process = subprocess.Popen(
        [program, "-d", "0", "-f", str(folder / "slapd.conf"), "-h", url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    directory = Directory(url, process)
    try:
        with _connected(directory) as connection:
            _fill(connection)
        yield directory
    finally:
        directory.stop()


def _connected(directory: Directory) -> Any:
    from ldap3.core.exceptions import LDAPException

    for _attempt in range(100):
        try:
            return directory.connection()
        except LDAPException:
            time.sleep(0.05)
    raise AssertionError("slapd has not started")


def _fill(connection: Any) -> None:
    person = ["inetOrgPerson"]
    connection.add(BASE, ["dcObject", "organization"], {"dc": "example", "o": "Example"})
    for name in ("people", "groups"):
        connection.add(f"ou={name},{BASE}", "organizationalUnit", {"ou": name})
    connection.add(READER, person, {"sn": "r", "userPassword": READER_PASSWORD})
    for name in ("ann", "bob"):
        values = {"cn": name, "sn": name.title(), "mail": f"{name}@example.com"}
        secret = {"userPassword": f"{name}s-password", "uid": name, "givenName": name.title()}
        connection.add(f"uid={name},ou=people,{BASE}", person, values | secret)
    members = {"member": [f"uid=ann,ou=people,{BASE}"]}
    assert connection.add(f"cn=news,ou=groups,{BASE}", "groupOfNames", members), connection.result
