"""Resolvers of installed packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from apps.seeds.engine import keys, segments
from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.engine.keys import key_resolver
from apps.seeds.engine.rules import FrontierRules
from apps.seeds.engine.seeds import Seed
from apps.seeds.engine.segments import segment_resolver

MODULE = """
def shop(data):
    return data.split("/item/")[1]

class Nights:
    def __init__(self, zone):
        self.zone = zone

    def __call__(self, time):
        return (time // 86400000 + 1) * 86400000

def broken(zone):
    raise RuntimeError("no such night")

number = 7
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages with a module of resolvers."""
    (tmp_path / "strange_resolvers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("strange_resolvers", None)


def install(site: Path, package: str, group: str, **points: str) -> None:
    """Leave what pip leaves of a package with these entry points."""
    folder = site / f"{package}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = strange_resolvers:{what}" for name, what in points.items()]
    (folder / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))


@pytest.mark.covers("S3.9")
def test_a_package_may_bring_a_key_resolver(site: Path) -> None:
    install(site, "one", keys.GROUP, shop="shop")
    rules = FrontierRules(keys=key_resolver("shop"))
    assert rules.resolve(Seed("http://h/a/item/7")).key == "7"
    assert rules.resolve(Seed("http://h/b/item/7")).hash == keys.key_hash("7")


@pytest.mark.covers("S3.3")
def test_a_package_may_bring_a_segment_resolver(site: Path) -> None:
    install(site, "one", segments.GROUP, nights="Nights")
    nights = segment_resolver("nights", ZoneInfo("UTC"))
    resolved = FrontierRules(segments=nights).resolve(Seed("a", active_at=1_780_000_000_000))
    assert resolved.segment == 1_780_012_800_000
    # A segment that begins later holds its seeds back until then.
    assert resolved.due == resolved.segment


def test_names_of_ours_stay_ours(site: Path) -> None:
    install(site, "one", keys.GROUP, whole="shop")
    assert key_resolver("whole")("http://h/item/7") == "http://h/item/7"


def test_what_cannot_be_loaded_is_refused_with_the_reason(site: Path) -> None:
    install(site, "one", keys.GROUP, gone="nothing", number="number", two="shop")
    install(site, "other", keys.GROUP, two="Nights")
    with pytest.raises(InvalidFrontierSetting, match=r"gone .* cannot be loaded: AttributeError"):
        key_resolver("gone")
    with pytest.raises(InvalidFrontierSetting, match=r"number .* cannot be called"):
        key_resolver("number")
    with pytest.raises(InvalidFrontierSetting, match="several packages call something two"):
        key_resolver("two")
    install(site, "third", segments.GROUP, broken="broken", one="shop")
    with pytest.raises(
        InvalidFrontierSetting, match="broken cannot be made: RuntimeError: no such night"
    ):
        segment_resolver("broken", ZoneInfo("UTC"))
