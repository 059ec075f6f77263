"""Fingerprints of errors, which define the error groups. Plain Python."""

from __future__ import annotations

import hashlib
import re
from typing import Final

# Patterns of text that is specific to one occurrence.
SHAPE_CHARACTERS: Final = 300
DIGITS: Final = 16
FINGERPRINT: Final = rf"^[0-9a-f]{{{DIGITS}}}$"

# Most specific pattern first: at each position the first match wins.
_PARTS: Final = re.compile(
    r"""
      (?P<url>\b[a-z][a-z0-9+.-]{1,15}://[^\s/?\#"'<>]{1,255})[^\s"'<>]*
    | (?P<uuid>\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b)
    | (?P<time>\b\d{4}-\d\d-\d\d(?:[T\ ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?
        |\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b)
    | (?P<address>\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b)
    | "(?P<double>(?:[^"\\]|\\.){0,2000})"
    | (?<![\w'])'(?P<single>(?:[^'\\]|\\.){0,2000})'(?!\w)
    | [“「『](?P<wide>[^”」』]{0,2000})[”」』]
    | (?P<path>(?<![\w/.])(?:/[\w.@%+=:,~-]+){2,}/?)
    | (?P<hex>\b(?:0x[0-9a-f]+|(?=[a-f]*[0-9])[0-9a-f]{7,})\b)
    | (?P<number>(?<![0-9])[0-9]+(?:[.,_][0-9]+)*)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SPACES: Final = re.compile(r"\s+")
_NAMES: Final = {
    "uuid": "<id>",
    "time": "<time>",
    "address": "<address>",
    "double": "<text>",
    "single": "<text>",
    "wide": "<text>",
    "path": "<path>",
    "hex": "<id>",
    "number": "<n>",
}


def shape(text: str) -> str:
    """Return the text with placeholders for variable parts such as numbers and paths.

    ``GET https://a.example/p/7?x=1 took 3.2 s`` becomes ``GET https://a.example/… took <n> s``.
    """
    # Cut to slightly more than is kept, because placeholders shorten the text.
    masked = _PARTS.sub(_name, text[: 4 * SHAPE_CHARACTERS])
    return _SPACES.sub(" ", masked).strip()[:SHAPE_CHARACTERS]


def fingerprint(source: str, text: str) -> str:
    """Return 16 hex digits, equal for errors of the same logger and shape."""
    kind = f"{source}\0{shape(text)}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(kind, digest_size=DIGITS // 2).hexdigest()


def _name(match: re.Match[str]) -> str:
    group = match.lastgroup or ""
    if group == "url":
        # Scheme and host of a URL belong to the group, the rest to one occurrence.
        return f"{match['url'].lower()}/…"
    return _NAMES[group]
