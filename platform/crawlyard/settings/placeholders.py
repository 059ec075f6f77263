"""``ROUTING_PLACEHOLDERS``: values that routing rules refer to, as a JSON object of texts."""

from __future__ import annotations

import json
from typing import Any, Final

from yardkit.env import EnvError
from yardkit.names import UNSTORABLE, is_variable

NAME: Final = "ROUTING_PLACEHOLDERS"
_REMEDY: Final = 'write an object of texts such as {"kafka_servers": "10.0.0.1:9092"}'


def read_placeholders(text: str) -> dict[str, str]:
    """Return the values by name. Raises ``EnvError`` with the position, without values."""
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise EnvError(NAME, f"this is no JSON from {where} on", _REMEDY) from None
    except RecursionError:
        raise EnvError(NAME, "it is nested too deep", _REMEDY) from None
    if not isinstance(found, dict):
        raise EnvError(NAME, "this is no JSON object", _REMEDY)
    for number, (name, value) in enumerate(found.items(), 1):
        if not is_variable(name, 100):
            # It may be a misplaced value.
            remedy = "use ASCII letters, digits and _, not a digit first"
            raise EnvError(NAME, f"name number {number} is no name", remedy)
        if not isinstance(value, str):
            raise EnvError(NAME, f"the value of {name} is no text", "put it in double quotes")
        if UNSTORABLE.search(value):
            problem = f"the value of {name} holds \\u0000 or half of a surrogate pair"
            raise EnvError(NAME, problem, "leave that out")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise EnvError(NAME, "a name is there twice", "keep one of them")
    return mapping
