"""Options of an agent's fetchers: proxies, redial command, files and browser.

They belong to the agent and stay on it: a run only says whether it wants them, and no password is
sent.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from apps.agents.downloader.fetchers.chromium import BrowserOptions
from apps.agents.downloader.fetchers.dialer import ProxyAddress
from apps.agents.downloader.fetchers.redial import RedialOptions
from yardkit.env import Env, EnvError
from yardkit.recordings import Recording, RecordingError, open_recording

_WEB = ("http", "https")


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """Times in seconds. ``redial``, ``files`` and ``recording`` are None if not configured.

    ``recording``: answers downloads in place of the network; ``fetches_missing``: what it does not
    hold is fetched, else it fails.
    """

    proxies: tuple[ProxyAddress, ...] = ()
    proxy_source: str = field(default="", repr=False)
    proxy_source_seconds: float = 60.0
    proxy_check_url: str = field(default="", repr=False)
    proxy_wait_seconds: float = 60.0
    redial: RedialOptions | None = None
    files: Path | None = None
    browser: BrowserOptions = field(default_factory=BrowserOptions)
    recording: Recording | None = None
    fetches_missing: bool = False


def read_fetch_options(
    env: Env, data: Path, *, replay: str = "", missing: str = ""
) -> FetchOptions:
    """Read ``AGENT_PROXIES`` and the like; index the recording.

    ``replay``, ``missing``: instead of ``AGENT_REPLAY`` and ``AGENT_REPLAY_MISSING``.

    Raises ``EnvError``, which repeats no password.
    """
    missing = missing or env.str("AGENT_REPLAY_MISSING", "fail", choices=("fail", "fetch"))
    return FetchOptions(
        proxies=_proxies(env.secret("AGENT_PROXIES", "")),
        proxy_source=env.url("AGENT_PROXY_SOURCE", "", schemes=_WEB),
        proxy_source_seconds=env.float(
            "AGENT_PROXY_SOURCE_SECONDS", 60.0, minimum=1, maximum=86_400
        ),
        proxy_check_url=env.url("AGENT_PROXY_CHECK_URL", "", schemes=_WEB),
        proxy_wait_seconds=env.float("AGENT_PROXY_WAIT_SECONDS", 60.0, minimum=0, maximum=3600),
        redial=_redial(env, data),
        files=_files(env),
        browser=BrowserOptions(
            executable=env.str("AGENT_BROWSER", ""),
            pages=env.int("AGENT_BROWSER_PAGES", 4, minimum=1, maximum=64),
            # Chromium's own sandbox does not work for root.
            sandbox=env.bool("AGENT_BROWSER_SANDBOX", os.geteuid() != 0),
        ),
        recording=_recording(Path(replay) if replay else env.path("AGENT_REPLAY", None)),
        fetches_missing=missing == "fetch",
    )


def _proxies(text: str) -> tuple[ProxyAddress, ...]:
    """Parse a list separated by commas, blanks or lines; a comma in a password is written %2C."""
    found: list[ProxyAddress] = []
    for number, part in enumerate(text.replace(",", " ").split(), start=1):
        try:
            found.append(ProxyAddress.parse(part))
        except ValueError as error:
            raise EnvError(
                "AGENT_PROXIES",
                f"number {number}: {error}",
                "write http://user:password@host:8080,socks5://host:1080",
            ) from None
    return tuple(dict.fromkeys(found))


def _redial(env: Env, data: Path) -> RedialOptions | None:
    command = env.secret("AGENT_REDIAL_COMMAND", "")
    check_url = env.url("AGENT_REDIAL_CHECK_URL", "", schemes=_WEB)
    lock = env.path("AGENT_REDIAL_LOCK", data / "redial.lock")
    minutes = env.float("AGENT_REDIAL_MINUTES", 2.0, minimum=0, maximum=1440)
    seconds = env.float("AGENT_REDIAL_SECONDS", 60.0, minimum=1, maximum=3600)
    try:
        arguments = tuple(shlex.split(command))
    except ValueError as error:
        raise EnvError(
            "AGENT_REDIAL_COMMAND", f"it cannot be read ({error})", "close its quotes"
        ) from None
    if not arguments:
        return None
    return RedialOptions(arguments, lock, check_url, minutes * 60.0, seconds)


def _files(env: Env) -> Path | None:
    root = env.path("AGENT_FILES", None)
    if root is None:
        return None
    if not root.is_absolute() or not root.is_dir():
        raise EnvError("AGENT_FILES", "it is no folder", "write the whole path of a folder")
    return root


def _recording(path: Path | None) -> Recording | None:
    if path is None:
        return None
    try:
        return open_recording(path)
    except RecordingError as error:
        raise EnvError(
            "AGENT_REPLAY", str(error), "name a WARC or HAR file, or a folder (docs/replay.md)"
        ) from error
