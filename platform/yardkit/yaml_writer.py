"""Writer of readable YAML that ``yaml_reader`` reads back as the same values."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from yardkit.yaml_reader import INTEGER, NUMBER

# Line ends that a reader would normalise unless they are escaped.
_ESCAPED: Final = re.compile(r"[\r\x85\u2028\u2029]")
_NOT_AS_LINES: Final = re.compile(r"[\ufeff\t]|[ ]\n|^\s")


class _Dumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.1 or 1.2 would read as another type; writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    style = None
    if _ESCAPED.search(text):
        style = '"'
    elif "\n" in text and not _NOT_AS_LINES.search(text):
        # Block style for texts of several lines that it preserves unchanged.
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
    """Return a value as YAML with lines of about ``width``; keys keep their order."""
    written: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width
    )
    return written
