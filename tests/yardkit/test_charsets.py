"""Encodings: what agents write is what spiders read. How bodies are read: test_response.py."""

from __future__ import annotations

import codecs
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yardkit import charsets


@pytest.mark.parametrize(
    ("content_type", "encoding", "declared"),
    [
        ("", "gb18030", "text/plain; charset=gb18030"),
        ("text/html", "utf-8", "text/html; charset=utf-8"),
        ("text/html; charset=UTF8; x=1", "utf-8", "text/html; charset=UTF8; x=1"),
        # Browsers and spiders read GB2312 as its superset already.
        ("text/html; charset=GB2312", "gb18030", "text/html; charset=GB2312"),
        ('text/html; charset="latin-1"; x=1', "utf-8", 'text/html; charset="utf-8"; x=1'),
        ("text/html; charset=", "utf-8", "text/html; charset=; charset=utf-8"),
        ("text/html; charset=nonsense", "utf-8", "text/html; charset=utf-8"),
    ],
)
def test_an_encoding_is_declared(content_type: str, encoding: str, declared: str) -> None:
    assert charsets.declaring(content_type, encoding) == declared
    assert charsets.decode("é".encode(encoding), declared) == ("é", encoding)


@pytest.mark.parametrize(
    ("text", "encoding", "body", "written"),
    [
        ("中", "gb18030", "中".encode("gb18030"), "gb18030"),
        ("中", "cp1252", "中".encode(), "utf-8"),
        # In these two the first bytes would be taken for a byte-order mark.
        ("ï»¿", "cp1252", "ï»¿".encode(), "utf-8"),
        ("\ufeffa", "utf-8", codecs.BOM_UTF8 + "\ufeffa".encode(), "utf-8"),
        ("é", "no encoding", "é".encode(), "utf-8"),
    ],
)
def test_texts_are_written_in_the_encoding_they_had(
    text: str, encoding: str, body: bytes, written: str
) -> None:
    assert charsets.encode(text, encoding) == (body, written)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"x", f"text/html; charset={' ' * 8_000};"),
        (b"x", f"text/html; charset{' ' * 8_000}"),
        (b"<meta" * 270 + b"charset=" + b" " * 2_700 + b";", ""),
        (b"<meta" * 800, ""),
    ],
)
def test_a_declaration_full_of_blanks_holds_nobody_up(body: bytes, content_type: str) -> None:
    began = time.process_time()
    assert charsets.decode(body, content_type)[1] == "utf-8"
    assert time.process_time() - began < 2


def test_blanks_around_an_encoding_are_nothing() -> None:
    assert charsets.decode(b"\xe9", "text/html; charset = ' latin-1 '")[0] == "é"
    assert charsets.decode(b'<meta charset = " latin-1 ">\xe9')[0].endswith("é")


ENCODINGS = st.sampled_from(
    ["utf-8", "gb18030", "cp1252", "cp932", "big5hkscs", "cp949", "utf-16-le", "utf-16", "koi8-r",
     "iso2022_jp", "utf-32-be", "cp874", "iso8859-15", "shift_jis_2004", "hz", "utf-8-sig"]
)  # fmt: skip


@settings(deadline=None)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
    | st.text("ï»¿ÿþ\ufeff\ufffeaé中", max_size=6),
    encoding=ENCODINGS,
    content_type=st.sampled_from(["", "text/html", "text/html; charset=gbk", "a; charset=x"]),
)
def test_what_is_written_is_read_again(text: str, encoding: str, content_type: str) -> None:
    body, written = charsets.encode(text, encoding)
    assert charsets.decode(body, charsets.declaring(content_type, written))[0] == text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_marks_are_known(encoding: str) -> None:
    assert charsets.has_mark("\ufeffa".encode(encoding))
    assert not charsets.has_mark("a".encode(encoding))
