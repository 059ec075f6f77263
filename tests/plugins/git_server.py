"""Git over HTTP as a forge offers it: ``git http-backend`` behind Basic authentication."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

USERNAME = "bot"
PASSWORD = "s3cret tok:en/ü"


def run_git(*arguments: str, folder: Path, **environment: str) -> str:
    """Run git with nobody's configuration; its output without the last line break."""
    own = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@example.com",
        "GIT_COMMITTER_NAME": "Ada",
        "GIT_COMMITTER_EMAIL": "ada@example.com",
        **environment,
    }
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=own, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"git {arguments}: {done.stderr}"
    return done.stdout.strip()


class Repository:
    """One repository of the server, with a working copy beside it that pushes over HTTP.

    ``url`` is what a project would name; it carries no password.
    """

    def __init__(self, server: GitServer, name: str) -> None:
        self.url = f"{server.address}/{name}.git"
        self.bare = server.root / f"{name}.git"
        self.work = server.root / f"{name}-work"
        for folder in (self.bare, self.work):
            folder.mkdir(parents=True)
        run_git("init", "--quiet", "--bare", "--initial-branch=main", folder=self.bare)
        run_git("config", "http.receivepack", "true", folder=self.bare)
        run_git("init", "--quiet", "--initial-branch=main", folder=self.work)
        self._header = f"Authorization: {server.authorization}"

    def commit(self, files: Mapping[str, str | bytes], message: str = "change") -> str:
        """Write files, commit, push the branch; returns the commit's id."""
        for name, content in files.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        run_git("add", "--all", "--force", folder=self.work)
        run_git("commit", "--quiet", "--allow-empty", "-m", message, folder=self.work)
        self.push("main")
        return self.head()

    def tag(self, name: str) -> str:
        """Tag the head and push the tag; returns the commit's id."""
        run_git("tag", name, folder=self.work)
        self.push(f"refs/tags/{name}")
        return self.head()

    def head(self) -> str:
        """The id of the newest commit."""
        return run_git("rev-parse", "HEAD", folder=self.work)

    def push(self, what: str) -> None:
        """Push over HTTP with the server's password."""
        run_git(
            "push",
            "--quiet",
            self.url,
            what,
            folder=self.work,
            GIT_CONFIG_COUNT="1",
            GIT_CONFIG_KEY_0="http.extraHeader",
            GIT_CONFIG_VALUE_0=self._header,
        )


class GitServer:
    """Serves the repositories below ``root``. ``requests`` lists (method, path) of each call."""

    username = USERNAME
    password = PASSWORD

    def __init__(self, root: Path) -> None:
        self.root = root
        self.requests: list[tuple[str, str]] = []
        token = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
        self.authorization = f"Basic {token}"
        exec_path = subprocess.run(
            ["git", "--exec-path"], capture_output=True, text=True, check=True
        ).stdout.strip()
        self.backend = f"{exec_path}/git-http-backend"
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True

    @property
    def address(self) -> str:
        """``http://127.0.0.1:port``."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def start(self) -> None:
        """Serve from a thread."""
        threading.Thread(target=self._http.serve_forever, name="git-server", daemon=True).start()

    def stop(self) -> None:
        """Serve no more."""
        self._http.shutdown()
        self._http.server_close()

    def make_repository(self, name: str) -> Repository:
        """A new, empty repository."""
        return Repository(self, name)


def _handler(server: GitServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            """Quiet."""

        def answer(self) -> None:
            server.requests.append((self.command, self.path))
            body = self._body()
            if self.headers.get("Authorization") != server.authorization:
                self._send(401, [("WWW-Authenticate", 'Basic realm="git"')], b"")
                return
            path, _separator, query = self.path.partition("?")
            done = subprocess.run(
                [server.backend],
                input=body,
                env=self._environment(path, query, len(body)),
                capture_output=True,
                check=False,
            )
            head, _separator2, content = done.stdout.partition(b"\r\n\r\n")
            status, headers = 200, []
            for line in head.decode().split("\r\n"):
                name, _colon, value = line.partition(": ")
                if name.lower() == "status":
                    status = int(value.split()[0])
                elif name:
                    headers.append((name, value))
            self._send(status, headers, content)

        do_GET = do_POST = answer

        def _environment(self, path: str, query: str, length: int) -> dict[str, str]:
            return {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(server.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": unquote(path),
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(length),
                "REMOTE_USER": USERNAME,
                "REMOTE_ADDR": "127.0.0.1",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            }

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _send(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler
