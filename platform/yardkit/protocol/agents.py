"""Messages about agents and their allocation."""

from __future__ import annotations

import msgspec

from yardkit.protocol.base import DownloaderType, Message, Policy
from yardkit.protocol.pages import PagePolicy, ReplaySource


class Register(Message, frozen=True, kw_only=True, tag="register"):
    """Registration of a started agent, processed whatever its age."""

    agent: str
    name: str
    boot: str
    processors: int
    total_memory_bytes: int
    labels: dict[str, str] = {}
    version: str = ""
    # The types of downloader it can make; the extras of some may not be installed.
    types: tuple[DownloaderType, ...] = (DownloaderType.HTTP,)
    # What is secret is sealed for it (``yardkit.seals``); b"" of an older agent.
    seal_key: bytes = b""
    sent_at: float = 0.0


class Heartbeat(Message, frozen=True, kw_only=True, tag="heartbeat"):
    """Heartbeat of an agent, every 5 s; judged by the receiver's clock."""

    agent: str
    name: str
    boot: str
    total_memory_bytes: int
    free_memory_bytes: int
    cpu_percent: float
    downloaders: int
    qps: float
    labels: dict[str, str] = {}
    version: str = ""
    types: tuple[DownloaderType, ...] = (DownloaderType.HTTP,)
    # What its owner should look at, such as an allocation file that was damaged.
    problems: list[str] = []
    # How many it has made since ``boot``, this one included, so that a missing one shows. 0:
    # unknown.
    heartbeats: int = 0


class CutRule(msgspec.Struct, frozen=True, kw_only=True):
    """Rule that cuts a part out of the text on the agent.

    From ``start`` to the next ``end``, both included ("": the beginning or end of the text), or the
    first match of ``pattern`` (google-re2; its first group, if any). ``start_offset`` and
    ``end_offset`` shift the edges in characters, positive to the right. Rules apply one after
    another.
    """

    start: str = ""
    end: str = ""
    pattern: str = ""
    start_offset: int = 0
    end_offset: int = 0
    trim: bool = False


class DownloaderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and settings of a run's downloader. Sizes in bytes, times in seconds."""

    concurrency: int = 64
    timeout_seconds: float = 15.0
    max_body_bytes: int = 8 * 1024 * 1024
    max_redirects: int = 10
    follow_redirects: bool = True
    user_agent: str = "Crawlyard"
    type: DownloaderType = DownloaderType.HTTP
    # The browser to be like (``impersonate``), as curl_cffi names them.
    impersonate: str = "chrome"
    use_cookies: bool = True
    cookies: dict[str, str] = {}
    # For pages that state no character set, or a wrong one; "" trusts the page.
    encoding: str = ""
    # Texts come with "&amp;" and its like resolved.
    decode_html: bool = False
    cut: list[CutRule] = []
    # Proxies and the redial command belong to the agent, so no password travels.
    use_proxy: bool = False
    redial: bool = False
    # google-re2, searched in the text of the answer after its status line: "HTTP 403\n...".
    switch_pattern: str = ""
    # Retries of a request after its address has been switched (seed S1.30).
    switch_retries: int = 3
    # For the center: whether the hosts' robots.txt is kept to.
    obey_robots: bool = True
    # Networks a project has opened on purpose ("127.0.0.0/8"); private ranges are refused else.
    allowed_networks: list[str] = []
    # Whether a certificate that no known authority signed, or of another host, fails a request.
    verify_tls: bool = True
    # "TLSv1.2" and the like; "" leaves it to OpenSSL.
    tls_minimum: str = ""
    tls_maximum: str = ""
    # In OpenSSL's format, for TLS 1.2 and below; "" leaves it to OpenSSL.
    tls_ciphers: str = ""
    # Nothing is added to the headers of a request but Host, Content-Length and Connection.
    exact_headers: bool = False
    # Bodies as received, with their ``Content-Encoding``; not where text rules need the text.
    raw_bodies: bool = False
    # Whether each result carries the certificate of the server.
    certificates: bool = False
    pages: PagePolicy = PagePolicy()
    replay: ReplaySource = ReplaySource()
    # The results that the run reads. 1: headers as text, and the first kinds of failures, for SDKs
    # in images that were built long ago. 2: headers as bytes, and every kind. 3: large bodies in
    # the object store, and ``body_store``. 4: several bodies in one object.
    result_version: int = 1
    # A longer body goes by the object store, if there is one and the run reads it.
    body_inline_bytes: int = 64 * 1024


class Allocate(Message, frozen=True, kw_only=True, tag="allocate"):
    """Request of a run for agents, answered by ``Allocated``."""

    run: int
    token: str
    reply_to: str
    policy: Policy = Policy.RANDOM
    agents: int = 0
    settings: DownloaderSettings = DownloaderSettings()
    # Unix seconds by the run's clock; older than 30 s is void (seed S1.31, S1.46). 0: unknown.
    sent_at: float = 0.0


class Allocated(Message, frozen=True, kw_only=True, tag="allocated"):
    """Answer of the center. ``agents`` is empty, with ``error``, when there are none."""

    run: int
    agents: list[str]
    warning: str = ""
    error: str = ""


class Release(Message, frozen=True, kw_only=True, tag="release"):
    """A run has ended and releases its agents."""

    run: int
    token: str


class AllocateDownloader(Message, frozen=True, kw_only=True, tag="allocate_downloader"):
    """Command of the center to an agent to create a downloader for a run."""

    run: int
    reply_to: str
    settings: DownloaderSettings
    policy: Policy = Policy.RANDOM
    # Unix seconds by the center's clock; older than 30 s is dropped (seed S1.31). 0: unknown.
    allocated_at: float = 0.0
    # The cookies as JSON, sealed for this agent and this run; those of ``settings`` are empty then.
    sealed_cookies: bytes = b""


class DownloaderReady(Message, frozen=True, kw_only=True, tag="downloader_ready"):
    """Confirmation of an agent to the run."""

    run: int
    agent: str
    ok: bool
    reason: str = ""


class ReleaseDownloader(Message, frozen=True, kw_only=True, tag="release_downloader"):
    """Command of the center to an agent to delete a run's downloader."""

    run: int


class ExitAgent(Message, frozen=True, kw_only=True, tag="exit_agent"):
    """Command to an agent to finish and exit."""

    reason: str = ""
