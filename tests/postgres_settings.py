"""The settings of the tests on the PostgreSQL database that ``DATABASE_URL`` names."""

from __future__ import annotations

import os

import dj_database_url

# Read first: the settings of the tests forget what the shell names.
_url = os.environ["DATABASE_URL"]

from crawlyard.settings.testing import *  # noqa: E402, F403 - the environment comes first

DATABASES = {"default": dj_database_url.parse(_url)}
