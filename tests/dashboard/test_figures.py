"""How figures are written, by the server and by the script of the live pages alike."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from apps.dashboard.templatetags.dashboard_tags import ago, clock, count, counter, lasting, size

LIVE_JS = Path(__file__).resolve().parents[2] / "static" / "dashboard" / "live.js"


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "0"), (999, "999"), (1234567, "1,234,567"), (None, "–")]
)
def test_counts_have_thousands(value: int | None, expected: str) -> None:
    assert count(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KB"),
        (67_000_000, "63.9 MB"),
        (5 << 30, "5.0 GB"),
        (3 << 40, "3.0 TB"),
        (5 << 50, "5120.0 TB"),
    ],
)
def test_sizes_have_units_of_1024(value: int, expected: str) -> None:
    assert size(value) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(-3, "0:00"), (59.9, "0:59"), (61, "1:01"), (3661, "1:01:01")]
)
def test_durations_read_like_a_clock(seconds: float, expected: str) -> None:
    assert clock(seconds) == expected


def test_ages_count_seconds_first() -> None:
    now = timezone.now()
    assert ago(None) == "never"
    assert ago(now - timedelta(seconds=7)) == "7 s ago"
    assert ago(now - timedelta(minutes=5)) == "5\xa0minutes ago"
    assert ago(now + timedelta(seconds=5)) == "0 s ago"


def test_a_counter_can_be_found_by_its_name() -> None:
    assert counter("left", 1200) == '<span data-counter="left">1,200</span>'


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on PATH to run live.js with")
def test_the_script_writes_the_same() -> None:
    values = {"count": [0, 1234567], "clock": [-3, 59.9, 3661], "size": [1023, 1024, 67_000_000]}
    program = (
        "globalThis.window = globalThis; globalThis.document = {addEventListener() {}};"
        f"require({json.dumps(str(LIVE_JS))});"
        "const out = {};"
        f"for (const [name, values] of Object.entries({json.dumps(values)}))"
        "  out[name] = values.map((value) => Crawlyard[name](value));"
        "console.log(JSON.stringify(out));"
    )
    done = subprocess.run(
        ["node", "-e", program], capture_output=True, text=True, timeout=60, check=True
    )
    mine = {"count": count, "clock": clock, "size": size}
    expected = {name: [mine[name](value) for value in given] for name, given in values.items()}
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (40, "40 s"),
        (300, "5 min"),
        (5400, "1 h 30 min"),
        (86_400 + 61, "1 d 1 min"),
        (7 * 86_400, "7 d"),
    ],
)
def test_spans_of_time_are_told_in_their_two_largest_units(seconds: int, expected: str) -> None:
    assert lasting(seconds) == expected
