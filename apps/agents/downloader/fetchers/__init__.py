"""Fetchers of each type of downloader, proxies, and redialling."""

from apps.agents.downloader.fetchers.equipment import Equipment, PageFetcher, available_types
from apps.agents.downloader.fetchers.options import FetchOptions, read_fetch_options

__all__ = ["Equipment", "FetchOptions", "PageFetcher", "available_types", "read_fetch_options"]
