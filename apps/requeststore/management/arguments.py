"""Arguments of ``manage.py requests`` and their conversion."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser

from apps.projects.management.arguments import project_named
from apps.requeststore.engine.limits import MAX_BATCH, MAX_ID
from apps.requeststore.services.store import BoundBiz, RequestStore

BAD_INPUT: Final = 2
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TIME: Final = "2026-11-21T14:00 (UTC), 2026-11-21T14:00+08:00, or 30m, 6h, 2d ago"


def add_verbs(parser: CommandParser) -> None:
    """Add the subcommands and their arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    books = verbs.add_parser("books", help="accounting of all bizzes")
    books.add_argument("--project", metavar="P", help="only this project")
    _json(books)
    submit = _verb(verbs, "submit", "submit the requests of a file")
    text = "- is standard input; a URL or a JSON object a line"
    submit.add_argument("file", metavar="FILE", help=text)
    _json(submit)
    show = verbs.add_parser("show", help="state and history of a request")
    show.add_argument("id", metavar="ID")
    _json(show)
    listing = _verb(verbs, "list", "requests, the newest first")
    listing.add_argument("--flag", type=int, metavar="N", help="0 new, 1 processed, -1 taken, ...")
    _span(listing)
    listing.add_argument("--limit", type=int, default=50, metavar="N")
    _json(listing)
    reopen = _verb(verbs, "reopen", "reopen ended requests, so that they are tried again")
    reopen.add_argument("ids", metavar="ID", nargs="*", help="default: those of a time")
    reopen.add_argument("--flag", type=int, metavar="N", help="final flag (failed)")
    _span(reopen)
    _json(reopen)
    extract = _verb(verbs, "extract", "extract records from kept pages again, by the rules of now")
    extract.add_argument("ids", metavar="ID", nargs="*", help="default: those of a time")
    extract.add_argument("--flag", type=int, metavar="N", help="final flag (any)")
    _span(extract)
    extract.add_argument("--follow", action="store_true", help="work here and show progress")
    extract.add_argument("--cancel", action="store_true", help="cancel the active one")
    _json(extract)
    _add_rebalance(verbs)


def _add_rebalance(verbs: Any) -> None:
    rebalance = _verb(
        verbs, "rebalance", "move requests of older epochs to the shards of the newest epoch"
    )
    rebalance.add_argument("--dry-run", action="store_true", help="preview")
    rebalance.add_argument("--follow", action="store_true", help="work here and show progress")
    rebalance.add_argument("--cancel", action="store_true", help="cancel the active one")
    rebalance.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    _json(rebalance)


def _verb(verbs: Any, name: str, text: str) -> CommandParser:
    parser: CommandParser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument("biz", metavar="BIZ", help="NAME, or PROJECT/NAME")
    return parser


def _span(parser: CommandParser) -> None:
    parser.add_argument("--since", metavar="TIME", help=f"stored since: {_TIME}")
    parser.add_argument("--until", metavar="TIME", help="stored before")


def _json(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


# --- conversion ----------------------------------------------------------------------------------


def biz_named(request_store: RequestStore, text: str) -> BoundBiz:
    """Return the biz ``NAME`` or ``PROJECT/NAME``."""
    slug, _slash, name = text.rpartition("/")
    matching = [bound for bound in request_store.bizzes() if bound.name == name]
    if slug:
        project = project_named(slug)
        matching = [bound for bound in matching if bound.project_id == project.pk]
    if len(matching) > 1:
        raise CommandError(
            f"several projects have a biz {name}: say PROJECT/{name}", returncode=BAD_INPUT
        )
    if not matching:
        near = get_close_matches(
            name, sorted({bound.name for bound in request_store.bizzes()}), n=1
        )
        hint = f"; did you mean {near[0]}?" if near else ""
        raise CommandError(f"there is no biz {text}{hint}", returncode=BAD_INPUT)
    return matching[0]


def id_named(text: str) -> int:
    """Parse an ID."""
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[:20]) <= MAX_ID:
        raise CommandError(f"{text[:60]} is no id", returncode=BAD_INPUT)
    return int(text)


def time_named(text: str | None, usual: int, now: int) -> int:
    """Parse a time to Unix ms."""
    if text is None:
        return usual
    if text[:-1].isdigit() and text[-1] in _UNITS and len(text) < 10:
        return now - int(text[:-1]) * _UNITS[text[-1]] * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{text} is no time: {_TIME}", returncode=BAD_INPUT) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))


def limit_named(number: int) -> int:
    """Parse a number of rows."""
    if not 1 <= number <= MAX_BATCH:
        raise CommandError(f"--limit: from 1 to {MAX_BATCH}", returncode=BAD_INPUT)
    return number


def who() -> str:
    """Return the operating system's user, for audit trail and histories."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "?"
    return f"manage.py requests ({name})"
