"""What pages are told of this app."""

from __future__ import annotations

from typing import Final

# payload: build, tag, state, step
BUILD_CHANGED: Final = "build_changed"
