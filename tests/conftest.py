"""What every test shares: marks that tell the truth, stores on loan, a clean data folder."""

from __future__ import annotations

import gc
import os
import shutil
import sys

import pytest
from hypothesis import HealthCheck, settings

from yardkit.garbage_collector import spare_the_collector

# What is collected stays, so there is nothing to find in it meanwhile.
gc.disable()

# Processes that tests start write as they would from a plain shell: a lost flush must show here.
os.environ.pop("PYTHONUNBUFFERED", None)
# Some images switch the cache of compiled modules off: each process would compile all it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Several processes share few cores: that a value was drawn slowly says nothing of its strategy.
settings.register_profile("shared machine", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")

pytest_plugins = [
    "tests.plugins.connections",
    "tests.plugins.covers",
    "tests.plugins.markers",
    "tests.plugins.long_tests",
    "tests.plugins.tiers",
    "tests.plugins.measurements",
    "tests.plugins.groups",
    "tests.plugins.migrated_databases",
    "tests.plugins.stores",
    "tests.plugins.object_server",
    "tests.plugins.audit_trail",
    "tests.plugins.request_store",
    "tests.plugins.live_web",
    "tests.plugins.browser_session",
    "tests.plugins.log_store",
    "tests.plugins.engines",
    "tests.plugins.spider_image",
    "tests.plugins.product_image",
    "tests.plugins.kafka_cluster",
    "tests.plugins.mongodb_server",
    "tests.plugins.s3_server",
]


def pytest_collection_finish() -> None:
    """All code is here now; Python need not go over it again and again while tests run."""
    spare_the_collector()
    gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the data folder that the test settings made for this run.

    A test may run others with settings of their own: what they find in the environment is ours.
    """
    made = getattr(sys.modules.get("crawlyard.settings.testing"), "made", "")
    if made:
        _close_connections()
        shutil.rmtree(made, ignore_errors=True)


def _close_connections() -> None:
    """The threads that publish must not find their broker's file gone."""
    from apps.runtime.services import close_shared_broker, stop_events, stop_relay

    stop_relay(1.0)
    stop_events(1.0)
    close_shared_broker(1.0)
