"""Default text form of kinds: strict JSON."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from apps.configcenter.engine.plain import MAX_BYTES, Data, check_plain


def read_json(raw: bytes) -> Data:
    """Parse JSON. Raises ``ValueError`` with a text that says where and why."""
    if len(raw) > MAX_BYTES:
        raise ValueError(f"a configuration has at most {MAX_BYTES} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    try:
        value = json.loads(text, parse_constant=_refuse, object_pairs_hook=_mapping)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}"
        ) from None
    except RecursionError:
        raise ValueError("nested too deep") from None
    return check_plain(value)


def write_json(data: Data) -> str:
    """Serialize to indented JSON; Chinese characters are not escaped."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _mapping(pairs: list[tuple[str, Any]]) -> Data:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        counts = Counter(name for name, _value in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"duplicate name {twice[:100]!r}")
    return mapping
