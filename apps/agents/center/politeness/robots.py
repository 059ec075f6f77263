"""robots.txt by RFC 9309: what an origin lets a crawler fetch, and how its file is read."""

from __future__ import annotations

import enum
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from protego import Protego

from yardkit.protocol import RETRYABLE_FAILURES, DownloadResult, FailureKind, header_texts

if TYPE_CHECKING:
    from apps.agents.center.politeness.host import HeldRequest

MAX_BYTES: Final = 512 * 1024
MAX_REDIRECTS: Final = 5
# Pauses after failed fetches; after the last one everything is forbidden.
RETRY_SECONDS: Final = (2.0, 10.0, 30.0, 60.0)
# Time for which an origin counts as unreachable before it is tried again.
UNREACHABLE_SECONDS: Final = 60.0
# A cached copy may replace an unreachable file for a limited time (RFC 9309, 2.4).
STALE_SECONDS: Final = 24 * 3600.0
LONGEST_DELAY_SECONDS: Final = 3600.0


class RobotsDecision(enum.Enum):
    """Whether robots.txt allows one request."""

    ALLOWED = "allowed"
    FORBIDDEN = "forbidden"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RobotsFinding:
    """Result of one fetch of a robots.txt: exactly one field is set.

    ``robots``: the parsed file. ``redirect``: the next URL. ``problem``: no usable answer.
    """

    robots: Protego | None = None
    redirect: str = ""
    problem: str = ""


def read(result: DownloadResult, redirects: int) -> RobotsFinding:
    """Interpret an agent's answer after a number of redirects.

    2xx is the file. Other final answers (4xx, too many redirects, refused by the agent as every
    page of the origin will be) allow everything. 429, 5xx and no answer are inconclusive: retry
    later.
    """
    if result.status == 0 or result.failure != FailureKind.NONE:
        if result.failure in RETRYABLE_FAILURES or result.failure == FailureKind.NONE:
            return RobotsFinding(problem=result.error or result.failure or "no answer")
        return RobotsFinding(robots=Protego.parse(""))
    if 200 <= result.status < 300:
        return RobotsFinding(robots=Protego.parse(_text(result)))
    if result.status == 429 or result.status >= 500:
        return RobotsFinding(problem=f"HTTP {result.status}")
    if 300 <= result.status < 400 and redirects < MAX_REDIRECTS:
        where = next((v for k, v in header_texts(result.headers) if k.lower() == "location"), "")
        try:
            address = urljoin(result.url, where)
            if where and urlsplit(address).scheme in ("http", "https"):
                return RobotsFinding(redirect=address)
        except ValueError:
            pass
    return RobotsFinding(robots=Protego.parse(""))


def _text(result: DownloadResult) -> str:
    body = result.body
    if result.compressed:
        try:
            body = zlib.decompressobj().decompress(body, MAX_BYTES)
        except zlib.error:
            body = b""
    return body[:MAX_BYTES].decode("utf-8", errors="replace")


def origin_of(url: str) -> str:
    """Return ``scheme://host[:port]`` of an http or https URL, "" of others."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    standard = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{host}" + (f":{port}" if port and port != standard else "")


@dataclass(slots=True, eq=False)
class RobotsOrigin:
    """The robots.txt of one origin. Times are of the engine's monotonic clock."""

    name: str
    host: str
    robots: Protego | None = None
    read_at: float = 0.0
    # Why everything is forbidden until ``again_at``; "" if it is not.
    unreachable: str = ""
    again_at: float = 0.0
    problem: str = ""
    tries: int = 0
    redirects: int = 0
    url: str = ""
    # Number of the fetch under way, and when it counts as lost.
    fetch: int | None = None
    lost_at: float = 0.0
    waiting: deque[HeldRequest] = field(default_factory=deque)

    def judge(
        self, url: str, agent: str, now: float, cache_seconds: float
    ) -> tuple[RobotsDecision, str]:
        """Return (verdict, why it is forbidden) for a URL and a user agent."""
        if self.robots is not None and now - self.read_at < cache_seconds:
            if self.robots.can_fetch(url, agent):
                return RobotsDecision.ALLOWED, ""
            return RobotsDecision.FORBIDDEN, f"robots.txt of {self.name} forbids it"
        if self.unreachable and now < self.again_at:
            return RobotsDecision.FORBIDDEN, self.unreachable
        return RobotsDecision.UNKNOWN, ""

    def delay(self, agent: str) -> float:
        """Return the Crawl-delay for a user agent, in seconds; 0 for none."""
        if self.robots is None:
            return 0.0
        delay = self.robots.crawl_delay(agent) or 0.0
        rate = self.robots.request_rate(agent)
        if rate is not None and rate.requests > 0:
            delay = max(delay, rate.seconds / rate.requests)
        return min(max(0.0, delay), LONGEST_DELAY_SECONDS)

    def found(self, finding: RobotsFinding, now: float) -> None:
        """Process the result of a fetch. If ``redirect`` is set, fetch that at once."""
        self.fetch = None
        if finding.redirect:
            self.redirects += 1
            self.url = finding.redirect
            self.again_at = now
            return
        self.redirects, self.url = 0, ""
        if finding.robots is not None:
            self.robots, self.read_at = finding.robots, now
            self.problem, self.unreachable, self.tries = "", "", 0
            return
        self._missed(finding.problem, now)

    def _missed(self, problem: str, now: float) -> None:
        self.problem = problem
        if self.tries < len(RETRY_SECONDS):
            self.again_at = now + RETRY_SECONDS[self.tries]
            self.tries += 1
            return
        self.tries = 0
        self.again_at = now + UNREACHABLE_SECONDS
        if self.robots is not None and now - self.read_at < STALE_SECONDS:
            self.read_at = now
            return
        self.robots = None
        self.unreachable = f"robots.txt of {self.name} cannot be read ({problem})"

    def state(self, now: float) -> str:
        """Return ``read``, ``fetching``, ``unreachable`` or ``unknown``, for pages."""
        if self.unreachable and now < self.again_at:
            return "unreachable"
        if self.waiting or self.fetch is not None:
            return "fetching"
        return "read" if self.robots is not None else "unknown"
