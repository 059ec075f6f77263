"""Why a selector is refused: a code for programs, words for people, and the place."""

from __future__ import annotations


class SelectorError(ValueError):
    """This text is no selector.

    ``code`` is stable; ``offset`` is the first character that is wrong, from 0, counted in
    characters. ``rule`` and ``selector`` say which of a rule set it was, both from 0.
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
