"""Pages that an agent keeps: written as WARC, uploaded, and indexed."""

from apps.agents.downloader.kept.keeper import PageKeeper

__all__ = ["PageKeeper"]
