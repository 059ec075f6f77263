"""Index that finds the few selectors that an item can match, among any number of selectors.

For each selector, the index derives which values its keys must have (``province in ['JS', 'TJ']
and task_src == 0``). Selectors that require the same keys share a hash table from these values to
selectors, so an item needs one lookup per table. Only conditions that a lookup does not prove are
evaluated afterwards. The result is the same as evaluating all selectors.

The index is exact for these reasons: a key that is missing, or not readable as ``int(key)``, makes
every selector that requires it fail; an unhashable value equals no string, number, boolean or
None; and equal values (True, 1 and 1.0) have equal hashes. Only such constants are indexed.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from apps.routing.engine.selector import values
from apps.routing.engine.selector.tree import Both, Call, Compare, Constant, Name, Node, Part

Test = Callable[[Mapping[str, Any]], Any]
# Index of a rule, and the test still needed for its selector; None if the lookup proves it.
Hit = tuple[int, Test | None]
Hits = Sequence[Hit]

# With fewer selectors, evaluating all of them is as fast.
MIN_SELECTORS: Final = 4
# Maximum number of terms in the disjunctive normal form of a selector.
MAX_TERMS: Final = 8
# Maximum number of table entries for one term of a selector.
MAX_COMBINATIONS: Final = 64
# Maximum number of tables for the most common sets of keys, and again for single keys.
MAX_TABLES: Final = 16
# Equal to no constant.
_NOTHING: Final = object()


class Key(NamedTuple):
    """Value of an item that selectors compare: ``path[0][path[1]]``, or ``int()`` of it."""

    path: tuple[str | int, ...]
    whole: bool

    def __str__(self) -> str:
        text = str(self.path[0]) + "".join(f"[{part!r}]" for part in self.path[1:])
        return f"int({text})" if self.whole else text


# Allowed values of each key; necessary for a selector to match, not always sufficient.
Term = dict[Key, frozenset[Any]]


class Entry(NamedTuple):
    """Selector in the index: the index of its rule, and its tree."""

    rule: int
    root: Node


class Table(NamedTuple):
    """Hash table of the selectors that require the same keys.

    ``same`` has the keys whose required values are equal in all of them, ``apart`` the other keys.
    """

    same: Term
    apart: tuple[Key, ...]
    # Nested dicts with one level for each key of ``apart``; a single row if ``apart`` is empty.
    rows: Any
    combinations: int


class Candidates:
    """Index of selectors. ``find(item)`` returns rows of candidates, each row in rule order."""

    def __init__(
        self,
        find: Callable[[Mapping[str, Any]], tuple[Hits, ...]],
        keys: Sequence[Key],
        failures: Sequence[int],
        tables: Sequence[Table],
    ) -> None:
        self.find = find
        self.tables = tables
        self._keys = keys
        self._failures = failures

    def unreadable(self) -> dict[str, int]:
        """Return the number of items with an unreadable value, for each key that had any."""
        return {
            str(key): count for key, count in zip(self._keys, self._failures, strict=True) if count
        }


def build(entries: Iterable[Entry], function: Callable[[Node], Test]) -> Candidates:
    """Build the index for selectors, which must be in the order of their rules.

    ``function`` compiles the conditions that a lookup does not prove.
    """
    everything = list(entries)
    always: set[int] = set()
    indexed_terms: list[_SelectorTerm] = []
    for number, entry in enumerate(everything):
        terms = terms_of(entry.root) if len(everything) >= MIN_SELECTORS else None
        if terms is None or not all(terms):
            always.add(number)
        else:
            indexed_terms += [
                _SelectorTerm(number, _narrow(term), len(terms) == 1) for term in terms
            ]
    groups: dict[tuple[Key, ...], list[_SelectorTerm]] = defaultdict(list)
    for term_number, keys in zip(indexed_terms, _homes(indexed_terms), strict=True):
        if keys:
            groups[keys].append(term_number)
        else:
            always.add(term_number.number)

    def hit(one: _SelectorTerm, keys: set[Key]) -> Hit:
        entry = everything[one.number]
        left = _left(entry.root, keys) if one.alone else [entry.root]
        return entry.rule, function(_all_of(left)) if left else None

    tables = [
        _table(keys, [(index, hit(index, set(keys))) for index in group])
        for keys, group in groups.items()
    ]
    rest = tuple(
        (everything[number].rule, function(everything[number].root)) for number in sorted(always)
    )
    find, keys_read, failures = _finder(tables, rest)
    return Candidates(find, keys_read, failures, tables)


def _table(keys: tuple[Key, ...], group: list[tuple[_SelectorTerm, Hit]]) -> Table:
    """Build a table. Values that all selectors require are tested once, before the lookup."""
    first = group[0][0].term
    same = {
        key: first[key]
        for key in keys
        if all(indexed.term[key] == first[key] for indexed, _ in group)
    }
    # Number of distinct values per key; the key with the most comes first, as the most selective.
    values_of = {
        key: frozenset().union(*[indexed.term[key] for indexed, _ in group]) for key in keys
    }
    apart = tuple(
        sorted((key for key in keys if key not in same), key=lambda key: -len(values_of[key]))
    )
    # Keyed by selector, so that one with two terms in the same row is tested once.
    rows: dict[tuple[Any, ...], dict[int, Hit]] = defaultdict(dict)
    for index, hit in group:
        for combination in itertools.product(*[index.term[key] for key in apart]):
            rows[combination][index.number] = hit
    return Table(same, apart, _nested(rows) if apart else tuple(rows[()].values()), len(rows))


def _nested(rows: dict[tuple[Any, ...], dict[int, Hit]]) -> dict[Any, Any]:
    """Convert rows keyed by combinations of values to nested dicts keyed by single values."""
    nested: dict[Any, Any] = {}
    for combination, row in rows.items():
        inner = nested
        for value in combination[:-1]:
            inner = inner.setdefault(value, {})
        inner[combination[-1]] = tuple(row.values())
    return nested


class _SelectorTerm(NamedTuple):
    """Indexable condition (key and value) of one selector of the rule set.

    ``number`` is the selector's index; ``alone``: the selector has no other such condition.
    """

    number: int
    term: Term
    alone: bool


def _left(root: Node, keys: set[Key]) -> list[Node]:
    """Return the conditions to evaluate if ``keys`` are known to have the required values."""
    if isinstance(root, Both) and root.word == "and":
        return [node for operand in root.operands for node in _left(operand, keys)]
    terms = terms_of(root)
    # A single comparison of an indexed key is proved by the lookup.
    is_indexed = terms is not None and len(terms) == 1 and isinstance(root, Compare)
    return [] if is_indexed and terms and set(terms[0]) <= keys else [root]


def _all_of(nodes: list[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else Both(None, "and", nodes)


def terms_of(node: Node) -> list[Term] | None:
    """Return terms of which at least one must hold for the node to hold; None if unknown."""
    if isinstance(node, Compare) and len(node.operators) == 1:
        return _asked(node)
    if isinstance(node, Both) and node.word == "or":
        gathered: list[Term] = []
        for operand in node.operands:
            terms = terms_of(operand)
            if terms is None or len(gathered) + len(terms) > MAX_TERMS:
                return None
            gathered += terms
        return gathered
    if isinstance(node, Both):
        joined: list[Term] = [{}]
        for operand in node.operands:
            terms = terms_of(operand)
            # Omitting a condition only adds candidates; the condition is evaluated later.
            if terms is not None and len(joined) * len(terms) <= MAX_TERMS:
                joined = [both for a in joined for b in terms if (both := _join(a, b)) is not None]
        return joined if all(joined) else None
    return None


def _asked(node: Compare) -> list[Term] | None:
    left, right = node.operands
    if node.operators[0] == "==":
        if isinstance(left, Constant):
            left, right = right, left
        wanted = [right.value] if isinstance(right, Constant) else None
    elif node.operators[0] == "in" and isinstance(right, Constant):
        wanted = right.value if isinstance(right.value, list) else None
    else:
        wanted = None
    key = _key(left)
    if key is None or wanted is None or not all(type(value) in values.SCALARS for value in wanted):
        return None
    return [{key: frozenset(wanted)}] if wanted else []


def _key(node: Node) -> Key | None:
    whole = isinstance(node, Call) and node.function == "int"
    if isinstance(node, Call) and whole:
        node = node.arguments[0]
    if isinstance(node, Name):
        path: list[str | int] = [node.key]
    elif isinstance(node, Part):
        path = []
        while isinstance(node, Part):
            path.append(node.key)
            node = node.base
        if isinstance(node, Name):
            path.append(node.key)
        path.reverse()
    else:
        return None
    return Key(tuple(path), whole)


def _join(first: Term, second: Term) -> Term | None:
    """Return the conjunction of two terms, or None if it can never hold."""
    joined = dict(first)
    for key, wanted in second.items():
        joined[key] = joined[key] & wanted if key in joined else wanted
        if not joined[key]:
            return None
    return joined


def _narrow(term: Term) -> Term:
    """Drop the keys with the most values until there are at most ``MAX_COMBINATIONS``."""
    kept = dict(term)
    while len(kept) > 1 and _combinations(kept) > MAX_COMBINATIONS:
        del kept[max(kept, key=lambda key: len(kept[key]))]
    return kept


def _combinations(term: Term) -> int:
    count = 1
    for wanted in term.values():
        count *= len(wanted)
    return count


def _order(key: Key) -> tuple[str, bool]:
    return repr(key.path), key.whole


def _homes(found: list[_SelectorTerm]) -> list[tuple[Key, ...]]:
    """Choose the keys of the table for each term: all of its keys if that set is common.

    Otherwise a single key, or () for no table if that key is rare as well.
    """
    sets = [tuple(sorted(term.term, key=_order)) for term in found]
    common = {keys for keys, _ in Counter(sets).most_common(MAX_TABLES)}
    distinct: dict[Key, set[Any]] = defaultdict(set)
    for indexed_term in found:
        for key, wanted in indexed_term.term.items():
            distinct[key] |= wanted

    def alone(term: Term) -> tuple[Key, ...]:
        # The most selective key: the one that allows the smallest share of all values.
        return (min(term, key=lambda key: len(term[key]) / len(distinct[key])),)

    homes = [
        keys if keys in common else alone(term.term) for keys, term in zip(sets, found, strict=True)
    ]
    rare = Counter(keys for keys in homes if keys not in common)
    common |= {keys for keys, _ in rare.most_common(MAX_TABLES)}
    return [keys if keys in common else () for keys in homes]


def _finder(
    tables: Sequence[Table], rest: Hits
) -> tuple[Callable[[Mapping[str, Any]], tuple[Hits, ...]], list[Key], list[int]]:
    """Generate the lookup function; return it with its keys and their counts of failures."""
    keys = sorted({key for table in tables for key in (*table.same, *table.apart)}, key=_order)
    failures = [0] * len(keys)
    space: dict[str, Any] = {
        "__builtins__": {},
        "type": type,
        "dict": dict,
        "int": int,
        "part": _part,
        "hashed": _hashed,
        "Exception": Exception,
        "none": (),
        "rest": rest,
    }
    lines = ["def find(item):", "    get = item.get"]
    for number, key in enumerate(keys):
        lines.append(f"    v{number} = {_read(key, number, space)}")
        space[f"whole{number}"] = _whole_reader(failures, number)
    looks = [_look(number, table, keys, space) for number, table in enumerate(tables)]
    result = f"({', '.join([*looks, 'rest'])},)"
    lines += ["    try:", f"        return {result}", "    except Exception:"]
    lines += [f"        v{number} = hashed(v{number})" for number in range(len(keys))]
    lines.append(f"        return {result}")
    exec(compile("\n".join(lines), "<index>", "exec"), space)  # noqa: S102 - no user input
    return space["find"], keys, failures


def _look(number: int, table: Table, keys: list[Key], space: dict[str, Any]) -> str:
    """Return source code that looks up the row of a table."""
    names = [f"v{keys.index(key)}" for key in table.apart]
    looks, inner = [], f"t{number}"
    for place, (key, wanted) in enumerate(table.same.items()):
        space[f"s{number}_{place}"] = wanted
        looks.append(f"v{keys.index(key)} in s{number}_{place}")
    for level, name in enumerate(names[:-1]):
        looks.append(f"(d{level} := {inner}({name}))")
        inner = f"d{level}.get"
    space[f"t{number}"] = table.rows.get if names else table.rows
    source = f"{inner}({names[-1]}, none)" if names else inner
    return f"{source} if {' and '.join(looks)} else none" if looks else source


def _read(key: Key, number: int, space: dict[str, Any]) -> str:
    """Return source code that reads a key; the steps of its path are passed in ``space``."""
    space[f"n{number}_0"] = key.path[0]
    source = f"get(n{number}_0)"
    for level, part in enumerate(key.path[1:], 1):
        name = f"n{number}_{level}"
        space[name] = part
        if isinstance(part, str):
            source = f"(p.get({name}) if type(p := {source}) is dict else part(p, {name}))"
        else:
            source = f"part({source}, {name})"
    return f"w if type(w := {source}) is int else whole{number}(w)" if key.whole else source


def _part(base: Any, key: str | int) -> Any:
    try:
        return values.part(base, key)
    except Exception:  # noqa: BLE001 - the selector would not match
        return _NOTHING


def _whole_reader(failures: list[int], number: int) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        try:
            return values.to_int(value)
        except Exception:  # noqa: BLE001 - the selector would not match
            if value is not None:
                failures[number] += 1
            return _NOTHING

    return read


def _hashed(value: Any) -> Any:
    try:
        hash(value)
        _ = value == ""
    except Exception:  # noqa: BLE001 - unhashable or not comparable
        return _NOTHING
    return value
