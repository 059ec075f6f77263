"""Names of Scrapy that it does not document and yardscrapy uses, as docs/scrapy.md lists them."""

from __future__ import annotations

import functools
import json
import re
import subprocess

import pytest

from tests.e2e.daemon_processes import ROOT
from tests.yardscrapy.private_api import NAMES

# Not of special names, such as __name__.
_PRIVATE = re.compile(
    r"""(?:scrapy[\w.]*|engine|crawler|spider)\._(?!_)\w+|(?<=, ")_(?!_)\w+(?=")"""
)


@functools.cache
def problems(python: str) -> dict[str, str]:
    """Return the problem of each name, "" for none, with the Scrapy of an interpreter."""
    done = subprocess.run(
        [python, ROOT / "tests" / "yardscrapy" / "private_api.py"],
        env={"PYTHONPATH": str(ROOT / "platform")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow("3 s")
@pytest.mark.parametrize("name", NAMES.values())
def test_a_private_name_is_as_yardscrapy_uses_it(python: str, name: str) -> None:
    assert problems(python)[name] == ""


def test_the_docs_list_the_private_names() -> None:
    text = (ROOT / "docs" / "scrapy.md").read_text().partition("## 6. Private API")[2]
    assert sorted(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)) == sorted(NAMES.values())


def test_no_other_module_of_scrapy_is_private() -> None:
    """Modules and attributes that begin with an underscore occur where a check covers them."""
    found = {
        (path.name, name)
        for path in (ROOT / "platform" / "yardscrapy").glob("*.py")
        for name in _PRIVATE.findall(path.read_text())
    }
    assert found == {("extension.py", "_slot"), ("texts.py", "scrapy.utils._download_handlers")}
