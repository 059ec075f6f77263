"""Kept pages for the eye: HTML without anything that runs or loads, and differences of two texts.

There are two measures: the policy of the response (``POLICY``) allows no script, no connection and
no navigation, and what would need one is taken out before. The second matters for what no policy
covers, such as ``<link rel=preconnect>`` and links that a person clicks.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, Final

from selectolax.lexbor import LexborHTMLParser

# Whatever the page holds, the browser runs, sends and loads nothing of it.
POLICY: Final = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
MAX_RENDERED_CHARACTERS: Final = 4 * 1024 * 1024
# Lines of each side of a difference; beyond it the comparison would take too long.
MAX_LINES: Final = 4000
_LINE_CHARACTERS: Final = 2000
_REMOVED: Final = (
    "script, iframe, frame, frameset, object, embed, applet, link, base, meta, portal, fencedframe,"
    " audio, video, source, track, svg, math, template, noembed, noframes, param, dialog"
)
_KEPT_ATTRIBUTES: Final = frozenset(
    {
        "align", "alt", "bgcolor", "border", "cellpadding", "cellspacing", "checked", "class",
        "color", "cols", "colspan", "datetime", "dir", "disabled", "face", "height", "hidden", "id",
        "label", "lang", "multiple", "nowrap", "open", "placeholder", "readonly", "reversed",
        "role", "rows", "rowspan", "scope", "selected", "size", "span", "start", "style", "summary",
        "title", "type", "valign", "value", "width", "wrap",
    }
)  # fmt: skip
_DATA_IMAGE: Final = re.compile(r"data:image/(png|jpeg|gif|webp|avif)[;,]", re.IGNORECASE)
_BETWEEN_TAGS: Final = re.compile(r">\s*<")


def inert_html(text: str) -> str:
    """Return a page without what runs, loads or leads elsewhere; its own styles stay."""
    tree = LexborHTMLParser(text[:MAX_RENDERED_CHARACTERS])
    for node in tree.css(_REMOVED):
        node.decompose()
    root: Any = tree.root
    if root is None:
        return ""
    for node in [root, *root.traverse(include_text=False)]:
        for name, value in list(node.attributes.items()):
            shown = name == "src" and node.tag == "img" and _DATA_IMAGE.match(value or "")
            if name not in _KEPT_ATTRIBUTES and not shown:
                del node.attrs[name]
    return f"<!DOCTYPE html>{tree.html or ''}"


def difference(old: str, new: str) -> list[tuple[str, str]]:
    """Return the lines of a unified difference as (kind, text); kinds: ``@ + -`` and blank.

    Empty if the texts are equal. Tags stand on lines of their own, so that pages without line
    breaks can be compared.
    """
    lines = difflib.unified_diff(_lines(old), _lines(new), n=3, lineterm="")
    shown = [(line[:1], line[1:]) for line in lines if not line.startswith(("---", "+++"))]
    return [(kind, text[:_LINE_CHARACTERS]) for kind, text in shown]


def is_cut(text: str) -> bool:
    """Return whether a text has more lines than are compared."""
    return len(_split(text)) > MAX_LINES


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in _split(text)[:MAX_LINES]]


def _split(text: str) -> list[str]:
    return _BETWEEN_TAGS.sub(">\n<", text).splitlines()
