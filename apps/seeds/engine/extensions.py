"""Loader of resolvers from installed packages, by entry point."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

from apps.seeds.engine.errors import InvalidFrontierSetting


def load_extension(group: str, name: str, built_in: Sequence[str]) -> Any:
    """Load the entry point ``name`` of ``group`` from an installed package.

    Raises:
        InvalidFrontierSetting: no package or several packages define it, or loading or calling it
            fails.
    """
    points = {point.value: point for point in entry_points(group=group, name=name)}
    if not points:
        known = sorted({*built_in, *entry_points(group=group).names})
        raise InvalidFrontierSetting(
            f"there is no resolver {name!r}; there are: {', '.join(known)}"
        )
    if len(points) > 1:
        raise InvalidFrontierSetting(
            f"several packages call something {name}: {', '.join(sorted(points))}"
        )
    (point,) = points.values()
    try:
        extension = point.load()
    except Exception as error:  # noqa: BLE001 - importing a plug-in runs its code
        text = f"{name} ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
        raise InvalidFrontierSetting(text) from None
    if not callable(extension):
        raise InvalidFrontierSetting(f"{name} ({point.value}) cannot be called")
    return extension
