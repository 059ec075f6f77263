"""Settings of the web process: the same, with a pool of database connections.

Requests run on many threads, which would else each hold or make a connection of their own.
"""

from __future__ import annotations

from crawlyard.settings.base import *  # noqa: F403
from crawlyard.settings.base import DATABASES, STATIC_ROOT
from crawlyard.settings.database import suit_web

# Empty unless collectstatic fills it; whitenoise complains about a folder that is not there.
STATIC_ROOT.mkdir(exist_ok=True)

suit_web(DATABASES["default"])
