"""Pages of logs: one log, search over all logs, error groups."""

from apps.joblogs.pages.errors import errors_page, move_error
from apps.joblogs.pages.log import log_page
from apps.joblogs.pages.search import search_page

__all__ = ["errors_page", "log_page", "move_error", "search_page"]
