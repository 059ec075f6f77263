"""What the tests of the runner share: a broker file, spiders, a runner in the test's thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import override_settings

from apps.jobs.daemon import RunnerDaemon
from tests.jobs.containers import base_image_id, docker_runner, installation  # noqa: F401
from tests.jobs.runners import make_runner
from yardkit.broker import Broker

ROOT = Path(__file__).resolve().parents[2]

# A spider module whose import decides how the process ends; no network is needed.
ENDINGS = {
    "sleeps": "import time\ntime.sleep(60)\n",
    "raises": "raise RuntimeError('no such luck')\n",
    "deaf": (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf now', flush=True)\n"
        "time.sleep(60)\n"
    ),
    "family": (
        "import subprocess, sys, time\n"
        "code = 'import time; time.sleep(60)'\n"
        "child = subprocess.Popen([sys.executable, '-c', code], start_new_session=True)\n"
        "print('child', child.pid, flush=True)\n"
        "raise SystemExit(0)\n"
    ),
}


@pytest.fixture
def spiders(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "spiders"
    folder.mkdir()
    for name, text in ENDINGS.items():
        (folder / f"{name}.py").write_text(text)
    path = (str(ROOT), str(ROOT / "platform"), str(folder))
    with override_settings(SPIDER_PYTHON_PATH=path):
        yield folder


@pytest.fixture
def runner(broker: Broker, tmp_path: Path, spiders: Path) -> Iterator[RunnerDaemon]:
    daemon = make_runner(broker, tmp_path)
    daemon.setup()
    yield daemon
    daemon.teardown()
