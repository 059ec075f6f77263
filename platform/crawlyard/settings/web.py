"""Settings of the web process: the same, with a pool of database connections.

Requests run on many threads, which would else each hold or make a connection of their own.
"""

from __future__ import annotations

from crawlyard.settings.base import *  # noqa: F403
from crawlyard.settings.base import DATABASES, STATIC_ROOT

# Empty unless collectstatic fills it; whitenoise complains about a folder that is not there.
STATIC_ROOT.mkdir(exist_ok=True)

if DATABASES["default"]["ENGINE"] == "django.db.backends.postgresql":
    # Whoever asks shall hear 503 rather than wait for a lock that somebody keeps.
    DATABASES["default"]["OPTIONS"]["options"] = "-c lock_timeout=8s"
    DATABASES["default"]["OPTIONS"]["pool"] = {"min_size": 1, "max_size": 8, "timeout": 10}
