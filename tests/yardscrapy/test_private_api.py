"""Private names of Scrapy that are used, and versions of what differs: each with its reason."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest
import scrapy

from yardscrapy import texts, versions
from yardscrapy.handler import AgentDownloadHandler

REQUEST = scrapy.Request("http://a.test/")


@pytest.mark.parametrize("name", ["get_maxsize_msg", "get_warnsize_msg"])
def test_the_lines_about_sizes_are_the_ones_of_this_version(name: str) -> None:
    """Projects filter their logs by these lines, and Scrapy exports no text of them."""
    private = importlib.import_module("scrapy.utils._download_handlers")
    parameters = inspect.signature(getattr(private, name)).parameters
    assert list(parameters) == ["size", "limit", "request", "expected"]
    ours = texts.maxsize if name == "get_maxsize_msg" else texts.warnsize
    for expected in (True, False):
        line = getattr(private, name)(5, 3, REQUEST, expected=expected)
        assert ours(5, 3, REQUEST, expected=expected) == line


def test_the_line_about_lost_data_is_the_one_of_this_version() -> None:
    private = importlib.import_module("scrapy.utils._download_handlers")
    assert list(inspect.signature(private.get_dataloss_msg).parameters) == ["url"]
    assert texts.dataloss("http://a.test/") == private.get_dataloss_msg("http://a.test/")


_CHECK = """
import inspect, sys
import scrapy
from scrapy.core.downloader.handlers import DownloadHandlers
from yardscrapy import failures, versions
from yardscrapy.handler import AgentDownloadHandler
asynchronous = "async" in inspect.getsource(DownloadHandlers.download_request_async) if hasattr(
    DownloadHandlers, "download_request_async") else False
assert versions.HANDLERS_ARE_COROUTINES == asynchronous, (versions.VERSION, asynchronous)
assert versions.is_coroutine_handler(AgentDownloadHandler) == asynchronous
assert failures.HAS_OWN_EXCEPTIONS == (versions.VERSION >= (2, 15))
print(scrapy.__version__)
"""


def test_both_interfaces_of_handlers_are_chosen_by_version(python: str) -> None:
    path = ":".join(entry for entry in sys.path if entry.endswith("platform"))
    done = subprocess.run(
        [python, "-c", _CHECK],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_this_version_has_coroutines() -> None:
    assert inspect.iscoroutinefunction(AgentDownloadHandler.download_request)
    assert versions.VERSION >= (2, 14)
