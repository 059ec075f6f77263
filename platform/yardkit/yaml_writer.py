"""Writing YAML for people, such that ``yaml_reading`` gives back the same values."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from yardkit.yaml_reader import INTEGER, NUMBER

# Ends of lines that a reader makes others of, unless they are escaped.
_ESCAPED: Final = re.compile(r"[\r\x85\u2028\u2029]")
_NOT_AS_LINES: Final = re.compile(r"[\ufeff\t]|[ ]\n|^\s")


class _Dumper(yaml.SafeDumper):
    """Quotes what either version of YAML would not read as a text; no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    style = None
    if _ESCAPED.search(text):
        style = '"'
    elif "\n" in text and not _NOT_AS_LINES.search(text):
        # A text of several lines as one, where YAML can give it back unchanged.
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
for _pattern, _tag, _first in (
    (INTEGER, "int", "-+0123456789"),
    (NUMBER, "float", "-+.0123456789"),
):
    _Dumper.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern.pattern})$"), list(_first)
    )


def write_value(value: Any, *, width: int = 100) -> str:
    """Lists, mappings in their order, texts and numbers as YAML; lines of about ``width``."""
    written: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width
    )
    return written
