"""Settings of the test run: an own data folder, SQLite unless a test asks for a service."""

from __future__ import annotations

import os
import tempfile

from crawlyard.demo.environment import STORES

# A test run never connects to the stores that the shell it was started from names.
for _name in STORES:
    os.environ.pop(_name, None)
    os.environ.pop(f"{_name}_FILE", None)

# A machine that runs tests is busy, and its only runner is wanted all the same.
os.environ.setdefault("RUN_MAX_CPU_PERCENT", "101")

# Before base is imported: a test run never touches the data of a real installation.
given = os.environ.get("CRAWLYARD_TEST_DATA", "")
# "" or the folder that this process has made, and removes at its end.
made = "" if given else tempfile.mkdtemp(prefix="crawlyard-test-")
os.environ["CRAWLYARD_DATA"] = given or made

from crawlyard.settings.base import *  # noqa: E402, F403 - the environment comes first

DEBUG = False
# Threads of a test share a database in memory. Who writes and who reads refuse each other there,
# where neither would even wait with a file.
DATABASES["default"]["OPTIONS"]["init_command"] += "PRAGMA read_uncommitted=1;"  # noqa: F405
# The cheapest hasher: a test that logs in should not spend its time on key stretching.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
WHITENOISE_AUTOREFRESH = True
# Tests put back the rows that migrations made, but these apps create theirs again.
TEST_NON_SERIALIZED_APPS = ["django.contrib.auth", "django.contrib.contenttypes"]
