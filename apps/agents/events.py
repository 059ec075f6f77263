"""Websocket events about agents."""

from __future__ import annotations

from typing import Final

AGENTS_CHANGED: Final = "agents.changed"
