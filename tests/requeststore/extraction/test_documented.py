"""docs/extraction-rules.md tells of every key, step, type and code, and its example holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from apps.requeststore.extraction import check_rules
from apps.requeststore.extraction import rule_compiler as words
from apps.requeststore.extraction.conversion import CASTS
from apps.requeststore.extraction.step_compiler import STEPS

DOCUMENT: Final = (
    Path(__file__).parents[3].joinpath("docs", "extraction-rules.md").read_text(encoding="utf-8")
)
FOLDER: Final = Path(words.__file__).parent


@pytest.mark.covers("S4.9")
def test_the_example_is_a_rule_map() -> None:
    found = re.search(r"```yaml\n(bizzes:.*?)```", DOCUMENT, re.DOTALL)
    assert found is not None
    assert check_rules(yaml.safe_load(found[1])["bizzes"]["shop"]["rules"]) == []


@pytest.mark.parametrize(
    "word",
    sorted(
        {*words.RULE_KEYS, *words.FIELD_KEYS, *words.FOLLOW_KEYS, *words.KINDS, *CASTS, *STEPS}
        | {"datetime"}
    ),
)
def test_every_word_of_the_language_is_told_of(word: str) -> None:
    assert re.search(rf"`{re.escape(word)}\b", DOCUMENT), word


def test_every_code_of_a_page_is_told_of() -> None:
    """Those that the sources name where they note a problem."""
    noted = re.compile(r"(?:problem\(|PageError\(|PageProblem\(\s*code=)\s*\"([a-z_]+)\"")
    codes = {code for path in FOLDER.glob("*.py") for code in noted.findall(path.read_text())}
    assert len(codes) > 10
    # Of rules that were never checked.
    assert not [code for code in codes - {"bad_rules"} if f"`{code}`" not in DOCUMENT]
