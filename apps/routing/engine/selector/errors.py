"""Validation error of selectors."""

from __future__ import annotations


class SelectorError(ValueError):
    """Invalid selector.

    ``code`` is a stable identifier of the reason and ``text`` its description. ``offset`` is the
    position of the first invalid character, in characters from 0. Within a rule set, ``rule`` and
    ``selector`` are the indexes of the rule and of the selector in it, both from 0.
    """

    def __init__(
        self,
        code: str,
        text: str,
        offset: int,
        *,
        rule: int | None = None,
        selector: int | None = None,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.offset = offset
        self.rule = rule
        self.selector = selector

    def __str__(self) -> str:
        return f"{self.text} (character {self.offset + 1})"
