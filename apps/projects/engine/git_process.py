"""Git as a restricted process for untrusted URLs, names and repositories.

Git reads no configuration of this machine, runs no hook, filter, submodule or helper, and uses only
https, http and ssh. The process gets only the environment variables that are listed here. A
password is passed by environment and askpass, never by arguments, URL or file.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast
from urllib.parse import quote

from apps.projects.engine.addresses import RemoteAddress
from apps.projects.engine.refusals import ProjectInputError

if TYPE_CHECKING:
    from git import Git

# Allows to import GitPython on machines without git. GitPython is imported where it is used,
# because the import is slow and would delay the first page after a start.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

Watch = Callable[[], None]

MASK: Final = "•••"
# First version with http.curloptResolve, which pins the checked address.
MIN_VERSION: Final = (2, 37)
MAX_OUTPUT_BYTES: Final = 16 * 1024**2
MAX_ERROR_BYTES: Final = 64 * 1024
POLL_SECONDS: Final = 0.1
_KEPT: Final = frozenset(
    {"PATH", "TMPDIR", "LD_LIBRARY_PATH", "GIT_EXEC_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"}
    | {"GIT_SSL_CAINFO", "GIT_SSL_CAPATH"}
)
_ASKPASS: Final = Path(__file__).with_name("askpass.sh")
_SETTINGS: Final[dict[str, str]] = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.symlinks": "false",
    "core.bigFileThreshold": "16m",
    "credential.helper": "",
    "protocol.allow": "never",
    "protocol.https.allow": "always",
    "protocol.http.allow": "always",
    "protocol.ssh.allow": "always",
    "protocol.file.allow": "never",
    "protocol.ext.allow": "never",
    "protocol.version": "2",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "fetch.unpackLimit": "1",
    "filter.lfs.smudge": "",
    "filter.lfs.process": "",
    "filter.lfs.required": "false",
    "http.followRedirects": "false",
    "http.proxy": "",
    "http.sslVerify": "true",
    "transfer.bundleURI": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "pack.threads": "1",
}


class GitFailed(ProjectInputError):
    """Git failed or refused; ``code`` is the reason."""


@dataclass(frozen=True)
class Credentials:
    """Credentials returned by the askpass script."""

    username: str = ""
    password: str = field(default="", repr=False)

    @property
    def secrets(self) -> list[str]:
        """All encodings of the password that may occur in texts."""
        if not self.password:
            return []
        pair = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        forms = {self.password, quote(self.password), quote(self.password, safe=""), pair}
        return sorted(forms, key=len, reverse=True)


class GuardedGit:
    """Restricted git for one remote or none, with ``home`` as its private folder."""

    def __init__(
        self,
        home: Path,
        *,
        address: RemoteAddress | None = None,
        credentials: Credentials | None = None,
        known_hosts: Path | None = None,
    ) -> None:
        self.home = home
        self.credentials = credentials or Credentials()
        self._address = address
        self._known_hosts = known_hosts or home / "known_hosts"

    def run(
        self,
        *arguments: str,
        folder: Path,
        timeout: float,
        watch: Watch | None = None,
        max_bytes: int = MAX_OUTPUT_BYTES,
    ) -> bytes:
        """Return the output of ``git *arguments``.

        ``watch`` is called regularly; if it raises, git is ended. Raises ``GitFailed``.
        """
        with self.stream(*arguments, folder=folder, timeout=timeout, watch=watch) as output:
            content = output.read(max_bytes + 1)
            if len(content) > max_bytes:
                raise GitFailed("git_output", limit=max_bytes)
            return content

    @contextlib.contextmanager
    def stream(
        self, *arguments: str, folder: Path, timeout: float, watch: Watch | None = None
    ) -> Iterator[IO[bytes]]:
        """Yield the output stream of git; leaving the block ends git. Raises ``GitFailed``."""
        # Keep a reference: GitPython ends a process that is no longer referenced.
        started = self._start(arguments, folder)
        process = cast("subprocess.Popen[bytes]", started.proc)
        keeper = _Keeper(process, timeout, watch)
        keeper.start()
        try:
            yield cast("IO[bytes]", process.stdout)
            keeper.finish()
        finally:
            keeper.end()
        if process.returncode != 0:
            raise self._failure(keeper.error_text())

    def _start(self, arguments: tuple[str, ...], folder: Path) -> Git.AutoInterrupt:
        from git import Git

        check_version()
        given = self._environment()
        # GitPython passes on the whole environment; other variables are removed by name.
        hidden = [name for name in os.environ if name not in _KEPT and name not in given]
        command = [
            "env",
            *(argument for name in hidden for argument in ("-u", name)),
            "git",
            *arguments,
        ]
        return Git(str(folder)).execute(command, as_process=True, env=given, start_new_session=True)

    def _environment(self) -> dict[str, str]:
        settings = dict(_SETTINGS)
        address = self._address
        if (
            address is not None
            and address.scheme != "ssh"
            and address.host not in address.addresses
        ):
            pinned = ",".join(
                f"[{address_text}]" if ":" in address_text else address_text
                for address_text in address.addresses
            )
            settings["http.curloptResolve"] = f"{address.host}:{address.port}:{pinned}"
        environment = {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home),
            "LANG": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_ALLOW_PROTOCOL": "https:http:ssh",
            "GIT_PROTOCOL_FROM_USER": "0",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_ASKPASS": str(_ASKPASS),
            "SSH_ASKPASS": str(_ASKPASS),
            "SSH_ASKPASS_REQUIRE": "force",
            "GIT_SSH_VARIANT": "ssh",
            "GIT_SSH_COMMAND": self._ssh_command(),
            "CRAWLYARD_GIT_USERNAME": self.credentials.username,
            "CRAWLYARD_GIT_PASSWORD": self.credentials.password,
            "GIT_CONFIG_COUNT": str(len(settings)),
        }
        for number, (name, value) in enumerate(settings.items()):
            environment[f"GIT_CONFIG_KEY_{number}"] = name
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        return environment

    def _ssh_command(self) -> str:
        options = {
            "StrictHostKeyChecking": "accept-new",
            "UserKnownHostsFile": str(self._known_hosts),
            "NumberOfPasswordPrompts": "1",
            "ConnectTimeout": "15",
            "ProxyCommand": "none",
            "ClearAllForwardings": "yes",
            "ForwardAgent": "no",
            "IdentityAgent": "none",
            "PermitLocalCommand": "no",
        }
        address = self._address
        if address is not None and address.addresses:
            # Connect to the checked address, under the name whose host key is known.
            options |= {"HostName": address.addresses[0], "HostKeyAlias": address.host}
        given = [argument for pair in options.items() for argument in ("-o", "=".join(pair))]
        return shlex.join(["ssh", "-F", "/dev/null", *given])

    # --- failures ---------------------------------------------------------------------------------

    def masked(self, text: str) -> str:
        """Return ``text`` with all encodings of the password masked."""
        for secret in self.credentials.secrets:
            text = text.replace(secret, MASK)
        return text

    def _failure(self, error: str) -> GitFailed:
        host = self._address.host if self._address is not None else ""
        text = error.lower()
        for code, signs in _SIGNS.items():
            if any(sign in text for sign in signs):
                return GitFailed(code, host=host)
        lines = [line.strip() for line in error.splitlines() if line.strip()]
        fatal = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))]
        return GitFailed("git_failed", text=self.masked((fatal or lines or ["?"])[-1]))


# The first pattern that matches git's output decides.
_SIGNS: Final[dict[str, tuple[str, ...]]] = {
    "git_tag_missing": ("couldn't find remote ref",),
    "git_redirect": tuple(f"returned error: {code}" for code in (301, 302, 303, 307, 308)),
    "git_auth": (
        "authentication failed",
        "could not read username",
        "could not read password",
        "returned error: 401",
        "returned error: 403",
        "permission denied (",
    ),
    "git_tls": ("certificate", "ssl_connect", "gnutls", "ssl routines"),
    "git_host_key": ("host key verification failed",),
    "git_unreachable": (
        "failed to connect",
        "couldn't connect",
        "could not connect",
        "connection refused",
        "connection timed out",
        "connection reset",
        "no route to host",
        "network is unreachable",
        "could not resolve host",
        "empty reply from server",
        "operation too slow",
        "kex_exchange_identification",
    ),
    "git_not_found": (
        "returned error: 404",
        "repository not found",
        "' not found",
        "does not appear to be a git repository",
        "not valid: is this a git repository",
    ),
}


class _Keeper(threading.Thread):
    """Thread that reads the stderr of a process, and ends the process after a timeout."""

    def __init__(
        self, process: subprocess.Popen[bytes], timeout: float, watch: Watch | None
    ) -> None:
        super().__init__(name="git-keeper", daemon=True)
        self._process = process
        self._timeout = timeout
        self._watch = watch
        self._problem: Exception | None = None
        self._done = threading.Event()
        self._errors = bytearray()
        self._reader = threading.Thread(target=self._read_errors, name="git-errors", daemon=True)

    def start(self) -> None:
        """Start this thread and the reader."""
        self._reader.start()
        super().start()

    def run(self) -> None:
        deadline = time.monotonic() + self._timeout
        while not self._done.wait(POLL_SECONDS):
            try:
                if self._watch is not None:
                    self._watch()
                if time.monotonic() > deadline:
                    raise GitFailed("git_timeout", seconds=round(self._timeout))
            except Exception as error:  # noqa: BLE001 - it is raised again, in the caller's thread
                self._problem = error
                self._kill()
                return

    def finish(self) -> None:
        """Wait for the end of the process after its output was read; raise the cause of abort."""
        stdout = self._process.stdout
        while self._problem is None and stdout is not None and stdout.read(65_536):
            pass
        while self._problem is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(POLL_SECONDS)
                break

    def end(self) -> None:
        """Kill the process group; raise the cause of an abort."""
        self._done.set()
        self._kill()
        self._process.wait()
        self._reader.join(5.0)
        self.join(5.0)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        if self._problem is not None:
            raise self._problem

    def error_text(self) -> str:
        """Return the last part of git's stderr."""
        return bytes(self._errors[-MAX_ERROR_BYTES:]).decode("utf-8", "replace")

    def _kill(self) -> None:
        # Kill the whole group: git-remote-https and ssh are children of git.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _read_errors(self) -> None:
        pipe = cast("IO[bytes]", self._process.stderr)
        with contextlib.suppress(OSError, ValueError):
            while block := os.read(pipe.fileno(), 65_536):
                self._errors += block
                del self._errors[:-MAX_ERROR_BYTES]


@lru_cache(maxsize=1)
def check_version() -> None:
    """Raise ``GitFailed`` if git is missing, or too old to pin an address."""
    from git import Git
    from git.exc import GitCommandNotFound

    try:
        version = Git().version_info
    except GitCommandNotFound as error:
        raise GitFailed("git_missing") from error
    if tuple(version[:2]) < MIN_VERSION:
        raise GitFailed("git_too_old", needed=".".join(map(str, MIN_VERSION)))
