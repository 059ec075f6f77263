"""docs/spiders.md says what the SDK does: its table, and its examples, which run here."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from yardspider import SpiderSettings
from yardspider.testing import run_spider

GUIDE = (Path(__file__).parents[2] / "docs" / "spiders.md").read_text(encoding="utf-8")
SECTION = GUIDE.partition("\n## Settings\n")[2].partition("\n## ")[0]


@pytest.mark.covers("S1.43", "S1.44", "S1.50")
def test_every_setting_is_in_the_table_with_its_default() -> None:
    documented = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", SECTION, re.MULTILINE))
    words = {None: "not set", True: "true", False: "false"}
    defaults = msgspec.structs.asdict(SpiderSettings())
    assert documented == {
        name: words[value] if value is None or isinstance(value, bool) else str(value)
        for name, value in defaults.items()
    }


def test_every_setting_is_in_the_docstring() -> None:
    # Not __doc__, whose indentation Python 3.13 takes away.
    docstring = inspect.getdoc(SpiderSettings) or ""
    assert re.findall(r"^(\w+):", docstring, re.MULTILINE) == list(SpiderSettings.__struct_fields__)


def test_the_examples_run(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    file = tmp_path / "examples.py"
    file.write_text("\n".join(blocks), encoding="utf-8")
    names = runpy.run_path(str(file))
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) == 3
    for name in tests:
        names[name]()
    # The one that is fed from outside, and never is.
    assert 30 <= run_spider(names["Fed"], {}).outcome.seconds < 31


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"speed": -1}, "speed must be at least 0"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"held_limit": 0}, "held_limit must be at least 1"),
        ({"empty_seconds": -1}, "empty_seconds must be at least 0"),
        ({"no_answer_seconds": "nan"}, "no_answer_seconds must be at least 1"),
        ({"fed_from_outside": "perhaps"}, "fed_from_outside"),
        ({"patience": 1}, "there is no setting 'patience'; there are: concurrency,"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=r"^job: ") as caught:
        SpiderSettings().changed(wrong, origin="job")
    assert said in str(caught.value)


def test_texts_from_the_command_line_are_read_as_what_they_mean() -> None:
    texts = {"speed": "0.5", "concurrency": "7", "fed_from_outside": "true", "empty_seconds": "9"}
    settings = SpiderSettings().changed(texts, origin="--set")
    assert (settings.speed, settings.concurrency) == (0.5, 7)
    assert (settings.fed_from_outside, settings.patience_seconds) == (True, 9.0)
