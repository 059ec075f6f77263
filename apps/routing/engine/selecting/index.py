"""Finds the few selectors that an item can fit, however many there are.

Of every selector is read which values its keys must have (``province in ['JS', 'TJ'] and
task_src == 0``). Selectors that ask for the same keys share a table from those values to them, so
an item costs one look into each table. Of what a table gives only those parts are left to be tested
that the table has not said. The answers are those of trying all.

Why that is exact: a key that is not there, or that cannot be read as ``int(key)``, makes each
selector that needs it fail; a value without a hash equals no text, number, truth value or None;
and values that are equal (True, 1 and 1.0) have one hash. Only such constants are indexed.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from apps.routing.engine.selecting import values
from apps.routing.engine.selecting.tree import Both, Call, Compare, Constant, Name, Node, Part

Test = Callable[[Mapping[str, Any]], Any]
# A rule and what is left to test of its selector; None: the table has said it all.
Hit = tuple[int, Test | None]
Hits = Sequence[Hit]

# Below it, trying all is as fast.
MIN_SELECTORS: Final = 4
# What an or of ands is taken apart into at most.
MAX_TERMS: Final = 8
# How many entries of a table one selector takes at most.
MAX_COMBINATIONS: Final = 64
# Tables of the commonest sets of keys, and those of single keys for the rest.
MAX_TABLES: Final = 16
# What equals no constant.
_NOTHING: Final = object()


class Key(NamedTuple):
    """A value of the item that selectors ask for: ``path[0][path[1]]``, or ``int()`` of that."""

    path: tuple[str | int, ...]
    whole: bool

    def __str__(self) -> str:
        text = str(self.path[0]) + "".join(f"[{one!r}]" for one in self.path[1:])
        return f"int({text})" if self.whole else text


# Values that keys must have for a selector to hold.
Term = dict[Key, frozenset[Any]]


class Entry(NamedTuple):
    """A selector: its rule and what it says."""

    rule: int
    root: Node


class Table(NamedTuple):
    """Selectors that ask for the same keys: the values that all of them want, and the others."""

    same: Term
    apart: tuple[Key, ...]
    # Dictionaries in each other, one level for each key of ``apart``; a row when there is none.
    rows: Any
    combinations: int


class Candidates:
    """``find(item)`` gives selectors that may hold, as rows in the order of their rules."""

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
        """How many items had a value that could not be read, for each key that had any."""
        return {
            str(key): count for key, count in zip(self._keys, self._failures, strict=True) if count
        }


def build(entries: Iterable[Entry], function: Callable[[Node], Test]) -> Candidates:
    """An index over selectors, given in the order of their rules.

    ``function`` compiles what the index leaves to be tested.
    """
    everything = list(entries)
    always: set[int] = set()
    found: list[_Found] = []
    for number, entry in enumerate(everything):
        terms = terms_of(entry.root) if len(everything) >= MIN_SELECTORS else None
        if terms is None or not all(terms):
            always.add(number)
        else:
            found += [_Found(number, _narrow(term), len(terms) == 1) for term in terms]
    groups: dict[tuple[Key, ...], list[_Found]] = defaultdict(list)
    for one, keys in zip(found, _homes(found), strict=True):
        if keys:
            groups[keys].append(one)
        else:
            always.add(one.number)

    def hit(one: _Found, keys: set[Key]) -> Hit:
        entry = everything[one.number]
        left = _left(entry.root, keys) if one.alone else [entry.root]
        return entry.rule, function(_all_of(left)) if left else None

    tables = [
        _table(keys, [(one, hit(one, set(keys))) for one in group])
        for keys, group in groups.items()
    ]
    rest = tuple((everything[one].rule, function(everything[one].root)) for one in sorted(always))
    find, keys_read, failures = _finder(tables, rest)
    return Candidates(find, keys_read, failures, tables)


def _table(keys: tuple[Key, ...], group: list[tuple[_Found, Hit]]) -> Table:
    """Where all ask for the same values of a key, these are asked for once, before the look."""
    first = group[0][0].term
    same = {key: first[key] for key in keys if all(one.term[key] == first[key] for one, _ in group)}
    # The key with the most values first: most items have none of them.
    values_of = {key: frozenset().union(*[one.term[key] for one, _ in group]) for key in keys}
    apart = tuple(
        sorted((key for key in keys if key not in same), key=lambda key: -len(values_of[key]))
    )
    # A selector that stands in a row twice, by two of its terms, is tested once.
    rows: dict[tuple[Any, ...], dict[int, Hit]] = defaultdict(dict)
    for one, hit in group:
        for combination in itertools.product(*[one.term[key] for key in apart]):
            rows[combination][one.number] = hit
    return Table(same, apart, _nested(rows) if apart else tuple(rows[()].values()), len(rows))


def _nested(rows: dict[tuple[Any, ...], dict[int, Hit]]) -> dict[Any, Any]:
    """A dictionary by the first value, in it one by the second and so on, and the rows last."""
    nested: dict[Any, Any] = {}
    for combination, row in rows.items():
        inner = nested
        for value in combination[:-1]:
            inner = inner.setdefault(value, {})
        inner[combination[-1]] = tuple(row.values())
    return nested


class _Found(NamedTuple):
    """A term of a selector; ``alone`` when it is its only one."""

    number: int
    term: Term
    alone: bool


def _left(root: Node, keys: set[Key]) -> list[Node]:
    """What a selector still has to test once these keys have the values it asks for."""
    if isinstance(root, Both) and root.word == "and":
        return [one for operand in root.operands for one in _left(operand, keys)]
    terms = terms_of(root)
    # A single comparison; such a key has the right value and could be read.
    said = terms is not None and len(terms) == 1 and isinstance(root, Compare)
    return [] if said and terms and set(terms[0]) <= keys else [root]


def _all_of(nodes: list[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else Both(None, "and", nodes)


def terms_of(node: Node) -> list[Term] | None:
    """One of these must hold for the node to hold; None: it is unknown."""
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
            # Leaving a condition out lets more through, and never less.
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
    if key is None or wanted is None or not all(type(one) in values.SCALARS for one in wanted):
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
    """Both must hold; None when they cannot."""
    joined = dict(first)
    for key, wanted in second.items():
        joined[key] = joined[key] & wanted if key in joined else wanted
        if not joined[key]:
            return None
    return joined


def _narrow(term: Term) -> Term:
    """The term without its widest keys, until its combinations are few enough."""
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


def _homes(found: list[_Found]) -> list[tuple[Key, ...]]:
    """The table of each term: of all its keys where many ask so, else of one key, else none."""
    sets = [tuple(sorted(one.term, key=_order)) for one in found]
    common = {keys for keys, _ in Counter(sets).most_common(MAX_TABLES)}
    distinct: dict[Key, set[Any]] = defaultdict(set)
    for one in found:
        for key, wanted in one.term.items():
            distinct[key] |= wanted

    def alone(term: Term) -> tuple[Key, ...]:
        # The key whose values are shared with the fewest.
        return (min(term, key=lambda key: len(term[key]) / len(distinct[key])),)

    homes = [
        keys if keys in common else alone(one.term) for keys, one in zip(sets, found, strict=True)
    ]
    rare = Counter(keys for keys in homes if keys not in common)
    common |= {keys for keys, _ in rare.most_common(MAX_TABLES)}
    return [keys if keys in common else () for keys in homes]


def _finder(
    tables: Sequence[Table], rest: Hits
) -> tuple[Callable[[Mapping[str, Any]], tuple[Hits, ...]], list[Key], list[int]]:
    """The function that looks into all tables, made for just these keys."""
    keys = sorted({key for one in tables for key in (*one.same, *one.apart)}, key=_order)
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
    looks = [_look(number, one, keys, space) for number, one in enumerate(tables)]
    found = f"({', '.join([*looks, 'rest'])},)"
    lines += ["    try:", f"        return {found}", "    except Exception:"]
    lines += [f"        v{number} = hashed(v{number})" for number in range(len(keys))]
    lines.append(f"        return {found}")
    exec(compile("\n".join(lines), "<index>", "exec"), space)  # noqa: S102 - of our words alone
    return space["find"], keys, failures


def _look(number: int, table: Table, keys: list[Key], space: dict[str, Any]) -> str:
    """The source that gives the row of a table."""
    names = [f"v{keys.index(key)}" for key in table.apart]
    asked, inner = [], f"t{number}"
    for place, (key, wanted) in enumerate(table.same.items()):
        space[f"s{number}_{place}"] = wanted
        asked.append(f"v{keys.index(key)} in s{number}_{place}")
    for level, name in enumerate(names[:-1]):
        asked.append(f"(d{level} := {inner}({name}))")
        inner = f"d{level}.get"
    space[f"t{number}"] = table.rows.get if names else table.rows
    source = f"{inner}({names[-1]}, none)" if names else inner
    return f"{source} if {' and '.join(asked)} else none" if asked else source


def _read(key: Key, number: int, space: dict[str, Any]) -> str:
    """The source that reads a key; its names and numbers are handed over in ``space``."""
    space[f"n{number}_0"] = key.path[0]
    source = f"get(n{number}_0)"
    for level, one in enumerate(key.path[1:], 1):
        name = f"n{number}_{level}"
        space[name] = one
        if isinstance(one, str):
            source = f"(p.get({name}) if type(p := {source}) is dict else part(p, {name}))"
        else:
            source = f"part({source}, {name})"
    return f"w if type(w := {source}) is int else whole{number}(w)" if key.whole else source


def _part(base: Any, key: str | int) -> Any:
    try:
        return values.part(base, key)
    except Exception:  # noqa: BLE001 - the selector would fail
        return _NOTHING


def _whole_reader(failures: list[int], number: int) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        try:
            return values.to_int(value)
        except Exception:  # noqa: BLE001 - the selector would fail
            if value is not None:
                failures[number] += 1
            return _NOTHING

    return read


def _hashed(value: Any) -> Any:
    try:
        hash(value)
        _ = value == ""
    except Exception:  # noqa: BLE001 - what has no hash, or compares with nothing
        return _NOTHING
    return value
