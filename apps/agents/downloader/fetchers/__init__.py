"""What fetches the pages of a run: one fetcher for each type of downloader (seed S1.30)."""

from __future__ import annotations

from yardkit.protocol import DownloaderType


def available_types() -> tuple[DownloaderType, ...]:
    """The types this agent can make; the extras of others may not be installed."""
    return (DownloaderType.HTTP,)
