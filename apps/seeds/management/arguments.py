"""Arguments of ``manage.py seeds``, and parsing of frontiers, segments and times."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.core.management.base import CommandError, CommandParser

from apps.projects.management.arguments import project_named
from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, LAST_TIME
from apps.seeds.models import Frontier
from apps.seeds.stores.operations import now_ms

BAD_INPUT: Final = 2
_DAYS: Final = {"yesterday": -1, "today": 0, "tomorrow": 1}
_SEGMENT: Final = "default, today, yesterday, 2026-11-21, 2026-11-21T14:00, or ms since 1970"


def add_verbs(parser: CommandParser) -> None:
    """Add a subparser for each verb."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="all frontiers with their counts")
    listing.add_argument("--project", metavar="P", help="only this project")
    _json(listing)
    _add_create(verbs)
    _json(_verb(verbs, "segments", "current counts of each segment"))
    add = _verb(verbs, "add", "add seeds")
    add.add_argument("seeds", metavar="SEED", nargs="+", help="usually a URL")
    _seed(add)
    add.add_argument("--urgent", action="store_true", help="lease it before all others")
    _json(add)
    load = _verb(verbs, "load", "add seeds from a text file, one a line")
    load.add_argument("file", metavar="FILE", help="- is standard input; .gz is unpacked")
    _seed(load)
    look_up = _verb(verbs, "look-up", "would this seed be new, and if not, since when?")
    look_up.add_argument("seed", metavar="SEED")
    _at(look_up)
    _json(look_up)
    for name, text in (
        ("reopen", "make an ended seed pending again"),
        ("forget", "delete a seed, so that its key is new again"),
    ):
        verb = _verb(verbs, name, text)
        verb.add_argument("segment", metavar="SEGMENT", help=_SEGMENT)
        verb.add_argument("key", metavar="KEY", help="as shown by look-up")
    reopen_failed = _verb(verbs, "reopen-failed", "crawl the failed seeds of a segment again")
    reopen_failed.add_argument("segment", metavar="SEGMENT", help=_SEGMENT)
    reopen_failed.add_argument("--into", metavar="SEGMENT", help="target segment (the current one)")
    _add_dropping(verbs)
    _add_files(verbs)
    _add_granularity(verbs)
    _json(_verb(verbs, "operations", "operations on many seeds, and their progress"))
    cancel = verbs.add_parser("cancel", help="cancel an operation after its current slice")
    cancel.add_argument("operation", metavar="N", type=int, help="number")


def _add_create(verbs: Any) -> None:
    create = verbs.add_parser("create", help="create a frontier")
    create.add_argument("name", metavar="NAME")
    create.add_argument("--project", metavar="P", default="default", help="short name or id")
    create.add_argument("--description", default="", help="remark")
    _grouping(create)
    create.add_argument("--max-retry", type=int, metavar="N", help="number of tries")
    create.add_argument("--lease-seconds", type=int, metavar="S", help="lease time of seeds")
    create.add_argument("--expected-seeds", type=int, metavar="N", help="of a segment")


def _add_dropping(verbs: Any) -> None:
    drop = _verb(verbs, "drop", "delete a segment with its seeds")
    drop.add_argument("segment", metavar="SEGMENT", help=_SEGMENT)
    wipe = _verb(verbs, "wipe", "delete all segments")
    for verb in (drop, wipe):
        verb.add_argument("--leased-too", action="store_true", help="also leased seeds")
        verb.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def _add_files(verbs: Any) -> None:
    export = _verb(verbs, "export", "write all seeds with their states, as JSON lines")
    export.add_argument("file", metavar="FILE", help="- is standard output; .gz is packed")
    export.add_argument("--segment", metavar="SEGMENT", help=f"only this one: {_SEGMENT}")
    importing = _verb(verbs, "import", "import a file that export wrote")
    importing.add_argument("file", metavar="FILE", help="- is standard input; .gz is unpacked")


def _add_granularity(verbs: Any) -> None:
    granularity = _verb(verbs, "granularity", "other segments, time zone or keys, with all seeds")
    _grouping(granularity)
    granularity.add_argument("--preview", action="store_true", help="preview")
    granularity.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="S",
        help="seconds to wait for leased seeds (0: refuse if there are any)",
    )
    granularity.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    _json(granularity)


def _verb(verbs: Any, name: str, text: str) -> CommandParser:
    parser: CommandParser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument("frontier", metavar="FRONTIER", help="NAME, PROJECT/NAME or its number")
    return parser


