"""Compiler of selectors to Python functions, which avoids walking a tree for each item.

The generated source contains no text of a selector: every name, key and constant is an argument of
an outer function, the maker. Therefore nothing in a selector can become code, and selectors of the
same shape, of which a rule set has hundreds, are compiled only once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from apps.routing.engine.selector import values
from apps.routing.engine.selector.errors import SelectorError
from apps.routing.engine.selector.evaluation import Explanation, explain
from apps.routing.engine.selector.index import Candidates, Entry, build
from apps.routing.engine.selector.language import parse
from apps.routing.engine.selector.tree import (
    MEMBERSHIPS,
    Both,
    Call,
    Compare,
    Constant,
    Name,
    Node,
    Not,
    Part,
)

Test = Callable[[Mapping[str, Any]], Any]

# Lists of at least this many constants are searched as a frozenset.
_LONG_LIST: Final = 8
_SHAPES_KEPT: Final = 4096
_GLOBALS: Final[dict[str, Any]] = {
    "__builtins__": {},
    "type": type,
    "dict": dict,
    "int": int,
    "part": values.part,
    "to_int": values.to_int,
    "float_": values.to_float,
    "str_": values.to_text,
    "len_": values.length,
    "lower_": values.lower,
    "startswith_": values.startswith,
    "endswith_": values.endswith,
    "contains_": values.contains,
    "within": values.within,
    "SCALARS": values.SCALARS,
}


class Selector:
    """Compiled selector: a condition on an item. Thread-safe."""

    def __init__(self, text: str) -> None:
        """Compile a selector. Raises ``SelectorError`` if ``text`` is not valid."""
        self.text = text
        # Returns the value of the expression, or raises on a type error.
        self._test = function(parse(text, places=False).root)

    def matches(self, item: Mapping[str, Any]) -> bool:
        """Return whether the item matches. An item that causes a type error does not match."""
        try:
            return True if self._test(item) else False  # noqa: SIM210 - twice as fast as bool()
        except Exception:  # noqa: BLE001 - any error means no match
            return False

    def explain(self, item: Mapping[str, Any]) -> Explanation:
        """Evaluate every part of the selector and return why the item matches or not."""
        return explain(parse(self.text), item)


class CompiledRules:
    """Ordered set of rules; a rule matches if any of its selectors does. Thread-safe."""

    def __init__(self, names: Sequence[str], rules: Sequence[Mapping[str, Node]]) -> None:
        """Build the index. Each rule is a mapping of selector texts to their trees."""
        self.names = tuple(names)
        self._count = len(self.names)
        self._errors = [0] * self._count
        self._lock = threading.Lock()
        self._index: Candidates = build(
            (
                Entry(number, root)
                for number, selector in enumerate(rules)
                for root in selector.values()
            ),
            _Shared(),
        )
        self._candidates = self._index.find

    def first(
        self, item: Mapping[str, Any], skip: frozenset[int] | set[int] = frozenset()
    ) -> int | None:
        """Return the index of the first matching rule that is not in ``skip``, or None."""
        best = self._count
        for hits in self._candidates(item):
            for rule, test in hits:
                if rule >= best:
                    break
                if rule in skip:
                    continue
                try:
                    if test is None or test(item):
                        best = rule
                        break
                except Exception:  # noqa: BLE001 - any error means no match
                    self._count_error(rule)
        return best if best < self._count else None

    def all(self, item: Mapping[str, Any]) -> list[int]:
        """Return the indexes of all matching rules in ascending order."""
        numbers: set[int] = set()
        for hits in self._candidates(item):
            for rule, test in hits:
                if rule in numbers:
                    continue
                try:
                    if test is None or test(item):
                        numbers.add(rule)
                except Exception:  # noqa: BLE001 - any error means no match
                    self._count_error(rule)
        return sorted(numbers)

    @property
    def errors(self) -> tuple[int, ...]:
        """Number of type errors raised by the selectors of each rule.

        Selectors that the index excludes are not evaluated and raise none; see ``unreadable``.
        """
        return tuple(self._errors)

    @property
    def unreadable(self) -> dict[str, int]:
        """Number of items whose value could not be read, for each key of the index that had any.

        For example ``int(task_src)`` where ``task_src`` is not a number. No selector that requires
        the key matches such an item. Approximate if several threads share the rules.
        """
        return self._index.unreadable()

    def _count_error(self, rule: int) -> None:
        with self._lock:
            self._errors[rule] += 1


def compile_selector(text: str) -> Selector:
    """Compile a single selector. Raises ``SelectorError``."""
    return Selector(text)


def compile_rules(rules: Sequence[tuple[str, Sequence[str]]]) -> CompiledRules:
    """Compile rules, given as pairs of name and selectors in order.

    Raises:
        SelectorError: for the first invalid selector; its ``rule`` and ``selector`` are set.
    """
    known: dict[str, Node] = {}
    read: list[dict[str, Node]] = []
    for number, (_, texts) in enumerate(rules):
        mine: dict[str, Node] = {}
        for position, text in enumerate(texts):
            try:
                mine[text] = known.get(text) or parse(text, places=False).root
            except SelectorError as error:
                raise SelectorError(
                    error.code, error.text, error.offset, rule=number, selector=position
                ) from None
            known[text] = mine[text]
        read.append(mine)
    return CompiledRules([name for name, _ in rules], read)


def forget_shapes() -> None:
    """Clear the process-wide cache of compiled shapes."""
    _maker.cache_clear()


def function(root: Node) -> Test:
    """Compile the tree of a selector, or a part of it, to a function of an item."""
    writer = _Writer()
    return _maker(writer.source(root))(*writer.constants)


class _Shared:
    """Compiler for one rule set that reuses the functions of equal trees."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Test] = {}

    def __call__(self, root: Node) -> Test:
        writer = _Writer()
        source = writer.source(root)
        # By repr, because 1, 1.0 and True are equal but not interchangeable.
        key = source, repr(writer.constants)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = _maker(source)(*writer.constants)
        return made


