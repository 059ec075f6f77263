"""Failpoints: off, every action in a real process, and bad values."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import timeit
from collections.abc import Iterator
from pathlib import Path

import pytest

from yardkit import failpoints
from yardkit.env import EnvError
from yardkit.failpoints import FailpointError, configure, hit, parse

PLATFORM = Path(__file__).parents[2] / "platform"
PROGRAM = """
from yardkit import failpoints
for number in range(1, 4):
    failpoints.hit("here")
    print(number, flush=True)
"""


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    yield
    configure({})


def run(value: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"PYTHONPATH": str(PLATFORM), "FAILPOINTS": value},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_off_does_nothing() -> None:
    configure({})
    hit("anything")
    assert failpoints._points is None


def test_off_costs_next_to_nothing() -> None:
    configure({})
    per_hit = min(timeit.repeat(lambda: hit("x"), number=20_000, repeat=3)) / 20_000
    # About 0.05 us; the limit only says that nothing is looked up or parsed.
    assert per_hit < 20e-6


def test_raise_at_the_nth_hit() -> None:
    configure({"FAILPOINTS": "a=raise@2, b=raise"})
    hit("a")
    with pytest.raises(FailpointError, match="a"):
        hit("a")
    hit("a")
    for _ in range(2):
        with pytest.raises(FailpointError):
            hit("b")
    hit("c")


def test_kill() -> None:
    done = run("here=kill@3")
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "1\n2\n")


def test_stop_wakes_up_again() -> None:
    done = run("here=stop:0.2@2")
    assert (done.returncode, done.stdout) == (0, "1\n2\n3\n")
    assert done.stderr == "stands still at here\ngoes on at here\n"


def test_sleep() -> None:
    done = run("here=sleep:0.01,there=kill")
    assert (done.returncode, done.stdout) == (0, "1\n2\n3\n")


def test_raise_in_a_process() -> None:
    done = run("here=raise@1")
    assert done.returncode == 1
    assert "FailpointError: here" in done.stderr


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("here", "'here' cannot be read"),
        ("here=kill@0", "cannot be read"),
        ("here=explode", "'here=explode' has no known action; use kill, stop, raise or sleep"),
        ("here=kill:3", "kill takes no seconds"),
        ("ok=kill,here=stop:abc", "'here=stop:abc' cannot be read"),
    ],
)
def test_bad_values(value: str, words: str) -> None:
    with pytest.raises(EnvError, match=words) as caught:
        parse(value)
    assert caught.value.name == "FAILPOINTS"


def test_a_bad_value_shows_at_the_first_hit() -> None:
    assert "EnvError: FAILPOINTS: " in run("nonsense").stderr


def test_defaults() -> None:
    points = parse("a.b=stop, c=sleep,,")
    assert points["a.b"].seconds == 12.0
    assert points["c"].seconds == 1.0
    assert points["c"].at is None
