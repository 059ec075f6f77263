"""Tables, and the index of words.

The lines of each day (UTC) are in tables of their own, which are dropped as a whole. The ``id`` of
a line begins with the time of day, so the newest lines are found by walking an index backwards: the
table itself, or the index of words, where project, job, execution and level are words as well
(tags).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from apps.joblogs.engine.words import Phrase
from apps.joblogs.stores.accounts import as_stored
from apps.joblogs.stores.days.session import table

# Prefix of tags, which occurs in no text: neither a letter nor part of a script.
MARK: Final = "\ue000"
# Version of the tokenizer ``engine.words``; indexed lines keep their words when it changes.
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
    # Lines and bytes of text; ``first_at`` is a lower bound of their times.
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
    # Larger segments that are merged less often: a third less work per line.
    "INSERT INTO words_{0} (words_{0}, rank) VALUES ('hashsize', 8388608)",
    "INSERT INTO words_{0} (words_{0}, rank) VALUES ('automerge', 8)",
)


def of_day(day: int) -> list[str]:
    """Return the statements that create the tables of a day."""
    return [statement.format(table(day)) for statement in _OF_DAY]


def tags_of(project: int, job: int, execution: int, level: int) -> str:
    """Return the tags of a line, indexed like words."""
    return f"{MARK}p{project} {MARK}j{job} {MARK}e{execution} {MARK}l{level}"


def any_of(kind: str, values: Iterable[int]) -> str:
    """Return the FTS5 expression for lines with one of these tags."""
    return "(" + " OR ".join(f'"{MARK}{kind}{value}"' for value in values) + ")"


def matching(phrases: Collection[Phrase]) -> list[str]:
    """Return the FTS5 expressions for lines with all of these phrases."""
    return [f'"{" ".join(phrase.words)}"{"*" if phrase.prefix else ""}' for phrase in phrases]


def holds(text: str, folded: str) -> bool:
    """Return whether the text contains ``folded``, case-insensitive."""
    return folded in text.casefold()


def containing(contains: str, column: str) -> tuple[str, str]:
    """See ``StoreSession.containing``."""
    wanted = as_stored(contains)
    if all(
        character.isascii() or character.casefold() == character.upper() for character in wanted
    ):
        # SQLite folds case in ASCII only, and all wanted text here is lower-cased ASCII.
        escaped = wanted.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return f"{column} LIKE ? ESCAPE '\\'", f"%{escaped}%"
    return f"holds({column}, ?)", wanted.casefold()
