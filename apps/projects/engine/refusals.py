"""Base class of the errors of the plain-Python parts: a stable code, and text parameters.

The translated texts are in ``apps.projects.reasons``.
"""

from __future__ import annotations


class ProjectInputError(Exception):
    """Invalid input or failed operation. ``params`` are the parameters of the text of ``code``."""

    def __init__(self, code: str, **params: object) -> None:
        self.code = code
        self.params = {name: _short(value) for name, value in params.items()}
        super().__init__(code, self.params)

    def __str__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.params.items())
        return f"{self.code}: {inner}" if inner else self.code


def _short(value: object) -> object:
    if not isinstance(value, str):
        return value
    printable = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in value
    )
    return printable if len(printable) <= 120 else f"{printable[:119]}…"
