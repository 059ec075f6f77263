"""Syntax tree of a valid selector, shared by the compiler, the index and the explainer.

Nodes have no behaviour. ``at`` is the node of Python's tree, for the position in the text; it is
None if the selector was parsed without positions, which saves memory for thousands of selectors.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, Final

MEMBERSHIPS: Final = frozenset({"in", "not in"})


@dataclass(slots=True, eq=False)
class Constant:
    """Literal: a string, a number, True, False, None, or a list of these."""

    at: ast.expr | None
    value: Any


@dataclass(slots=True, eq=False)
class Name:
    """Value of a top-level key of the item."""

    at: ast.expr | None
    key: str


@dataclass(slots=True, eq=False)
class Part:
    """Nested value ``base[key]``."""

    at: ast.expr | None
    base: Node
    key: str | int


@dataclass(slots=True, eq=False)
class Not:
    """Negation: ``not operand``."""

    at: ast.expr | None
    operand: Node


@dataclass(slots=True, eq=False)
class Both:
    """``and`` or ``or`` of two or more operands, evaluated from left to right."""

    at: ast.expr | None
    word: str
    operands: list[Node]


@dataclass(slots=True, eq=False)
class Compare:
    """Comparison, possibly chained: ``a < b <= c``. ``in`` and ``not in`` are never chained."""

    at: ast.expr | None
    operands: list[Node]
    operators: list[str]


@dataclass(slots=True, eq=False)
class Call:
    """Function call; ``pattern`` is the compiled expression of ``matches``, otherwise None."""

    at: ast.expr | None
    function: str
    arguments: list[Node]
    pattern: Any = None


Node = Constant | Name | Part | Not | Both | Compare | Call


def children(node: Node) -> list[Node]:
    """Return the direct children of a node from left to right."""
    if isinstance(node, Part):
        return [node.base]
    if isinstance(node, Not):
        return [node.operand]
    if isinstance(node, Both | Compare):
        return node.operands
    if isinstance(node, Call):
        return node.arguments
    return []