def _grouping(parser: CommandParser) -> None:
    parser.add_argument("--segments", metavar="R", help="day, hour, days:3, week, month, none, ...")
    parser.add_argument("--time-zone", metavar="ZONE", help="such as Asia/Shanghai")
    parser.add_argument("--keys", metavar="R", help="whole, page, canonical, ...")
    parser.add_argument(
        "--ignored-parameter",
        metavar="NAME",
        action="append",
        dest="ignored_parameters",
        help="of canonical keys; may be repeated",
    )


def _seed(parser: CommandParser) -> None:
    _at(parser)
    parser.add_argument("--max-retry", type=int, metavar="N", help="default: the frontier's")


def _at(parser: CommandParser) -> None:
    text = "not to be crawled before: now, 2026-11-21T14:00 by the frontier's clock, ..."
    parser.add_argument("--at", metavar="TIME", help=text)


def _json(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


# --- lookup by name ------------------------------------------------------------------------------


def frontier_named(name: str) -> Frontier:
    """Return the frontier by ``NAME`` if it is unique, ``PROJECT/NAME``, or ID.

    Raises ``CommandError``.
    """
    rows = Frontier.objects.select_related("project")
    project, _slash, last = name.rpartition("/")
    matching = rows.filter(name=last)
    if project:
        matching = matching.filter(project=project_named(project))
    frontiers = list(matching[:5])
    if not frontiers and not project and last.isascii() and last.isdigit() and len(last) < 19:
        frontiers = list(rows.filter(pk=int(last)))
    if len(frontiers) > 1:
        several = ", ".join(full_name(frontier) for frontier in frontiers)
        raise CommandError(f"{name}: which one? {several}", returncode=BAD_INPUT)
    if not frontiers:
        names = {full_name(frontier): frontier.name for frontier in rows}
        near = [*get_close_matches(name, names, n=1)] or [
            full for full, short in names.items() if get_close_matches(last, [short])
        ]
        meant = f"; is {near[0]} meant?" if near else ""
        raise CommandError(f"there is no frontier {name!r}{meant}", returncode=BAD_INPUT)
    return frontiers[0]


def full_name(frontier: Frontier) -> str:
    """Return ``PROJECT/NAME``, as accepted by ``frontier_named``."""
    return f"{frontier.project.slug}/{frontier.name}"


def segment_named(frontier: Frontier, text: str) -> int:
    """Return the segment that begins at, or contains, the time ``text``. Raises
    ``CommandError``.
    """
    if text == "default":
        return DEFAULT_SEGMENT
    if text.isascii() and text.isdigit():
        number = int(text) if len(text) < 16 else LAST_TIME
        if number >= LAST_TIME:
            raise CommandError(f"{text} is no beginning of a segment", returncode=BAD_INPUT)
        return number
    try:
        return frontier.rules().segments(time_named(frontier, text))
    except InvalidFrontierSetting as error:
        raise CommandError(str(error), returncode=BAD_INPUT) from error


def time_named(frontier: Frontier, text: str) -> int:
    """Return a time in ms; without an offset it is in the frontier's time zone. Raises
    ``CommandError``.
    """
    zone = ZoneInfo(frontier.time_zone)
    if text == "now":
        return now_ms()
    if text in _DAYS:
        day = datetime.now(zone).replace(hour=0, minute=0, second=0, microsecond=0)
        return int((day + timedelta(days=_DAYS[text])).timestamp() * 1000)
    if text.isascii() and text.isdigit() and len(text) == 13:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        line = f"{text!r} is no time; such are: now, today, 2026-11-21, 2026-11-21T14:00+08:00"
        raise CommandError(line, returncode=BAD_INPUT) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return int(moment.timestamp() * 1000)


def shown_segment(frontier: Frontier, segment: int) -> str:
    """Return the beginning of a segment in the frontier's time zone."""
    return "default" if segment == DEFAULT_SEGMENT else shown_time(frontier, segment)


def shown_time(frontier: Frontier, ms: int) -> str:
    """Return a time in the frontier's time zone, to the second."""
    moment = datetime.fromtimestamp(ms // 1000, UTC).astimezone(ZoneInfo(frontier.time_zone))
    short = "%Y-%m-%d %H:%M" if not moment.second else "%Y-%m-%d %H:%M:%S"
    if (moment.hour, moment.minute, moment.second) == (0, 0, 0):
        short = "%Y-%m-%d"
    return moment.strftime(short)


def who() -> str:
    """Return the name of the operating system's user, for the audit trail."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):
        # The user of a container may have a UID without a name.
        name = "unknown"
    return f"{name} (manage.py seeds)"
