"""Events about configurations, sent to open pages."""

from __future__ import annotations

from typing import Final

CONFIG_CHANGED: Final = "config.changed"
