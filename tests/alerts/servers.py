"""Test servers for channels: HTTP servers that validate like the vendors' ones, and SMTP."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any
from urllib.parse import parse_qs, urlsplit

# status, headers, body
Reply = tuple[int, dict[str, str], bytes]


@dataclass
class Asked:
    """Received HTTP request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}


@dataclass
class Server:
    """HTTP server that answers with ``reply``."""

    reply: Callable[[Asked], Reply]
    heard: list[Asked] = field(default_factory=list)
    url: str = ""


def json_reply(status: int = 200, /, **values: Any) -> Reply:
    return status, {"Content-Type": "application/json"}, json.dumps(values).encode()


@contextmanager
def serving(reply: Callable[[Asked], Reply]) -> Iterator[Server]:
    """Run a local HTTP server."""
    server = Server(reply)

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, self.path, headers, body)
            server.heard.append(asked)
            status, more, text = server.reply(asked)
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = _answer

        def log_message(self, *_args: Any) -> None:
            """Suppress the log output of the base class."""

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{made.server_address[1]}"
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


def dingtalk(key: str, now: datetime) -> Callable[[Asked], Reply]:
    """Return replies of a signed DingTalk robot, which checks token, clock and signature."""

    def reply(asked: Asked) -> Reply:
        query, body = asked.query, asked.json
        if query.get("access_token") != "t0ken":
            return json_reply(errcode=300005, errmsg="token is not exist")
        timestamp = query.get("timestamp", "")
        if abs(int(timestamp or 0) / 1000 - now.timestamp()) > 3600:
            return json_reply(errcode=310000, errmsg="invalid timestamp")
        wanted = hmac.new(key.encode(), f"{timestamp}\n{key}".encode(), hashlib.sha256).digest()
        if query.get("sign") != base64.b64encode(wanted).decode():
            return json_reply(errcode=310000, errmsg="sign not match")
        if body["msgtype"] != "text" or not isinstance(body["text"]["content"], str):
            return json_reply(errcode=40035, errmsg="invalid parameter")
        assert set(body["at"]) == {"atMobiles", "isAtAll"}
        return json_reply(errcode=0, errmsg="ok")

    return reply


def wecom(asked: Asked) -> Reply:
    """Reply like a WeCom robot."""
    if asked.query.get("key") != "k3y":
        return json_reply(errcode=93000, errmsg="invalid webhook url, hint: [1]")
    body = asked.json
    if body["msgtype"] != "text" or len(body["text"]["content"].encode()) > 2048:
        return json_reply(errcode=45002, errmsg="content size out of limit")
    return json_reply(errcode=0, errmsg="ok")


def feishu(key: str, now: datetime) -> Callable[[Asked], Reply]:
    """Return replies of a signed Feishu robot."""

    def reply(asked: Asked) -> Reply:
        if not asked.path.startswith("/open-apis/bot/v2/hook/t0ken"):
            return json_reply(code=19001, msg="param invalid: incoming access token invalid")
        body = asked.json
        stamp = f"{body.get('timestamp', '')}\n{key}".encode()
        wanted = base64.b64encode(hmac.new(stamp, b"", hashlib.sha256).digest()).decode()
        late = abs(int(body.get("timestamp") or 0) - now.timestamp()) > 3600
        if late or body.get("sign") != wanted:
            text = "sign match fail or timestamp is not within one hour from current time"
            return json_reply(code=19021, data={}, msg=text)
        post = body["content"]["post"]["zh_cn"]
        assert body["msg_type"] == "post"
        assert all(part["tag"] in ("text", "a", "at") for row in post["content"] for part in row)
        return json_reply(code=0, msg="success", data={})

    return reply


@dataclass
class Mailbox:
    """Local SMTP server with its received mails and logins."""

    port: int = 0
    received: list[tuple[str, EmailMessage]] = field(default_factory=list)
    # Recipients that the server rejects.
    unknown: set[str] = field(default_factory=set)
    logins: list[str] = field(default_factory=list)
    login: str = ""
    is_broken: bool = False


@contextmanager
def mail_server(login: str = "") -> Iterator[Mailbox]:
    """Run a local SMTP server that requires ``login`` ("user password"), if given."""
    box = Mailbox(login=login)

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 mail.test ESMTP")
            receivers: list[str] = []
            is_in = not box.login
            while line := self.rfile.readline():
                words = line.decode().strip()
                verb = words.split(" ")[0].upper()
                if verb == "EHLO":
                    self._say("250-mail.test", "250-AUTH PLAIN", "250 SMTPUTF8")
                elif verb == "AUTH":
                    given = base64.b64decode(words.split(" ")[-1]).split(b"\0")[1:]
                    box.logins.append(" ".join(each.decode() for each in given))
                    is_in = box.logins[-1] == box.login
                    self._say("235 welcome" if is_in else "535 5.7.8 bad credentials")
                elif verb == "MAIL":
                    receivers.clear()
                    self._say("250 ok" if is_in else "530 5.7.0 log in first")
                elif verb == "RCPT":
                    receiver = words.partition("<")[2].partition(">")[0]
                    if receiver in box.unknown:
                        self._say("550 5.1.1 no such mailbox")
                    else:
                        receivers.append(receiver)
                        self._say("250 ok")
                elif verb == "DATA":
                    self._say("354 go on")
                    body = b""
                    while (part := self.rfile.readline()) != b".\r\n":
                        body += part.removeprefix(b".")
                    if box.is_broken:
                        self._say("451 4.3.0 disk full")
                        continue
                    mail = message_from_bytes(body, policy=policy.default)
                    box.received += [(each, mail) for each in receivers]
                    self._say("250 queued")
                elif verb == "QUIT":
                    self._say("221 bye")
                    return
                else:
                    self._say("250 ok")

        def _say(self, *lines: str) -> None:
            self.wfile.write("".join(f"{each}\r\n" for each in lines).encode())

    class Threads(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    made = Threads(("127.0.0.1", 0), Session)
    box.port = made.server_address[1]
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield box
    finally:
        made.shutdown()
        made.server_close()
        thread.join()
