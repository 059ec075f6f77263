"""Pages that agents keep: which, and what became of them."""

from __future__ import annotations

import enum
import zlib

import msgspec

from yardkit.protocol.base import FailureKind, Message


class KeepPages(enum.StrEnum):
    """Which responses an agent keeps as WARC."""

    NONE = "none"
    # An error status, or a body that broke off or was too large.
    FAILED = "failed"
    # Those of one in ``PagePolicy.sample`` addresses, which are the same in every run.
    SAMPLE = "sample"
    ALL = "all"


class PagePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which pages of a run are kept. Set by the center; what a run asks for is not used.

    ``token`` proves the agent that stores them (``yardkit.tokens.sign_pages_token``).
    """

    keep: KeepPages = KeepPages.NONE
    sample: int = 1
    token: str = ""

    def chooses(self, url: str, status: int, failure: FailureKind) -> bool:
        """Return whether a response is to be kept. ``status`` 0: there is none."""
        keep = self.keep
        if keep is KeepPages.NONE or not status:
            return False
        if keep is KeepPages.FAILED:
            return status >= 400 or failure != FailureKind.NONE
        if keep is KeepPages.ALL:
            return True
        # Not hash(): it differs from process to process.
        return zlib.crc32(url.encode("utf-8", "surrogatepass")) % max(1, self.sample) == 0


class ReplaySource(msgspec.Struct, frozen=True, kw_only=True):
    """Run whose kept pages answer the downloads of another one; 0: none.

    Set by the center; what a run asks for is not used. ``token`` is that of the kept pages.
    """

    run: int = 0
    fetch_missing: bool = False
    token: str = ""


class PageCounters(Message, frozen=True, kw_only=True, tag="page_counters"):
    """Pages of one run that an agent was to keep: absolute counts since ``boot`` began.

    chosen = kept + not kept + waiting; ``not_kept`` by reason. What is kept is counted where it is
    stored. Pages of a request group have no run (0) and the ID of their ``dataset``.
    """

    run: int
    boot: str
    seq: int
    chosen: int = 0
    not_kept: dict[str, int] = {}
    dataset: int = 0
