"""The settings of the tests on a database that several connections can really share.

``CRAWLYARD_TEST_DATABASE_URL``: a PostgreSQL database on loan, or ``sqlite:///`` and a file. SQLite
in memory, which other tests use, refuses a second writer instead of letting it wait, and takes
other values than PostgreSQL.
"""

from __future__ import annotations

import os

import dj_database_url

from crawlyard.settings.testing import *  # noqa: F403
from crawlyard.settings.testing import DATABASES

_url = os.environ["CRAWLYARD_TEST_DATABASE_URL"]
if _url.startswith("sqlite:"):
    DATABASES["default"]["TEST"] = {"NAME": _url.removeprefix("sqlite:///")}
else:
    DATABASES["default"] = dj_database_url.parse(_url, engine="tests.postgres_backend")
    # It is migrated, and what a test run makes for itself can be a copy of it.
    DATABASES["default"]["TEST"] = {"TEMPLATE": DATABASES["default"]["NAME"]}
    # The database need not outlive a crash of the server.
    DATABASES["default"]["OPTIONS"] = {"options": "-c synchronous_commit=off"}
