"""What is wrong with rules, and what went wrong on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a rule map is refused, or what it is warned of."""

    # rules.article.fields.price.regex
    place: str
    # Stable, for programs: bad_css, unknown_key, ...
    code: str
    text: str
    # Of an expression: the first character that is wrong, from 0.
    offset: int | None = None
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class BadRules(ValueError):
    """Rules that cannot be used; ``problems`` say where and why."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(str(each) for each in problems[:10]))
        self.problems = list(problems)


class PageProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a page did not give as its rule says. ``fatal``: the request has failed by it.

    ``field``: such as ``price`` or ``offers.price``, "" for the page; ``record``: from 0, -1 for
    the page as a whole.
    """

    code: str
    text: str
    field: str = ""
    record: int = -1
    fatal: bool = False

    def __str__(self) -> str:
        where = self.field
        if self.record >= 0:
            where = f"{where} of record {self.record + 1}" if where else f"record {self.record + 1}"
        return f"{where}: {self.text}" if where else self.text


class BadValue(ValueError):
    """A text that is not what its field says; for ``PageProblem``."""

    code = "bad_value"


class PageError(Exception):
    """A page cannot be read at all by its rule."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
