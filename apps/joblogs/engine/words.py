"""Tokenizer of log lines for stores without a suitable analyzer of their own.

A word is a run of letters and digits, case-folded and width-folded. Text without spaces between
words (Chinese, Japanese, Korean) is cut into pairs of characters, plus its last character, so that
substrings of any length are found; a single character is found by prefix. A pictograph is a word.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from operator import add
from typing import Final

# Chinese characters with 々 and 〇, kana with ー, Hangul.
_UNSPACED: Final = (
    "\u3005\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_PICTOGRAPHS: Final = "\u2600-\u27bf\U0001f000-\U0001faff"
_PIECES: Final = re.compile(rf"[{_UNSPACED}]+|[{_PICTOGRAPHS}]|[^\W_{_UNSPACED}{_PICTOGRAPHS}]+")
# Splits non-ASCII text into words and separators.
_BEYOND_ASCII: Final = re.compile(
    rf"[{_UNSPACED}]+|(?P<word>[{_PICTOGRAPHS}])"
    rf"|[^\w\x00-\x7f{_UNSPACED}{_PICTOGRAPHS}]+"
)
# Fast path: characters that folding does not change.
_HAN: Final = re.compile("[\u4e00-\u9fff]+")
_AROUND_HAN: Final = re.compile(f"({_HAN.pattern})")
# Programs repeat words, so the pairs of short runs are cached.
_SHORT: Final = 30
_REMEMBERED: Final = 4096
_IS_UNSPACED: Final = re.compile(rf"[{_UNSPACED}]")
# Limit of indexed words.
LONGEST_WORD: Final = 500
# Table for UTF-8 bytes: ASCII letters to lower case, other ASCII separators to spaces.
_WORD_BYTES: Final = bytes(
    code if code > 127 else ord(chr(code).lower()) if chr(code).isalnum() else 32
    for code in range(256)
)
# A quoted phrase (the closing quote is optional), or a run without spaces.
_TERMS: Final = re.compile(r'"([^"]*)"?|([^\s"]+)')


@dataclass(frozen=True, slots=True)
class Phrase:
    """Consecutive words; ``prefix``: the last one is the beginning of a word."""

    words: tuple[str, ...]
    prefix: bool = False


def words_of(text: str) -> list[str]:
    """Return all words of a text, in order."""
    words: list[str] = []
    for piece in _pieces(text):
        if _IS_UNSPACED.match(piece):
            words.extend(map(add, piece, piece[1:]))
            words.append(piece[-1])
        else:
            words.append(piece)
    return words


def spaced(text: str) -> str:
    """Return the text for an index that splits and lower-cases ASCII only (SQLite's FTS5).

    ASCII text is returned unchanged, other text as words separated by spaces.
    """
    if text.isascii():
        return text
    pieces = _AROUND_HAN.split(text)
    if not "".join(pieces[::2]).isascii():
        return " ".join(_beyond_ascii(text))
    pieces[1::2] = map(_pairs, pieces[1::2])
    return " ".join(pieces)


def joined(text: str) -> str:
    """Return all words separated by spaces, each cut to ``LONGEST_WORD`` characters."""
    if text.isascii():
        words = text.encode().translate(_WORD_BYTES).decode().split()
    else:
        words = _beyond_ascii(text)
    together = " ".join(words)
    if len(together) <= LONGEST_WORD:
        return together
    return " ".join([word[:LONGEST_WORD] for word in together.split()])


def _beyond_ascii(text: str) -> list[str]:
    """Return all words, with the pairs of a run in one string. The ASCII parts, usually most of the
    text, are split by a fast byte table.
    """
    if not unicodedata.is_normalized("NFKC", text):
        text = unicodedata.normalize("NFKC", text)
    words: list[str] = []
    plain = text.encode("utf-8", "surrogatepass").translate(_WORD_BYTES)
    for piece in plain.decode("utf-8", "surrogatepass").split():
        if piece.isascii():
            words.append(piece)
        elif _HAN.fullmatch(piece):
            words.append(_pairs(piece))
        else:
            words += _BEYOND_ASCII.sub(_set_apart, piece.casefold()).split()
    return words


def _pairs(run: str) -> str:
    return _short_pairs(run) if len(run) <= _SHORT else _cut(run)


def _cut(run: str) -> str:
    return " ".join([*map(add, run, run[1:]), run[-1]])


_short_pairs: Final = lru_cache(_REMEMBERED)(_cut)


def _set_apart(run_match: re.Match[str]) -> str:
    run = run_match[0]
    if _IS_UNSPACED.match(run):
        return f" {_pairs(run)} "
    return f" {run} " if run_match.lastgroup else " "


def phrases_of(text: str) -> list[Phrase]:
    """Split a query into phrases that must all occur; empty when it has no word."""
    phrases = (_phrase(quoted or plain) for quoted, plain in _TERMS.findall(text))
    return list(dict.fromkeys(phrase for phrase in phrases if phrase is not None))


def _pieces(text: str) -> list[str]:
    return _PIECES.findall(_folded(text))


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    if not unicodedata.is_normalized("NFKC", text):
        text = unicodedata.normalize("NFKC", text)
    return text.casefold()


def _phrase(term: str) -> Phrase | None:
    pieces = _pieces(term)
    if not pieces:
        return None
    words: list[str] = []
    for place, piece in enumerate(pieces):
        if not _IS_UNSPACED.match(piece):
            words.append(piece)
            continue
        words.extend(map(add, piece, piece[1:]))
        if place < len(pieces) - 1:
            words.append(piece[-1])
        elif len(piece) == 1:
            # The text may continue after the phrase, so its last character is a prefix.
            return Phrase((*words, piece), prefix=True)
    return Phrase(tuple(words))
