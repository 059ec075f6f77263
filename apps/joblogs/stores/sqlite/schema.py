"""Tables, and how a line is put into them.

The lines of each day (UTC) are in tables of their own, which go as a whole. The ``id`` of a line
begins with the time of day, so the newest lines of anything are found by walking down an index: the
table itself, or that of words, where project, job, execution and level are words as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from apps.joblogs.engine.words import Phrase
from apps.joblogs.stores.accounts import as_stored
from apps.joblogs.stores.days.session import table

# Begins a word that no text holds: it belongs to no script, and is no letter.
MARK: Final = "\ue000"
# How ``engine.words`` cuts text; lines that were cut otherwise keep their words.
WORDS_VERSION: Final = 1

TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS executions (
        id INTEGER PRIMARY KEY AUTOINCREMENT, stream TEXT NOT NULL, boot TEXT NOT NULL,
        boot_number INTEGER NOT NULL, project INTEGER NOT NULL, job INTEGER NOT NULL,
        dropped INTEGER NOT NULL, spans BLOB NOT NULL, fresh TEXT NOT NULL,
        first_at INTEGER, last_at INTEGER, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
        UNIQUE (stream, boot)
    )""",
    "CREATE INDEX IF NOT EXISTS executions_of_job ON executions (project, job)",
    "CREATE INDEX IF NOT EXISTS executions_silent ON executions (updated_at)",
    # Lines and bytes of texts; none of these lines is older than first_at.
    """CREATE TABLE IF NOT EXISTS holdings (
        execution INTEGER NOT NULL, day INTEGER NOT NULL, level INTEGER NOT NULL,
        lines INTEGER NOT NULL, bytes INTEGER NOT NULL, first_at INTEGER NOT NULL,
        PRIMARY KEY (execution, day, level)
    ) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS holdings_of_day ON holdings (day)",
    """CREATE TABLE IF NOT EXISTS days (
        day INTEGER PRIMARY KEY, counter INTEGER NOT NULL, words INTEGER NOT NULL
    )""",
)
_OF_DAY: Final = (
    """CREATE TABLE lines_{0} (
        id INTEGER PRIMARY KEY, execution INTEGER NOT NULL, seq INTEGER NOT NULL,
        level INTEGER NOT NULL, source TEXT NOT NULL, text TEXT NOT NULL, fingerprint TEXT NOT NULL
    )""",
    "CREATE INDEX lines_{0}_placed ON lines_{0} (execution, seq)",
    "CREATE INDEX lines_{0}_loud ON lines_{0} (execution, seq, level) WHERE level >= 3",
    """CREATE INDEX lines_{0}_alike ON lines_{0} (fingerprint, id, execution)
       WHERE fingerprint <> ''""",
    """CREATE VIRTUAL TABLE words_{0} USING fts5 (
        words, tags, content='', columnsize=0, tokenize='ascii'
    )""",
    # Bigger portions, merged less often: a third less work for a line.
    "INSERT INTO words_{0} (words_{0}, rank) VALUES ('hashsize', 8388608)",
    "INSERT INTO words_{0} (words_{0}, rank) VALUES ('automerge', 8)",
)


def of_day(day: int) -> list[str]:
    """Statements that make the tables of a day."""
    return [one.format(table(day)) for one in _OF_DAY]


def tags_of(project: int, job: int, execution: int, level: int) -> str:
    """The words that a line has besides those of its text."""
    return f"{MARK}p{project} {MARK}j{job} {MARK}e{execution} {MARK}l{level}"


def any_of(kind: str, values: Iterable[int]) -> str:
    """The part of a question that holds for lines with one of these tags."""
    return "(" + " OR ".join(f'"{MARK}{kind}{value}"' for value in values) + ")"


def matching(phrases: Collection[Phrase]) -> list[str]:
    """The parts of a question that hold for lines with all of these phrases."""
    return [f'"{" ".join(one.words)}"{"*" if one.prefix else ""}' for one in phrases]


def holds(text: str, folded: str) -> bool:
    """Whether the text has this in it, case aside."""
    return folded in text.casefold()


def containing(contains: str, column: str) -> tuple[str, str]:
    """See ``Session.containing``."""
    wanted = as_stored(contains)
    if all(one.isascii() or one.casefold() == one.upper() for one in wanted):
        # SQLite knows upper and lower case of ASCII only, and nothing here has another.
        escaped = wanted.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return f"{column} LIKE ? ESCAPE '\\'", f"%{escaped}%"
    return f"holds({column}, ?)", wanted.casefold()
