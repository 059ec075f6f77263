"""Log lines and values that differ between versions of Scrapy, as the installed one has them.

``scrapy.utils._download_handlers`` is private: without it the texts of Scrapy 2.11 are used, and
tests/yardscrapy/test_private_api.py fails when the installed version has changed it.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from scrapy import Request
from twisted.web.iweb import UNKNOWN_LENGTH as _TWISTED_UNKNOWN

UNKNOWN_LENGTH: Final[Any] = _TWISTED_UNKNOWN


def _private() -> Any:
    try:
        return importlib.import_module("scrapy.utils._download_handlers")
    except ImportError:
        return None


_SCRAPY: Final[Any] = _private()


def maxsize(size: int, limit: int, request: Request, *, expected: bool) -> str:
    """Return the line about a body over ``DOWNLOAD_MAXSIZE``."""
    if hasattr(_SCRAPY, "get_maxsize_msg"):
        return str(_SCRAPY.get_maxsize_msg(size, limit, request, expected=expected))
    if expected:
        return (
            f"Cancelling download of {request.url}: expected response size ({size}) larger than "
            f"download max size ({limit})."
        )
    return f"Received ({size}) bytes larger than download max size ({limit}) in request {request}."


def warnsize(size: int, limit: int, request: Request, *, expected: bool) -> str:
    """Return the line about a body over ``DOWNLOAD_WARNSIZE``."""
    if hasattr(_SCRAPY, "get_warnsize_msg"):
        return str(_SCRAPY.get_warnsize_msg(size, limit, request, expected=expected))
    if expected:
        return (
            f"Expected response size ({size}) larger than download warn size ({limit}) in "
            f"request {request}."
        )
    return f"Received more bytes than download warn size ({limit}) in request {request}."


def dataloss(url: str) -> str:
    """Return the line about the first body that was cut short."""
    if hasattr(_SCRAPY, "get_dataloss_msg"):
        return str(_SCRAPY.get_dataloss_msg(url))
    return (
        f"Got data loss in {url}. If you want to process broken responses set the setting "
        "DOWNLOAD_FAIL_ON_DATALOSS = False -- This message won't be shown in further requests"
    )


def timeout(url: str, seconds: float) -> str:
    """Return the text of the exception for a download that took too long."""
    return f"Getting {url} took longer than {seconds} seconds."
