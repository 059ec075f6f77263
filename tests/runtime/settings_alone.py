"""The app by itself: it is the lowest one, so nothing else may be needed to run it."""

from __future__ import annotations

import os
from pathlib import Path

import dj_database_url

SECRET_KEY = "only for tests"
# Some folder that is there: readiness asks how much room its disk has.
DATA_DIR = Path(__file__).parent
SECRETBOX_KEYS = ["MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="]
DEBUG = False
ALLOWED_HOSTS = ["localhost"]
BROKER_URL = os.environ.get("BROKER_URL", "")
DATABASES = {"default": dj_database_url.parse(os.environ.get("DATABASE_URL", "sqlite://:memory:"))}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["apps.runtime", "tests.runtime.sample"]
ROOT_URLCONF = "apps.runtime.urls"
USE_TZ = True
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
}
