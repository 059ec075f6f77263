"""RabbitMQ accounts of runs: one for each execution.

A spider is untrusted code. With the platform's account it could read and write every queue; with
its own account it can use only the queues of its run. See ``yardkit.broker.gateway``.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Set
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import requests

from apps.jobs.runners.base import RunnerAway
from yardkit import topology
from yardkit.broker.gateway import GATEWAY

_SECONDS: Final = 5.0
_NOT_FOUND: Final = 404


class BrokerAccounts:
    """Creates and removes accounts through RabbitMQ's management API.

    Args:
        management_url: ``http://user:password@host:15672`` of a user with the tag administrator.
        broker_url: the broker as runs reach it; its host and vhost are used, its user is not.
        installation: part of the account names, so that installations can share one RabbitMQ.

    Raises:
        ValueError: ``management_url`` is invalid.
    """

    def __init__(self, management_url: str, broker_url: str, *, installation: str) -> None:
        management = urlsplit(management_url)
        if management.scheme not in ("http", "https") or not management.hostname:
            raise ValueError("use http://user:password@host:15672")
        self._session = requests.Session()
        self._session.auth = (
            unquote(management.username or ""),
            unquote(management.password or ""),
        )
        # Ignore credentials in ~/.netrc and proxies in the environment.
        self._session.trust_env = False
        where = management.netloc.rpartition("@")[2]
        self._api = f"{management.scheme}://{where}{management.path.rstrip('/')}/api"
        self._broker = urlsplit(broker_url)
        self._vhost = quote(unquote(self._broker.path[1:]) or "/", safe="")
        self._prefix = f"crawlyard-{installation}-"

    def open(self, run: int, boot: str, topic: str) -> str:
        """Create the account of an execution, replacing an earlier account; return its BROKER_URL.

        ``topic``: topic of the job's commands.

        Raises:
            RunnerAway: RabbitMQ does not answer or refuses.
        """
        own = topology.run_answers(run, boot).name
        password = secrets.token_urlsafe(24)
        user = f"{self._prefix}{own}"
        self._put(f"users/{user}", {"password": password, "tags": ""})
        mine = rf"{re.escape(own)}(\..*)?"
        self._put(
            f"permissions/{self._vhost}/{user}",
            {
                "configure": f"^{mine}$",
                "write": f"^({GATEWAY}|{mine})$",
                "read": f"^({topology.LIFECYCLE}|{mine})$",
            },
        )
        open_to_runs = "|".join(re.escape(queue.name) for queue in topology.FOR_RUNS)
        reports = rf"{re.escape(topology.center_reports('').name)}[^.]+"
        keys = rf"^({open_to_runs}|{reports})\.{re.escape(own)}$"
        for exchange, write, read in (
            (GATEWAY, keys, "^$"),
            (topology.LIFECYCLE, "^$", f"^{re.escape(topic)}$"),
        ):
            self._put(
                f"topic-permissions/{self._vhost}/{user}",
                {"exchange": exchange, "write": write, "read": read},
            )
        return self._url(user, password, own)

    def close(self, run: int, boot: str) -> None:
        """Remove an account and its connections. Raises ``RunnerAway``."""
        self._remove(f"{self._prefix}{topology.run_answers(run, boot).name}")

    def made(self) -> set[tuple[int, str]]:
        """Return the executions that have an account. Raises ``RunnerAway``."""
        executions: set[tuple[int, str]] = set()
        for user in self._ask("GET", "users", params={"columns": "name"}).json():
            _, _, name = user["name"].partition(self._prefix)
            words = name.split(".")
            if len(words) == 3 and words[0] == "run" and words[1].isdecimal():
                executions.add((int(words[1]), words[2]))
        return executions

    def keep_only(self, active: Set[tuple[int, str]], made: Set[tuple[int, str]]) -> int:
        """Remove accounts in ``made`` that are not in ``active``; return their number.

        Raises ``RunnerAway``.
        """
        over = made - active
        for run, boot in over:
            self.close(run, boot)
        return len(over)

    def check(self) -> str:
        """Return a description of the management user.

        Raises ``RunnerAway`` if the user cannot be used to manage accounts.
        """
        who = self._ask("GET", "whoami").json()
        tags = who["tags"] if isinstance(who["tags"], list) else str(who["tags"]).split(",")
        if "administrator" not in tags:
            raise RunnerAway(f"{who['name']} is no administrator of RabbitMQ")
        return str(who["name"])

    def _put(self, path: str, body: dict[str, str]) -> None:
        self._ask("PUT", path, json=body)

    def _remove(self, user: str) -> None:
        self._ask("DELETE", f"users/{user}", missing_is_fine=True)

    def _ask(
        self, method: str, path: str, *, missing_is_fine: bool = False, **more: Any
    ) -> requests.Response:
        try:
            answer = self._session.request(
                method, f"{self._api}/{path}", timeout=_SECONDS, allow_redirects=False, **more
            )
        except requests.RequestException as error:
            # The text does not contain the password, which is sent in a header.
            raise RunnerAway(
                f"RabbitMQ's management at {self._api} does not answer: {type(error).__name__}"
            ) from error
        if missing_is_fine and answer.status_code == _NOT_FOUND:
            return answer
        if not answer.ok or answer.is_redirect:
            raise RunnerAway(
                f"RabbitMQ's management at {self._api} answers {answer.status_code}"
                f" to {method} {path.partition('/')[0]}"
            )
        return answer

    def _url(self, user: str, password: str, own: str) -> str:
        where = self._broker.netloc.rpartition("@")[2]
        account = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return urlunsplit(
            (self._broker.scheme, f"{account}@{where}", self._broker.path, f"own={own}", "")
        )
