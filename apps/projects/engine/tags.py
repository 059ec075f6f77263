"""Parsing of tags into release, name and version, and names of images.

    read_tag("{release}/{name}/{version}", "prod/news/1.2") == TagReading("prod", "news", "1.2")

An ambiguous tag is rejected.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from apps.projects.engine.refs import TagRefused, check_tag

NAMES: Final = ("release", "name", "version")
SEPARATORS: Final = "/-_"
MAX_PART: Final = 100
MAX_TEMPLATE: Final = 100
COLON: Final = ":"

IMAGE_PREFIX: Final = "crawlyard"
MAX_IMAGE_TAG: Final = 128
_DIGEST_CHARACTERS: Final = 10
_LIKE_A_HASH = re.compile(r".*-x[0-9a-f]{10}", re.DOTALL)

_PIECE = re.compile(r"\{([^{}]*)\}|([^{}]+)|([{}])")
_NAME_PART = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
IMAGE_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
IMAGE_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class TemplateRefused(TagRefused):
    """The template is invalid."""


@dataclass(frozen=True, slots=True)
class TagReading:
    """Parts of a tag; ``release`` and ``name`` are "" if the template does not contain them."""

    release: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Template:
    """Parsed template; ``separators[i]`` is between ``names[i]`` and ``names[i + 1]``."""

    names: tuple[str, ...]
    separators: tuple[str, ...]

    def __str__(self) -> str:
        text = f"{{{self.names[0]}}}"
        for separator, name in zip(self.separators, self.names[1:], strict=True):
            text += f"{separator}{{{name}}}"
        return text


SEED_TEMPLATE: Final = Template(NAMES, (COLON, COLON))


def parse_template(text: str) -> Template:
    """Parse a template such as ``{release}/{name}/{version}``. Raises ``TemplateRefused``.

    Two names are separated by exactly one of ``/ - _``. ``{version}`` is required, each name may
    occur once, and names are case-insensitive.
    """
    if len(text) > MAX_TEMPLATE:
        raise TemplateRefused("template_too_long", limit=MAX_TEMPLATE)
    names: list[str] = []
    separators: list[str] = []
    wants_name = True
    for field, between, brace in (match.groups() for match in _PIECE.finditer(text)):
        if brace:
            raise TemplateRefused("template_brace")
        if field is not None:
            if not wants_name:
                raise TemplateRefused("template_no_separator", name=field)
            names.append(_known(field, names))
        else:
            if wants_name or between not in SEPARATORS or len(between) != 1:
                raise _bad_separator(between)
            separators.append(between)
        wants_name = not wants_name
    if not names or wants_name:
        raise TemplateRefused("template_incomplete")
    if "version" not in names:
        raise TemplateRefused("template_without_version")
    return Template(tuple(names), tuple(separators))


def _known(field: str, names: list[str]) -> str:
    name = field.strip().lower()
    if name not in NAMES:
        raise TemplateRefused("template_unknown_name", name=field)
    if name in names:
        raise TemplateRefused("template_repeats", name=name)
    return name


def _bad_separator(between: str) -> TemplateRefused:
    code = "template_colon" if COLON in between else "template_separator"
    return TemplateRefused(code, text=between)


def read_tag(template: str, tag: str, *, colon_allowed: bool = False) -> TagReading:
    """Parse ``tag`` by ``template``. Raises ``TagRefused`` or a subclass.

    ``colon_allowed``: also accept ``release:name:version``, the form of the seed.
    """
    parsed = parse_template(template)
    check_tag(tag, colon_allowed=colon_allowed)
    if colon_allowed and COLON in tag:
        parsed = SEED_TEMPLATE
    readings = list(_readings(parsed, tag))
    if len(readings) > 1:
        first, second = (" | ".join(reading) for reading in readings[:2])
        raise TagRefused("tag_ambiguous", template=str(parsed), first=first, second=second)
    if not readings:
        raise TagRefused("tag_does_not_fit", tag=tag, template=str(parsed))
    values = dict(zip(parsed.names, readings[0], strict=True))
    return TagReading(**{name: values.get(name, "") for name in NAMES})


def write_tag(template: str, reading: TagReading) -> str:
    """Return the tag of ``reading`` by ``template``, which is parsed to the same parts again.

    Raises ``TagRefused`` if there is no such tag, as for a name that contains the separator.
    """
    parsed = parse_template(template)
    values: dict[str, str] = {name: getattr(reading, name) for name in NAMES}
    unsaid = [name for name in NAMES if values[name] and name not in parsed.names]
    if unsaid:
        raise TagRefused("tag_cannot_be_written", template=str(parsed), name=unsaid[0])
    text = values[parsed.names[0]]
    for separator, name in zip(parsed.separators, parsed.names[1:], strict=True):
        text += separator + values[name]
    if read_tag(template, text) != reading:
        raise TagRefused("tag_does_not_fit", tag=text, template=str(parsed))
    return text


def _readings(template: Template, tag: str) -> Iterator[tuple[str, ...]]:
    """Yield every way to split the tag; with at most two separators a few thousand."""
    yield from _cuts(tag, template.separators)


def _cuts(text: str, separators: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not separators:
        if _is_part(text):
            yield (text,)
        return
    for at, character in enumerate(text):
        if character == separators[0] and _is_part(text[:at]):
            for rest in _cuts(text[at + 1 :], separators[1:]):
                yield (text[:at], *rest)


def _is_part(text: str) -> bool:
    return 0 < len(text) <= MAX_PART and text[0].isalnum() and "/" not in text and COLON not in text


# --- image names ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ImageName:
    """Name of an image in the engine, ``repository:tag``."""

    repository: str
    tag: str

    def __str__(self) -> str:
        return f"{self.repository}:{self.tag}"


def image_name(project: str, reading: TagReading) -> ImageName:
    """Return the name of the image of ``reading``; ``project`` is the slug of the project.

    The name is valid for the engine and unique for each reading: part of a hash is appended if a
    character was replaced, or the border between parts is ambiguous.
    """
    identity = "\0".join((project, reading.release, reading.name, reading.version))
    digest = (
        "x" + hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARACTERS]
    )
    parts = [IMAGE_PREFIX, *(_name_part(part) for part in (project, reading.name) if part)]
    repository = "/".join(parts)
    tag = "-".join(_tag_part(part) for part in (reading.release, reading.version) if part)
    exact = (
        f"{IMAGE_PREFIX}/{project}" + (f"/{reading.name}" if reading.name else ""),
        "-".join(part for part in (reading.release, reading.version) if part),
    )
    # A release with a hyphen is ambiguous with a shorter release and a longer version; a version
    # alone is ambiguous with a release and a version.
    clear = "-" not in reading.release and bool(reading.release or "-" not in reading.version)
    clear = clear and not _LIKE_A_HASH.fullmatch(tag)
    if (repository, tag) != exact or not clear or not IMAGE_TAG.fullmatch(tag):
        tag = f"{tag[: MAX_IMAGE_TAG - len(digest) - 1]}-{digest}"
    return ImageName(repository, tag)


def _name_part(text: str) -> str:
    lower = "".join(char if char.isascii() and char.isalnum() else "-" for char in text.lower())
    if _NAME_PART.fullmatch(text):
        return text
    return re.sub("-+", "-", lower).strip("-")[:MAX_PART] or "x"


def _tag_part(text: str) -> str:
    allowed = "".join(
        char if char.isascii() and (char.isalnum() or char in "_.-") else "-" for char in text
    )
    return allowed.strip("-.") or "x"
