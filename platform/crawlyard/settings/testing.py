"""Settings of tests: their own data folder, SQLite unless a test requests a service."""

from __future__ import annotations

import os
import tempfile

from crawlyard.demo.environment import STORES

# A test run never connects to stores configured in the calling shell.
for _name in STORES:
    os.environ.pop(_name, None)
    os.environ.pop(f"{_name}_FILE", None)

# A machine that runs tests is busy; its only runner must take runs all the same.
os.environ.setdefault("RUN_MAX_CPU_PERCENT", "101")

# Before importing base: a test run never touches the data of a real installation.
given = os.environ.get("CRAWLYARD_TEST_DATA", "")
# Folder that this process created and removes at exit; "" for none.
made = "" if given else tempfile.mkdtemp(prefix="crawlyard-test-")
os.environ["CRAWLYARD_DATA"] = given or made

from crawlyard.settings.base import *  # noqa: E402, F403 - the environment is set first

DEBUG = False
# Threads of a test share a database in memory, where readers and writers exclude each other;
# with a file they would not.
DATABASES["default"]["OPTIONS"]["init_command"] += "PRAGMA read_uncommitted=1;"  # noqa: F405
# Cheapest hasher: tests that log in should not spend time on key stretching.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
WHITENOISE_AUTOREFRESH = True
# Tests restore rows of migrations, except for these apps, which recreate theirs.
TEST_NON_SERIALIZED_APPS = ["django.contrib.auth", "django.contrib.contenttypes"]
