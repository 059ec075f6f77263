"""JMESPath and RE2 expressions, compiled once and with bounded cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import re2
from jmespath import exceptions, functions, parser, visitor

from apps.requeststore.extraction.limits import MAX_GROWTH, MAX_PATTERN_SIZE
from apps.requeststore.extraction.problems import BadValue
from apps.requeststore.extraction.xpaths import BadExpression
from yardkit.errors import first_line

_PATTERN_MEMORY_BYTES: Final = 8 * 1024 * 1024
# Functions that build strings, whose sizes add up when a value is repeated.
_WRITERS: Final = frozenset({"join", "to_string"})
_MOST_WRITERS: Final = 3

Query = Callable[[Any], Any]


def compile_jmespath(expression: str) -> Query:
    """Return a function that evaluates the expression on a document.

    Raises ``BadExpression``; the function raises ``BadValue``.
    """
    if not expression.strip():
        raise BadExpression("the expression is empty", 0)
    try:
        parsed = parser.Parser().parse(expression)
        growth, writers = _growth(parsed.parsed)
    except exceptions.JMESPathError as error:
        raise BadExpression(_first_line(error), getattr(error, "lex_position", None)) from None
    except BadExpression:
        raise
    except (RecursionError, ValueError, TypeError, AttributeError) as error:
        raise BadExpression(f"cannot be read: {type(error).__name__}") from None
    if growth > (MAX_GROWTH // 10 if writers else MAX_GROWTH) or writers > _MOST_WRITERS:
        raise BadExpression("it may make too much of a page: use smaller lists, objects and texts")

    def search(document: Any) -> Any:
        try:
            return visitor.TreeInterpreter().visit(parsed.parsed, document)
        except exceptions.JMESPathError as error:
            raise BadValue(_first_line(error)) from None
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - its functions fail in ways of their own
            raise BadValue(f"the expression fails: {type(error).__name__}") from None

    return search


def _first_line(error: Exception) -> str:
    return first_line(error).rstrip(": ")[:200]


def _growth(tree: Any) -> tuple[int, int]:
    """Return by what factor an expression may multiply a document, and how often it writes
    text.
    """
    growth, writers = 1, 0
    for node in _walk(tree):
        kind = node.get("type")
        if kind in ("multi_select_list", "multi_select_dict"):
            growth *= max(1, len(node["children"]))
        elif kind == "function_expression":
            _check_call(node)
            writers += node["value"] in _WRITERS
    return growth, writers


def _walk(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict) and "type" in node:
            yield node
            waiting += node.get("children", [])


def _check_call(node: dict[str, Any]) -> None:
    name, given = node["value"], len(node["children"])
    known = functions.Functions.FUNCTION_TABLE.get(name)
    if known is None:
        raise BadExpression(f"there is no function {name}()")
    signature = known["signature"]
    variadic = bool(signature) and signature[-1].get("variadic", False)
    if given < len(signature) or (given > len(signature) and not variadic):
        raise BadExpression(f"{name}() does not take {given} arguments")


class RegexPattern:
    """RE2 expression: its first group, or the whole match without groups."""

    __slots__ = ("_expression", "_group")

    def __init__(self, text: str) -> None:
        """Raises ``BadExpression``."""
        if not text:
            raise BadExpression("the expression is empty", 0)
        options = re2.Options()
        options.log_errors = False  # they are raised
        options.max_mem = _PATTERN_MEMORY_BYTES
        try:
            self._expression = re2.compile(text, options)
        except UnicodeEncodeError as error:
            raise BadExpression("a character that no page can hold", error.start) from None
        except re2.error as error:
            message = error.args[0] if error.args else b""
            message = (
                message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
            )
            kind, _, part = message.partition(": ")
            # For an unbalanced parenthesis RE2 reports the whole expression.
            at = text.find(part) if part and not kind.endswith((")", "(")) else -1
            raise BadExpression(message[:200], at if at >= 0 else None) from None
        if self._expression.programsize > MAX_PATTERN_SIZE:
            raise BadExpression("it repeats too much; use smaller counts")
        self._group = min(1, self._expression.groups)

    def matches(self, text: str) -> Iterator[str]:
        """Return the matches in order, without those whose group did not take part."""
        for match in self._expression.finditer(text):
            group_text = match.group(self._group)
            if group_text is not None:
                yield group_text

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Return the positions of the matches."""
        for match in self._expression.finditer(text):
            yield match.span()
