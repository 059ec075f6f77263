"""Template tags: URLs of logs, and highlighted lines."""

from __future__ import annotations

import re
from typing import Final

from django import template
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.joblogs.engine.lines import owner_of

register = template.Library()

# Characters shown of a long line, around the first match.
SHOWN_CHARACTERS: Final = 600
_BEFORE: Final = 120
_WORDS: Final = re.compile(r'"([^"]+)"|(\S+)')


@register.filter
def log_address(stream: str) -> str:
    """Return the REST URL of a log: ``/api/v1/runs/7/logs`` for ``run:7``. Raises ``BadLines``."""
    kind, pk = owner_of(stream)
    return reverse(f"{kind}-logs", kwargs={kind: pk})


@register.filter
def search_address(stream: str) -> str:
    """Return the URL of the search in one log, such as ``/logs?run=7``."""
    kind, pk = owner_of(stream)
    return f"{reverse('joblogs:search')}?{kind}={pk}"


@register.filter
def marked(text: str, words: str) -> SafeString:
    """Highlight the searched words in a line, which is cut if it is very long."""
    wanted = [match[1] or match[2] for match in _WORDS.finditer(words or "")]
    pattern = re.compile("|".join(map(re.escape, wanted)) or r"(?!)", re.IGNORECASE)
    begin, end = 0, len(text)
    if end > SHOWN_CHARACTERS:
        first = pattern.search(text)
        begin = max(0, min(first.start() - _BEFORE, end - SHOWN_CHARACTERS)) if first else 0
        end = begin + SHOWN_CHARACTERS
    shown, pieces, at = text[begin:end], [], 0
    for match in pattern.finditer(shown):
        pieces.append((shown[at : match.start()], format_html("<mark>{}</mark>", match[0])))
        at = match.end()
    pieces.append((shown[at:], SafeString("")))
    return format_html(
        "{}{}{}",
        "…" if begin else "",
        format_html_join("", "{}{}", pieces),
        "…" if end < len(text) else "",
    )
