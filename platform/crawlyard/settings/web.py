"""Settings of the web process: base settings with a pool of database connections.

Requests run on many threads, each of which would otherwise hold or open a connection.
"""

from __future__ import annotations

from crawlyard.settings.base import *  # noqa: F403
from crawlyard.settings.base import DATABASES, STATIC_ROOT
from crawlyard.settings.database import suit_web

# Empty unless collectstatic fills it; whitenoise warns about a missing folder.
STATIC_ROOT.mkdir(exist_ok=True)

suit_web(DATABASES["default"])
