"""Detection of misspelled keys of the router in selectors, such as ``task_parms``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final

from apps.routing.engine.selector.errors import SelectorError
from apps.routing.engine.selector.language import parse
from apps.routing.engine.selector.tree import Name, Node, children

# Similarity from 0 to 1. Above: ``task_parms``/``task_params``. Below: ``priority``/``province``.
_LIKENESS: Final = 0.85
_WORD: Final = re.compile(r"[^\W\d]\w*")


def misspelled(selectors: Iterable[str], known: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Yield (index of the selector, misspelled key, known key that is probably meant)."""
    known = frozenset(known)
    near: dict[str, str] = {}
    for number, selector in enumerate(selectors):
        for word in set(_WORD.findall(selector)) - near.keys():
            close = () if word in known else get_close_matches(word, known, 1, _LIKENESS)
            near[word] = close[0] if close else ""
        # Parse only selectors with such a word, which are few; it may be part of a string.
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
