"""Logging in, and what is kept of it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from apps.access.models import User
from apps.access.services import revoke_token
from tests.access.factories import make_token
from tests.yardcli.conftest import Crawlyard
from yardcli.profiles import checked_server

FILE = Path("xdg/crawlyard/profiles.json")


@pytest.mark.slow("1 s")
def test_a_login_is_kept_for_us_alone(
    crawlyard: Crawlyard, person: User, live_server: Any, tmp_path: Path
) -> None:
    token = make_token(person).secret
    said = crawlyard("login", live_server.url + "/", "--token-stdin", stdin=token + "\n")
    assert (said.code, said.out) == (0, "")
    assert "ada" in said.err
    assert token not in said.err
    kept = tmp_path / FILE
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert [each.name for each in kept.parent.iterdir()] == ["profiles.json"]
    me = crawlyard("whoami", "-o", "json")
    assert json.loads(me.out)["username"] == "ada"
    assert crawlyard("logout").code == 0
    assert token not in kept.read_text()
    assert crawlyard("whoami").code == 3


def test_a_token_that_does_not_work_is_not_kept(
    crawlyard: Crawlyard, person: User, live_server: Any, tmp_path: Path
) -> None:
    made = make_token(person)
    revoke_token(actor=person, token=made.token)
    said = crawlyard("login", live_server.url, "--token-stdin", stdin=made.secret)
    assert said.code == 3
    assert "token_revoked" in said.err
    assert "request id: " in said.err
    assert not (tmp_path / FILE).exists()


@pytest.mark.slow("2 s")
def test_profiles_beside_each_other(crawlyard: Crawlyard, person: User, live_server: Any) -> None:
    for name in ("one", "two"):
        token = make_token(person).secret
        login = ("login", live_server.url, "--token-stdin", "--profile", name)
        assert crawlyard(*login, stdin=token).code == 0
    assert crawlyard("profiles", "--use", "one").code == 0
    rows = json.loads(crawlyard("-o", "json", "profiles").out)
    assert [(row["profile"], row["current"]) for row in rows] == [("one", True), ("two", False)]
    assert crawlyard("whoami", "--profile", "two").code == 0
    missing = crawlyard("whoami", "--profile", "three")
    assert (missing.code, "one, two" in missing.err) == (2, True)


@pytest.mark.slow("2 s")
def test_a_kept_token_goes_to_its_own_server_only(
    crawlyard: Crawlyard, person: User, live_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawlyard("login", live_server.url, "--token-stdin", stdin=make_token(person).secret)
    monkeypatch.setenv("CRAWLYARD_URL", "http://127.0.0.1:9")
    said = crawlyard("whoami")
    assert said.code == 3
    assert "CRAWLYARD_TOKEN" in said.err
    monkeypatch.setenv("CRAWLYARD_URL", live_server.url)
    assert crawlyard("whoami").code == 0


@pytest.mark.slow("1 s")
def test_a_netrc_does_not_replace_the_token(
    entered: Crawlyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert entered("whoami").code == 0


@pytest.mark.slow("4 s")
@pytest.mark.parametrize("damage", ["{", "[]", '{"current": "a"}', '{"profiles": {"a": 1}}'])
def test_a_damaged_file_is_said(crawlyard: Crawlyard, tmp_path: Path, damage: str) -> None:
    kept = tmp_path / FILE
    kept.parent.mkdir(parents=True)
    kept.write_text(damage)
    kept.chmod(0o600)
    said = crawlyard("whoami")
    assert (said.code, "damaged" in said.err) == (2, True)


def test_a_file_that_others_may_read_is_warned_of(crawlyard: Crawlyard, tmp_path: Path) -> None:
    kept = tmp_path / FILE
    kept.parent.mkdir(parents=True)
    kept.write_text('{"current": "a", "profiles": {}}')
    kept.chmod(0o644)
    assert "others may read it" in crawlyard("profiles").err


@pytest.mark.slow("4 s")
@pytest.mark.parametrize(
    "address",
    ["yard.example.com", "ftp://yard", "http://", "http://me:secret@yard", "http://yard/?a=1"],
)
def test_what_is_no_server(crawlyard: Crawlyard, address: str) -> None:
    assert crawlyard("login", address, "--token-stdin", stdin="cy_a_b").code == 2


def test_addresses_people_paste() -> None:
    assert checked_server("https://yard/crawl/api/v1/") == "https://yard/crawl"
    assert checked_server(" http://yard:8000/admin ") == "http://yard:8000"
