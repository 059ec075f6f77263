"""Keys in selectors that look like a misspelled key of the router, such as ``task_parms``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final

from apps.routing.engine.selecting.errors import SelectorError
from apps.routing.engine.selecting.language import parse
from apps.routing.engine.selecting.tree import Name, Node, children

# As alike as ``task_parms`` and ``task_params``; ``priority`` and ``province`` are not.
_LIKENESS: Final = 0.85
_WORD: Final = re.compile(r"[^\W\d]\w*")


def misspelled(selectors: Iterable[str], known: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Yield (number of the selector, its key, the known key that is probably meant)."""
    known = frozenset(known)
    near: dict[str, str] = {}
    for number, selector in enumerate(selectors):
        for word in set(_WORD.findall(selector)) - near.keys():
            close = () if word in known else get_close_matches(word, known, 1, _LIKENESS)
            near[word] = close[0] if close else ""
        # Few selectors have such a word at all, and it may be inside a text.
        if any(near[word] for word in _WORD.findall(selector)):
            for key in sorted(_keys(selector)):
                if near.get(key):
                    yield number, key, near[key]


def _keys(selector: str) -> set[str]:
    """Return the keys of the item that a selector reads; none if it cannot be parsed."""
    try:
        nodes: list[Node] = [parse(selector, places=False).root]
    except SelectorError:
        return set()
    keys: set[str] = set()
    while nodes:
        node = nodes.pop()
        if isinstance(node, Name):
            keys.add(node.key)
        nodes += children(node)
    return keys
