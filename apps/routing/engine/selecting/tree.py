"""What a selector says, after every part of it was allowed.

Small classes without behaviour: the compiler, the index and the explainer each read them in their
own way. ``at`` is the part of Python's tree that the node was made of, for its place in the text;
who reads thousands of selectors does without.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, Final

MEMBERSHIPS: Final = frozenset({"in", "not in"})


@dataclass(slots=True, eq=False)
class Constant:
    """A text, a number, True, False, None, or a list of those."""

    at: ast.expr | None
    value: Any


@dataclass(slots=True, eq=False)
class Name:
    """A key of the item."""

    at: ast.expr | None
    key: str


@dataclass(slots=True, eq=False)
class Part:
    """``base[key]``."""

    at: ast.expr | None
    base: Node
    key: str | int


@dataclass(slots=True, eq=False)
class Not:
    """True when the operand is not."""

    at: ast.expr | None
    operand: Node


@dataclass(slots=True, eq=False)
class Both:
    """``and`` or ``or`` of two operands or more, looked at from the left."""

    at: ast.expr | None
    word: str
    operands: list[Node]


@dataclass(slots=True, eq=False)
class Compare:
    """``a < b <= c``: one operator less than operands. Memberships stand alone."""

    at: ast.expr | None
    operands: list[Node]
    operators: list[str]


@dataclass(slots=True, eq=False)
class Call:
    """A function of the language; ``pattern`` is the compiled expression of ``matches``."""

    at: ast.expr | None
    function: str
    arguments: list[Node]
    pattern: Any = None


Node = Constant | Name | Part | Not | Both | Compare | Call


def children(node: Node) -> list[Node]:
    """The parts of a part, from the left."""
    if isinstance(node, Part):
        return [node.base]
    if isinstance(node, Not):
        return [node.operand]
    if isinstance(node, Both | Compare):
        return node.operands
    if isinstance(node, Call):
        return node.arguments
    return []
