"""Log lines of a run in the platform's format: UTC time, level, logger, one line a record.

Scrapy's own handler follows ``LOG_FORMAT`` and ``LOG_DATEFORMAT`` of the project, which the
platform cannot know; so it is switched off (except for a ``LOG_FILE``), and this one is added.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Final

from yardkit.log_lines import OneLineFormatter

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Formatter(OneLineFormatter):
    default_msec_format = "%s.%03dZ"


class RunLogHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the run's log. ``follow`` applies ``LOG_LEVEL`` of the project."""

    def __init__(self) -> None:
        # The stream is kept: LOG_STDOUT of a project replaces sys.stdout, not this one.
        super().__init__(sys.stderr)
        formatter = _Formatter(_FORMAT)
        formatter.converter = time.gmtime
        self.setFormatter(formatter)
        self.setLevel(logging.INFO)

    def follow(self, settings: BaseSettings) -> None:
        self.setLevel(settings.get("LOG_LEVEL") or "DEBUG")


def install(settings: BaseSettings) -> RunLogHandler:
    """Take over the log of this process; return the handler."""
    settings.set("LOG_ENABLED", False, priority="cmdline")
    handler = RunLogHandler()
    handler.follow(settings)
    logging.root.addHandler(handler)
    logging.root.setLevel(logging.NOTSET)
    # As chatty as Scrapy's own dependencies, and of no use to readers of a spider's log.
    logging.getLogger("pika").setLevel(logging.WARNING)
    return handler
