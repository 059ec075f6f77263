"""Files that runs keep beside their items: rules of names and sizes, and links from items."""

from __future__ import annotations

from typing import Final

from yardkit.names import UNSTORABLE

# An item links to a file of its run by a field with the value ``crawlyard-file:<name>``.
LINK: Final = "crawlyard-file:"
MAX_FILE_BYTES: Final = 1024 * 1024 * 1024
TYPE_CHARACTERS: Final = 100
_NAME_CHARACTERS: Final = 500


def is_file_name(name: str) -> bool:
    """Return whether ``name`` is a relative path with ``/`` that stays below its folder."""
    return (
        0 < len(name) <= _NAME_CHARACTERS
        and not UNSTORABLE.search(name)
        and name.isprintable()
        and all(part not in ("", ".", "..") for part in name.split("/"))
    )


def is_content_type(content_type: str) -> bool:
    """Return whether a media type can be stored; an empty one can."""
    return len(content_type) <= TYPE_CHARACTERS and content_type.isprintable()