@lru_cache(maxsize=_SHAPES_KEPT)
def _maker(source: str) -> Callable[..., Test]:
    space: dict[str, Any] = {}
    exec(compile(source, "<selector>", "exec"), _GLOBALS, space)  # noqa: S102 - no user input
    maker: Callable[..., Test] = space["make"]
    return maker


class _Writer:
    """Writes the source of one function and collects names and constants of the selector."""

    def __init__(self) -> None:
        self.constants: list[Any] = []
        self._variables = 0

    def source(self, root: Node) -> str:
        """Return the source of the maker, which is to be called with ``constants``."""
        body = self._write(root)
        arguments = ", ".join([f"c{number}" for number in range(len(self.constants))])
        return (
            f"def make({arguments}):\n"
            f"    def test(item):\n"
            f"        get = item.get\n"
            f"        return {body}\n"
            f"    return test\n"
        )

    def _write(self, node: Node) -> str:
        match node:
            case Name():
                return f"get({self._constant(node.key)})"
            case Constant():
                return self._constant(node.value)
            case Part():
                return self._part(node)
            case Compare():
                return self._compare(node)
            case Both():
                parts = f" {node.word} ".join([self._write(operand) for operand in node.operands])
                return f"({parts})"
            case Not():
                return f"(not {self._write(node.operand)})"
            case Call():
                return self._call(node)

    def _constant(self, value: Any) -> str:
        self.constants.append(value)
        return f"c{len(self.constants) - 1}"

    def _variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def _part(self, node: Part) -> str:
        base, key = self._write(node.base), self._constant(node.key)
        if isinstance(node.key, int):
            return f"part({base}, {key})"
        variable = self._variable()
        # Fast path for dicts, without a function call.
        usual = f"{variable}.get({key}) if type({variable} := {base}) is dict"
        return f"({usual} else part({variable}, {key}))"

    def _compare(self, node: Compare) -> str:
        if node.operators[0] in MEMBERSHIPS:
            inside = self._inside(node.operands[0], node.operands[1])
            return inside if node.operators[0] == "in" else f"(not {inside})"
        written = [self._write(node.operands[0])]
        for operator, operand in zip(node.operators, node.operands[1:], strict=True):
            written += [operator, self._write(operand)]
        return f"({' '.join(written)})"

    def _inside(self, value: Node, container: Node) -> str:
        left = self._write(value)
        if not isinstance(container, Constant):
            return f"within({left}, {self._write(container)})"
        known = container.value
        if isinstance(known, str):
            return f"({left} in {self._constant(known)})"
        entries = tuple(known)
        if len(entries) < _LONG_LIST or not all(type(entry) in values.SCALARS for entry in entries):
            return f"({left} in {self._constant(entries)})"
        variable = self._variable()
        constant_name = self._constant(frozenset(entries))
        return (
            f"({variable} in {constant_name} if type({variable} := {left}) in SCALARS"
            f" else {variable} in {self._constant(entries)})"
        )

    def _call(self, node: Call) -> str:
        if node.function == "matches":
            return f"{self._constant(node.pattern.found)}({self._write(node.arguments[0])})"
        arguments = [self._write(argument) for argument in node.arguments]
        if node.function == "int":
            variable = self._variable()
            usual = f"{variable} if type({variable} := {arguments[0]}) is int"
            return f"({usual} else to_int({variable}))"
        return f"{node.function}_({', '.join(arguments)})"
