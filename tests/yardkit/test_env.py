"""yardkit.env: every reader, and refusals that name the setting and never show a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from yardkit.env import Env, EnvError


def make_env(**values: str) -> Env:
    return Env(values)


def test_values_are_typed() -> None:
    env = make_env(
        NAME="yard",
        PORT="8000",
        RATE="2.5",
        DEBUG="Yes",
        QUIET="off",
        HOSTS=" a, b,,c ",
        FOLDER="/srv/data",
        BROKER_URL="amqp://guest:guest@127.0.0.1:5672/",
        TOKEN=" kept as it is ",
    )
    assert env.str("NAME") == "yard"
    assert env.int("PORT") == 8000
    assert env.float("RATE") == 2.5
    assert env.bool("DEBUG") is True
    assert env.bool("QUIET") is False
    assert env.list("HOSTS") == ["a", "b", "c"]
    assert env.path("FOLDER") == Path("/srv/data")
    assert env.url("BROKER_URL", schemes=("amqp", "sqlite")).startswith("amqp://")
    assert env.secret("TOKEN") == " kept as it is "


def test_defaults_are_returned_as_they_are() -> None:
    env = make_env(EMPTY="")
    assert env.str("EMPTY", "x") == "x"
    assert env.int("EMPTY", 3) == 3
    assert env.int("MISSING", None) is None
    assert env.bool("MISSING", False) is False
    assert env.list("MISSING", ["a"]) == ["a"]
    assert env.path("MISSING", "data") == Path("data")
    assert env.url("MISSING", "sqlite:///x") == "sqlite:///x"
    assert env.secret("MISSING", None) is None


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/yard")
    assert make_env(FOLDER="~/data").path("FOLDER") == Path("/home/yard/data")


@pytest.mark.parametrize(
    ("reader", "value", "words"),
    [
        ("int", "many", ["'many'", "whole number"]),
        ("int", "1_000", ["'1_000'"]),
        ("int", "9" * 400, ["whole number"]),
        ("int", "٣", ["whole number"]),
        ("float", "nan", ["'nan'", "no number"]),
        ("float", "inf", ["no number"]),
        ("bool", "perhaps", ["'perhaps'", "true or false"]),
        ("url", "localhost:5672", ["no URL"]),
        ("url", "amqp://host:port/", ["port"]),
        ("url", "amqp://h\tost/", ["control character"]),
        ("url", "amqp://host:0/", ["port 0"]),
    ],
)
def test_bad_values_are_refused(reader: str, value: str, words: list[str]) -> None:
    with pytest.raises(EnvError) as caught:
        getattr(make_env(SETTING=value), reader)("SETTING")
    text = str(caught.value)
    assert text.startswith("SETTING: ")
    assert caught.value.name == "SETTING"
    assert "\n" not in text
    assert len(text) < 300
    for word in words:
        assert word in text


def test_ranges_choices_and_schemes() -> None:
    env = make_env(PORT="70000", KIND="red", URL="ftp://x")
    with pytest.raises(EnvError, match=r"PORT: 70000 is too large; use 65535 or less"):
        env.int("PORT", minimum=1, maximum=65535)
    with pytest.raises(EnvError, match=r"PORT: 70000 is too small"):
        env.int("PORT", minimum=70001)
    with pytest.raises(EnvError, match=r"KIND: 'red' is none of its values; use blue or green"):
        env.str("KIND", choices=("blue", "green"))
    with pytest.raises(EnvError, match=r"URL: .*'ftp'.*amqp://\.\.\. or sqlite://\.\.\."):
        env.url("URL", schemes=("amqp", "sqlite"))


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(EnvError, match=r"PORT: it is not set; set PORT or PORT_FILE"):
        make_env().int("PORT")


def test_a_file_gives_the_value(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("pass word \n\n")
    env = make_env(TOKEN_FILE=str(file))
    assert env.secret("TOKEN") == "pass word "


def test_value_and_file_exclude_each_other(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("from file")
    with pytest.raises(EnvError, match=r"both TOKEN and TOKEN_FILE are set") as caught:
        make_env(TOKEN="from env", TOKEN_FILE=str(file)).secret("TOKEN")
    assert "from" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe\x00"])
def test_a_bad_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(EnvError) as caught:
        make_env(TOKEN_FILE=str(file)).secret("TOKEN")
    assert caught.value.name == "TOKEN_FILE"
    assert str(file)[:40] in str(caught.value)


@pytest.mark.parametrize(
    "url", ["gopher://user:hunter2@host/", "amqp://user:hunter2@host:port/", "user:hunter2@host"]
)
def test_passwords_never_show(url: str) -> None:
    with pytest.raises(EnvError) as caught:
        make_env(BROKER_URL=url).url("BROKER_URL", schemes=("amqp",))
    assert "hunter2" not in str(caught.value)


def test_what_was_asked_for_is_listed() -> None:
    env = make_env(PORT="1")
    env.int("PORT", 8000)
    env.secret("TOKEN", "default secret")
    assert env.settings["PORT"].given
    assert env.settings["PORT"].default == 8000
    assert env.settings["TOKEN"].secret
    assert "default secret" not in repr(env.settings)


def test_a_whole_line_names_its_setting() -> None:
    error = EnvError("DATABASE_URL: not understood")
    assert str(error) == "DATABASE_URL: not understood"
    assert error.name == "DATABASE_URL"
