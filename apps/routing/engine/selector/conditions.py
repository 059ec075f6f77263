"""Explanation of a selector by its conditions, the parts joined by ``and`` and ``or``.

Shorter than the whole tree: shows which conditions made the selector fail, and the values of the
item that they use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from apps.routing.engine.selector.evaluation import Explanation, PartExplanation, PartState, explain
from apps.routing.engine.selector.language import parse
from apps.routing.engine.selector.tree import Both, Constant, Name, Node, Not, Part, children


@dataclass(frozen=True, slots=True)
class Value:
    """Value of a name or part in the item; ``value`` is formatted as in a selector."""

    text: str
    value: str
    missing: bool


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition of a selector; ``offset`` is its position in characters, from 0."""

    text: str
    offset: int
    state: PartState
    # True if the condition is a reason why the selector does not match.
    failing: bool
    # Message of a type error, otherwise "".
    note: str
    values: tuple[Value, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the condition as JSON-serializable data."""
        return {
            "text": self.text,
            "offset": self.offset,
            "state": self.state.value,
            "failing": self.failing,
            "note": self.note,
            "values": [
                {"text": part.text, "value": part.value, "missing": part.missing}
                for part in self.values
            ],
        }


@dataclass(frozen=True, slots=True)
class SelectorExplanation:
    """Explanation of a selector for one item: the tree, and the conditions from left to right."""

    whole: Explanation
    conditions: tuple[Condition, ...]

    @property
    def matches(self) -> bool:
        """Return whether the item matches the selector."""
        return self.whole.matches

    @property
    def failing(self) -> tuple[Condition, ...]:
        """Return the conditions that made the selector fail; empty if it matches."""
        return tuple(condition for condition in self.conditions if condition.failing)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data, without the tree: its nodes repeat each other's text."""
        return {
            "selector": self.whole.selector,
            "matches": self.whole.matches,
            "error": self.whole.error,
            "error_offset": self.whole.error_offset,
            "conditions": [condition.as_dict() for condition in self.conditions],
        }


def explain_conditions(text: str, item: dict[str, Any]) -> SelectorExplanation:
    """Explain why an item matches a selector or not. Raises ``SelectorError``."""
    parsed = parse(text)
    whole = explain(parsed, item)
    failing = set() if whole.matches else set(_failing(parsed.root, whole.tree))
    conditions = (
        Condition(
            node_outline.text,
            node_outline.offset,
            node_outline.state,
            node_outline.offset in failing,
            _note(node_outline),
            tuple(_values(node, node_outline)),
        )
        for node, node_outline in _leaves(parsed.root, whole.tree)
    )
    return SelectorExplanation(whole, tuple(conditions))


def _pairs(node: Node, explanation: PartExplanation) -> Iterator[tuple[Node, PartExplanation]]:
    inner = (child for child in children(node) if not isinstance(child, Constant))
    yield from zip(inner, explanation.parts, strict=True)


def _is_joint(node: Node) -> bool:
    """Return whether the node joins conditions by ``and`` or ``or`` and is not one itself."""
    return isinstance(node, Both) or (isinstance(node, Not) and isinstance(node.operand, Both))


def _leaves(node: Node, explanation: PartExplanation) -> Iterator[tuple[Node, PartExplanation]]:
    if not _is_joint(node):
        yield node, explanation
        return
    for inner, part in _pairs(node, explanation):
        yield from _leaves(inner, part)


def _failing(node: Node, explanation: PartExplanation, *, wanted: bool = True) -> Iterator[int]:
    """Yield the offsets of the conditions that keep ``node`` from evaluating to ``wanted``."""
    if not _is_joint(node):
        yield explanation.offset
        return
    if isinstance(node, Not):
        wanted = not wanted
    for inner, part in _pairs(node, explanation):
        if explanation.state is PartState.ERROR:
            is_why = part.state is PartState.ERROR
        else:
            is_why = (part.state is PartState.TRUE) is not wanted
        if is_why and part.state is not PartState.NOT_LOOKED_AT:
            yield from _failing(inner, part, wanted=wanted)


def _note(explanation: PartExplanation) -> str:
    return explanation.note or next(
        (note for part in explanation.parts if (note := _note(part))), ""
    )


def _values(node: Node, explanation: PartExplanation) -> Iterator[Value]:
    if isinstance(node, Name | Part):
        if explanation.value is not None:
            yield Value(explanation.text, explanation.value, explanation.state is PartState.MISSING)
        return
    for inner, part in _pairs(node, explanation):
        yield from _values(inner, part)
