"""What pages are told about configurations."""

from __future__ import annotations

from typing import Final

CONFIG_CHANGED: Final = "config.changed"
