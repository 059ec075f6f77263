"""XPath and CSS expressions, validated and compiled once.

XPath 1.0 with its own functions and ``has-class()``. Variables and functions with a prefix are
refused: EXSLT's regular expressions can take exponential time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from lxml import etree
from parsel.csstranslator import GenericTranslator, HTMLTranslator

from apps.requeststore.extraction.limits import MAX_NESTED_WALKS

_TOKEN: Final = re.compile(
    r"\"[^\"]*\"|'[^']*'|\d+(?:\.\d*)?|//|::|\.\.|!=|<=|>=|"
    r"[^\W\d][\w.\-]*(?::[^\W\d][\w.\-]*)?|\S"
)
_WALKS: Final = frozenset(
    {
        "descendant",
        "descendant-or-self",
        "following",
        "preceding",
        "following-sibling",
        "preceding-sibling",
    }
)
_TESTS: Final = frozenset({"node", "text", "comment", "processing-instruction"})
_ANY: Final = 99
# Minimum and maximum number of arguments.
_FUNCTIONS: Final[Mapping[str, tuple[int, int]]] = {
    "boolean": (1, 1), "ceiling": (1, 1), "concat": (2, _ANY), "contains": (2, 2), "count": (1, 1),
    "false": (0, 0), "floor": (1, 1), "has-class": (1, _ANY), "id": (1, 1), "lang": (1, 1),
    "last": (0, 0), "local-name": (0, 1), "name": (0, 1), "namespace-uri": (0, 1),
    "normalize-space": (0, 1), "not": (1, 1), "number": (0, 1), "position": (0, 0),
    "round": (1, 1), "starts-with": (2, 2), "string": (0, 1), "string-length": (0, 1),
    "substring": (2, 3), "substring-after": (2, 2), "substring-before": (2, 2), "sum": (1, 1),
    "translate": (3, 3), "true": (0, 0),
}  # fmt: skip
_AT: Final = re.compile(r" at (\d+)>")

Nodes = Callable[[Any], Any]


class BadExpression(ValueError):
    """Invalid expression. ``offset``: of the first wrong character, where known."""

    def __init__(self, text: str, offset: int | None = None) -> None:
        super().__init__(text)
        self.offset = offset


def compile_xpath(expression: str, namespaces: Mapping[str, str] | None = None) -> Nodes:
    """Return a function from a node to nodes, strings, a number or a boolean. Raises
    ``BadExpression``.
    """
    _storable(expression)
    _examine(expression, namespaces or {})
    return _compiled(expression, namespaces)


def compile_css(expression: str, *, xml: bool = False) -> Nodes:
    """Compile CSS with ``::text`` and ``::attr(name)`` as in Scrapy. Raises ``BadExpression``."""
    _storable(expression)
    translator = GenericTranslator() if xml else HTMLTranslator()
    try:
        path = translator.css_to_xpath(expression)
    except (SyntaxError, RuntimeError, ValueError, TypeError) as error:
        # The first two are the base classes of cssselect's errors.
        text = str(error) or type(error).__name__
        position = _AT.search(text)
        raise BadExpression(text[:200], int(position[1]) if position else None) from None
    try:
        _examine(path, {})
        return _compiled(path, None)
    except BadExpression as error:
        raise BadExpression(str(error)) from None


def is_absolute(expression: str) -> bool:
    """Return whether the expression starts at the root, wherever it is evaluated."""
    return expression.lstrip(" (\t\r\n").startswith("/")


def _storable(expression: str) -> None:
    if not expression.strip():
        raise BadExpression("the expression is empty", 0)
    for offset, character in enumerate(expression):
        if (character < " " and character not in "\t\r\n") or "\ud800" <= character <= "\udfff":
            raise BadExpression("a character that no page can hold", offset)


def _compiled(path: str, namespaces: Mapping[str, str] | None) -> Nodes:
    try:
        compiled: Nodes = etree.XPath(
            path, namespaces=dict(namespaces or {}) or None, regexp=False, smart_strings=False
        )
    except etree.XPathError as error:
        last = error.error_log.last_error if error.error_log else None
        raw = path.encode()
        offset = None
        if last is not None and 0 <= last.column <= len(raw):
            # libxml2 reports offsets in bytes.
            offset = len(raw[: last.column].decode("utf-8", "ignore"))
        raise BadExpression(str(error) or "no XPath", offset) from None
    except (ValueError, TypeError) as error:
        raise BadExpression(str(error)[:200]) from None
    return compiled


def _examine(path: str, namespaces: Mapping[str, str]) -> None:
    """Refuse expressions that libxml2 would reject, or evaluate too slowly, only on a page."""
    tokens = [(token[0], token.start()) for token in _TOKEN.finditer(path)]
    walked = [False]
    for index, (word, offset) in enumerate(tokens):
        after = tokens[index + 1][0] if index + 1 < len(tokens) else ""
        if word == "[":
            walked.append(False)
        elif word == "]":
            if len(walked) == 1:
                raise BadExpression("this bracket was never opened", offset)
            walked.pop()
        elif word == "//" or (after == "::" and word in _WALKS):
            walked[-1] = True
            if sum(walked) > MAX_NESTED_WALKS:
                raise BadExpression("too many walks through the page inside one another", offset)
        elif word == "$":
            raise BadExpression("there are no variables", offset)
        elif after == "(" and word[0] not in "\"'" and (word[0].isalpha() or word[0] == "_"):
            _examine_call(tokens, index, namespaces)
        elif ":" in word and word[0] not in "\"'" and word not in ("::", ":"):
            prefix = word.partition(":")[0]
            if prefix not in namespaces:
                raise BadExpression(f"the rule names no namespace {prefix}", offset)


def _examine_call(
    tokens: Sequence[tuple[str, int]], index: int, namespaces: Mapping[str, str]
) -> None:
    name, offset = tokens[index]
    if name in _TESTS or name in ("and", "or", "div", "mod"):
        return
    if ":" in name:
        raise BadExpression(f"{name}(): there are no functions with a prefix", offset)
    if name not in _FUNCTIONS:
        raise BadExpression(f"there is no function {name}()", offset)
    least, most = _FUNCTIONS[name]
    count = _arguments(tokens, index + 1)
    if count is not None and not least <= count <= most:
        raise BadExpression(f"{name}() does not take {count} arguments", offset)


def _arguments(tokens: Sequence[tuple[str, int]], start: int) -> int | None:
    """Return the number of arguments in the parentheses at ``start``; None when they are not
    closed.
    """
    depth, commas = 0, 0
    for index in range(start, len(tokens)):
        word = tokens[index][0]
        if word in ("(", "["):
            depth += 1
        elif word in (")", "]"):
            depth -= 1
            if depth == 0:
                return 0 if index == start + 1 else commas + 1
        elif word == "," and depth == 1:
            commas += 1
    return None
