"""Finds the few selectors that an item can fit, however many there are.

Of every selector is read which values its keys must have (``province in ['JS', 'TJ'] and
task_src == 0``). Selectors that ask for the same keys share a table from those values to them, so
an item costs one look into each table. What a table gives is evaluated as a whole: the index only
ever leaves out what cannot match, and the answers are those of trying all.

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

Hit = tuple[int, Callable[[Mapping[str, Any]], Any]]
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
    """A selector: its rule, what it asks for and its function."""

    rule: int
    terms: list[Term] | None
    test: Callable[[Mapping[str, Any]], Any]


class Candidates:
    """``find(item)`` gives selectors that may hold, as rows in the order of their rules."""

    def __init__(
        self,
        find: Callable[[Mapping[str, Any]], tuple[Hits, ...]],
        keys: Sequence[Key],
        failures: Sequence[int],
        tables: Sequence[tuple[tuple[Key, ...], int]],
    ) -> None:
        self.find = find
        # The keys of each table, and how many combinations of values it knows.
        self.tables = tables
        self._keys = keys
        self._failures = failures

    def unreadable(self) -> dict[str, int]:
        """How many items had a value that could not be read, for each key that had any."""
        return {
            str(key): count for key, count in zip(self._keys, self._failures, strict=True) if count
        }


def build(entries: Iterable[Entry]) -> Candidates:
    """An index over selectors, given in the order of their rules."""
    everything = list(entries)
    always: dict[int, Entry] = {}
    found: list[tuple[int, Term]] = []
    for number, entry in enumerate(everything):
        terms = entry.terms if len(everything) >= MIN_SELECTORS else None
        if terms is None or not all(terms):
            always[number] = entry
        else:
            found += [(number, _narrow(term)) for term in terms]
    tables: dict[tuple[Key, ...], dict[Any, list[int]]] = {}
    homes = _homes([tuple(sorted(term, key=_order)) for _, term in found], found)
    for (number, term), keys in zip(found, homes, strict=True):
        if keys:
            _enter(tables.setdefault(keys, defaultdict(list)), keys, term, number)
        else:
            always[number] = everything[number]
    frozen = {
        keys: {value: _row(numbers, everything) for value, numbers in table.items()}
        for keys, table in tables.items()
    }
    rest = _row(sorted(always), everything)
    find, keys_read, failures = _finder(frozen, rest)
    return Candidates(
        find, keys_read, failures, [(keys, len(table)) for keys, table in frozen.items()]
    )


def terms_of(node: Node) -> list[Term] | None:
    """One of these must hold for the node to hold; None: it cannot be told."""
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
    if isinstance(node, Call):
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


def _homes(sets: list[tuple[Key, ...]], found: list[tuple[int, Term]]) -> list[tuple[Key, ...]]:
    """The table of each term: of all its keys where many ask so, else of one key, else none."""
    common = {keys for keys, _ in Counter(sets).most_common(MAX_TABLES)}
    distinct: dict[Key, set[Any]] = defaultdict(set)
    for _, term in found:
        for key, wanted in term.items():
            distinct[key] |= wanted
    # The key whose values are shared with the fewest.
    alone = [
        keys
        if keys in common
        else (min(keys, key=lambda key: len(term[key]) / len(distinct[key])),)
        for keys, (_, term) in zip(sets, found, strict=True)
    ]
    rare = Counter(keys for keys in alone if keys not in common)
    common |= {keys for keys, _ in rare.most_common(MAX_TABLES)}
    return [keys if keys in common else () for keys in alone]


def _enter(table: dict[Any, list[int]], keys: tuple[Key, ...], term: Term, number: int) -> None:
    if len(keys) == 1:
        for value in term[keys[0]]:
            table[value].append(number)
        return
    for combination in itertools.product(*(term[key] for key in keys)):
        table[combination].append(number)


def _row(numbers: Iterable[int], everything: list[Entry]) -> Hits:
    return tuple(
        (everything[number].rule, everything[number].test) for number in dict.fromkeys(numbers)
    )


def _finder(
    tables: dict[tuple[Key, ...], dict[Any, Hits]], rest: Hits
) -> tuple[Callable[[Mapping[str, Any]], tuple[Hits, ...]], list[Key], list[int]]:
    """The function that looks into all tables, made for just these keys."""
    keys = sorted({key for one in tables for key in one}, key=_order)
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
    looks = []
    for number, one in enumerate(tables):
        space[f"t{number}"] = tables[one].get
        names = [f"v{keys.index(key)}" for key in one]
        looks.append(
            f"t{number}({names[0] if len(names) == 1 else '(' + ', '.join(names) + ')'}, none)"
        )
    found = f"({', '.join([*looks, 'rest'])},)"
    lines += ["    try:", f"        return {found}", "    except Exception:"]
    lines += [f"        v{number} = hashed(v{number})" for number in range(len(keys))]
    lines.append(f"        return {found}")
    exec(compile("\n".join(lines), "<index>", "exec"), space)  # noqa: S102 - of our words alone
    return space["find"], keys, failures


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
    except Exception:  # noqa: BLE001 - what has no hash equals no constant
        return _NOTHING
    return value
