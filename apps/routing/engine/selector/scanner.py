"""Scanner of the selector language, which runs before Python's parser.

Allows only tokens of the language and rejects, with its position, everything that could make
Python's parser slow, deeply recursive or surprising.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from typing import Final, NoReturn

from apps.routing.engine.selector.errors import SelectorError

MAX_CHARACTERS: Final = 2000
MAX_BRACKETS: Final = 20
MAX_NOTS: Final = 20
MAX_NAME: Final = 256

WORDS: Final = frozenset({"and", "or", "not", "in", "True", "False", "None"})
_FOREIGN: Final = frozenset(keyword.kwlist) - WORDS
# Rejected as names, because they are meant as numbers.
_NO_NAMES: Final = frozenset({"inf", "nan", "infinity"})

_TOKEN: Final = re.compile(
    r"""(?:[ \t\r\n]+|\#[^\r\n]*)*+
    (?:(?P<name>[^\W\d]\w*)
    |(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    |(?P<text>'(?:[^'\\\r\n]|\\[^\r\n])*'|"(?:[^"\\\r\n]|\\[^\r\n])*")
    |(?P<open>[(\[])
    |(?P<close>[)\]])
    |(?P<sign>[=!<>]=|[<>,]|-(?=[0-9]))|(?P<end>\Z)|(?P<other>.))""",
    re.VERBOSE | re.DOTALL,
)
# Control characters, invisible characters and those that change the text direction.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_ESCAPE: Final = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|[\\'\"ntr])")
_QUOTES: Final = frozenset({"'", '"'})
_CLOSING: Final = {"(": ")", "[": "]"}
_INSTEAD: Final = {
    "=": ("sign", "use == to compare"),
    ".": ("attribute", "attributes are not supported; write part['key']"),
    "{": ("sign", "sets and dictionaries are not supported"),
    "'": ("text", "this string is not closed on its line"),
    '"': ("text", "this string is not closed on its line"),
    "\\": ("sign", "a backslash does not continue a line"),
}


def scan(text: str) -> None:
    """Check every token of a selector. Raises ``SelectorError`` for the first invalid one."""
    if len(text) > MAX_CHARACTERS:
        raise SelectorError(
            "too_long", f"a selector has at most {MAX_CHARACTERS} characters", MAX_CHARACTERS
        )
    unseen = _UNSEEN.search(text)
    if unseen is not None:
        _unseen(unseen)
    _Scanner(text).run()


class _Scanner:
    """Single pass over the tokens of a selector."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._opened: list[int] = []
        self._nots = 0

    def run(self) -> None:
        # Kind of the previous token, and text of the last name.
        before, name = "", ""
        # The pattern matches at every position, so no character is skipped.
        for token in _TOKEN.finditer(self._text):
            kind = token.lastgroup or ""
            start, end = token.span(kind)
            if kind == "sign":
                pass
            elif kind == "name":
                name = token.group(kind)
                self._name(name, start, end)
            elif kind == "text":
                if before == "text":
                    raise SelectorError("comma", "a comma is missing between two strings", start)
                self._text_token(token.group(kind), start, name if before == "name" else "")
            elif kind == "number":
                self._number(start, end)
            elif kind == "open":
                self._open(start)
            elif kind == "close":
                self._close(start)
            elif kind == "end":
                break
            elif kind == "other":
                _unknown(self._text, start)
            before = kind
        if self._opened:
            raise SelectorError("bracket", "this bracket is never closed", self._opened[-1])
        if not before:
            raise SelectorError("empty", "the selector is empty", 0)

    def _name(self, name: str, start: int, end: int) -> None:
        if name in WORDS:
            if name == "not":
                self._nots += 1
                if self._nots > MAX_NOTS:
                    raise SelectorError("too_deep", f"more than {MAX_NOTS} not", start)
        elif self._text[end : end + 1] in _QUOTES:
            # A string prefix, which is checked with the string.
            return
        elif name in _FOREIGN:
            raise SelectorError("word", f"the keyword {name} is not supported", start)
        elif "__" in name or name in _NO_NAMES:
            raise SelectorError("name", f"{name[:40]} is not a valid key name", start)
        elif len(name) > MAX_NAME:
            raise SelectorError("name", f"a name has at most {MAX_NAME} characters", start)
        elif not name.isascii() and unicodedata.normalize("NFKC", name) != name:
            raise SelectorError(
                "name", "this name contains look-alike characters; use plain letters", start
            )

    def _text_token(self, value: str, start: int, before: str) -> None:
        if before and before not in WORDS and self._text.endswith(before, 0, start):
            if before not in ("r", "R"):
                raise SelectorError("prefix", "the only string prefix is r", start - len(before))
            return
        position = value.find("\\")
        while position >= 0:
            escape = _ESCAPE.match(value, position)
            if escape is None:
                raise SelectorError(
                    "escape",
                    r"unsupported escape; use \\ \' \n \t \r \xhh or \uhhhh, or r'...'",
                    start + position,
                )
            position = value.find("\\", escape.end())

    def _number(self, start: int, end: int) -> None:
        after = self._text[end : end + 1]
        if after in (".", "_") or after.isalnum():
            raise SelectorError("number", "write numbers in decimal digits", start)

    def _open(self, start: int) -> None:
        self._opened.append(start)
        if len(self._opened) > MAX_BRACKETS:
            raise SelectorError(
                "too_deep", f"brackets are nested more than {MAX_BRACKETS} deep", start
            )

    def _close(self, start: int) -> None:
        if not self._opened or _CLOSING[self._text[self._opened[-1]]] != self._text[start]:
            raise SelectorError(
                "bracket", "this closing bracket has no matching opening bracket", start
            )
        self._opened.pop()


def _unseen(found: re.Match[str]) -> NoReturn:
    code = ord(found.group())
    if code == 0:
        raise SelectorError(
            "null_character", "a selector cannot contain a NUL character", found.start()
        )
    raise SelectorError(
        "unseen_character",
        f"invisible character U+{code:04X}; inside a string write it as an escape",
        found.start(),
    )


def _unknown(text: str, position: int) -> NoReturn:
    if text.startswith("...", position):
        raise SelectorError("sign", "replace '...' by a condition", position)
    sign = text[position]
    if sign in _INSTEAD:
        code, words = _INSTEAD[sign]
        raise SelectorError(code, words, position)
    plain = unicodedata.normalize("NFKC", sign)
    if plain != sign and plain.isascii():
        raise SelectorError("sign", f"{sign} is not {plain.strip() or 'a space'}", position)
    raise SelectorError("sign", f"the character {sign} is not supported", position)
