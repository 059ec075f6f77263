"""Problems of rules and of pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """Error or warning about a rule map."""

    # rules.article.fields.price.regex
    place: str
    # Stable code: bad_css, unknown_key, ...
    code: str
    text: str
    # Offset of the first invalid character in the expression, from 0.
    offset: int | None = None
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class InvalidExtractionRules(ValueError):
    """Rules that cannot be used; ``problems`` say where and why."""

    def __init__(self, problems: Sequence[RuleProblem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems[:10]))
        self.problems = list(problems)


class PageProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Value that a page lacks or has wrong. ``fatal``: the request fails by it.

    ``field``: such as ``price`` or ``offers.price``, "" for the page; ``record``: from 0, -1 for
    the page.
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
    """Value that does not fit its field; becomes a ``PageProblem``."""

    code = "bad_value"


class PageError(Exception):
    """Page that the rule cannot read at all."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
