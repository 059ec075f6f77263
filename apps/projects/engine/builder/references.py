"""Validation of the images that a Dockerfile refers to: none may belong to another project.

The engine would use any local image. If the engine's parsing of a line is ambiguous, every possible
parsing is checked; references that are unknown before the build are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from apps.projects.engine.builder.control import BuildStepFailed
from apps.projects.engine.builder.plan import LAYER_LABEL
from apps.projects.engine.tags import IMAGE_PREFIX

_HOSTS: Final = ("docker.io", "index.docker.io")
# The engine also accepts a prefix of an ID, however short.
_ID = re.compile(r"[0-9a-f]{1,64}|sha256[:@].*|.*@(?!sha256:[0-9a-f]{64}$).*")
_ESCAPE_TOLD = re.compile(r"escape\s*+=", re.IGNORECASE)
_ESCAPE_SURE = re.compile(r"#[ \t]*escape[ \t]*=[ \t]*`[ \t]*", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::([-+])([^${}]*))?\})", re.ASCII)
_FROM_FLAG = re.compile(r"--from=(\S*)", re.IGNORECASE)
_LONGEST: Final = 1000
_QUOTING: Final = frozenset("'\"\\`")


class Base(NamedTuple):
    """FROM instruction with an image, in lines ``first`` to ``last`` of the parsed text.

    ``line``: line of the Dockerfile, for messages. ``stage``: text after the image.
    """

    line: int
    first: int
    last: int
    flags: tuple[str, ...]
    image: str
    stage: tuple[str, ...]

    @property
    def platform(self) -> str:
        """Platform as written; "" means the platform of the engine."""
        named = [flag for flag in self.flags if flag.lower().startswith("--platform=")]
        return named[-1].partition("=")[2] if named else ""


def check_references(dockerfile: bytes, image: str, arguments: Mapping[str, str]) -> list[Base]:
    """Return the base images of a Dockerfile. Raises ``BuildStepFailed`` with the line.

    ``image``: the repository that is built.
    """
    lines = dockerfile.decode("utf-8", "surrogateescape").splitlines()
    own = "/".join(image.split("/")[:2])
    numbers = _numbers(lines)
    readings = []
    for escape in _escapes(lines):
        # Engines differ in whether a doubled escape at the end of a line continues the line.
        for doubled in (True, False):
            reading = _DockerfileReading(own, arguments)
            for first, last, text in _instructions(lines, escape, doubled):
                reading.take(numbers[first], first, last, text)
            readings.append(reading.bases)
    for other in readings[1:]:
        if other != readings[0]:
            unsure = min(set(other) ^ set(readings[0]))
            raise BuildStepFailed("dockerfile_image_unknown", line=unsure.line, image=unsure.image)
    return readings[0]


def pinned(dockerfile: bytes, bases: Sequence[Base], ids: Mapping[Base, str]) -> bytes:
    """Return the Dockerfile with image IDs instead of names.

    This ensures that the build uses the checked images even if a name is reassigned.
    """
    lines = dockerfile.decode("utf-8", "surrogateescape").splitlines()
    for base in reversed(bases):
        if base in ids:
            words = ("FROM", *base.flags, ids[base], *base.stage)
            lines[base.first - 1 : base.last] = [" ".join(words)]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def check_triggers(triggers: Iterable[str], base: Base) -> None:
    """Check that the ONBUILD triggers of a base image do not copy from other images.

    Triggers can be in any image, and are not part of the checked Dockerfile. Raises
    ``BuildStepFailed``.
    """
    for trigger in triggers:
        unquoted = "".join(char for char in trigger if char not in _QUOTING)
        plain = unquoted.strip().lower()
        copies = plain.startswith(("copy", "add")) and "--from" in plain
        if copies or len(trigger.strip().splitlines()) > 1:
            raise BuildStepFailed(
                "dockerfile_trigger", line=base.line, image=base.image, trigger=trigger[:200]
            )


class _DockerfileReading:
    """Parser state of a Dockerfile: known stages and values of arguments."""

    def __init__(self, own: str, arguments: Mapping[str, str]) -> None:
        self._own = own
        self._arguments = arguments
        # None: the argument is declared, but its value is unknown.
        self._values: dict[str, str | None] = {}
        self._stages: set[str] = set()
        self._count = 0
        self._stage: str | None = None
        self.bases: list[Base] = []

    def take(self, line: int, first: int, last: int, text: str) -> None:
        """Process the next instruction. Raises ``BuildStepFailed``."""
        name, *words = text.split()
        # Triggers that the built image would pass on.
        while name.upper() == "ONBUILD" and words:
            name, *words = words
        if name.upper() == "FROM":
            self._from(line, first, last, words)
        elif name.upper() in ("COPY", "ADD"):
            self._copy(line, words)
        elif name.upper() == "ARG" and self._stage is None:
            self._declare(words)

    def _from(self, line: int, first: int, last: int, words: list[str]) -> None:
        flags = [word for word in words if word.startswith("--")]
        if any(_QUOTING & set(word) for word in flags):
            raise BuildStepFailed("dockerfile_image_unknown", line=line, image=" ".join(words))
        rest = words[len(flags) :]
        flags = [self._expanded(line, word) for word in flags]
        if self._stage is not None:
            self._stages.add(self._stage)
            self._count += 1
        if rest:
            image = self._expanded(line, rest[0])
            if image.lower() not in self._stages:
                self._judge(line, image)
                if image != "scratch":
                    base = Base(line, first, last, tuple(flags), image, tuple(rest[1:]))
                    self.bases.append(base)
        named = len(rest) == 3 and rest[1].upper() == "AS"
        self._stage = rest[2].lower() if named else ""

    def _copy(self, line: int, words: list[str]) -> None:
        for word in words:
            if not word.startswith("--"):
                break
            if _QUOTING & set(word):
                raise BuildStepFailed("dockerfile_image_unknown", line=line, image=word)
            flag = _FROM_FLAG.fullmatch(word)
            if flag is None:
                continue
            image = flag[1]
            if "$" in image:
                raise BuildStepFailed("dockerfile_image_unknown", line=line, image=image)
            known = image.lower() in self._stages
            numbered = re.fullmatch(r"[0-9]{1,4}", image) and int(image) < self._count
            if image and not known and not numbered:
                self._judge(line, image)

    def _declare(self, words: list[str]) -> None:
        for position, word in enumerate(words):
            name, equals, default = word.partition("=")
            if name in self._arguments:
                self._values[name] = self._arguments[name]
            elif equals:
                self._values[name] = self._default(default)
            if _QUOTING & set(name):
                # The splitting of the rest is ambiguous.
                self._values.update(dict.fromkeys(self._values, None))
                self._values.update({_bare(word): None for word in words[position:]})
                return

    def _default(self, text: str) -> str | None:
        quote = text[:1]
        if len(text) > 1 and quote in ("'", '"') and text.endswith(quote):
            text = text[1:-1]
            if quote == "'" and "$" in text:
                return None
        return None if _QUOTING & set(text) else self._substituted(text)

    def _expanded(self, line: int, text: str) -> str:
        expanded = None if _QUOTING & set(text) else self._substituted(text)
        if expanded is None:
            raise BuildStepFailed("dockerfile_image_unknown", line=line, image=text)
        return expanded

    def _substituted(self, text: str) -> str | None:
        pieces: list[str] = []
        end = 0
        for variable in _VARIABLE.finditer(text):
            value = self._value(variable)
            # Limit: nested values can grow tenfold with each line, and no image name is that long.
            if value is None or len(value) > _LONGEST:
                return None
            pieces += text[end : variable.start()], value
            end = variable.end()
        if "$" in "".join(pieces[::2]) + text[end:]:
            return None
        return "".join(pieces) + text[end:]

    def _value(self, found: re.Match[str]) -> str | None:
        name, kind, other = found[1] or found[2], found[3], found[4]
        if name in self._values and self._values[name] is None:
            return None
        value = self._values.get(name)
        if kind == "-":
            return value or other
        if kind == "+":
            return other if value else ""
        return value

    def _judge(self, line: int, image: str) -> None:
        name = image.lower()
        if _ID.fullmatch(name):
            raise BuildStepFailed("dockerfile_image_id", line=line, image=image)
        host, slash, rest = name.partition("/")
        if slash and host in _HOSTS:
            name = rest
        if name.startswith(f"{IMAGE_PREFIX}/") and not name.startswith(f"{self._own}/"):
            parts = re.split(r"[/:@]", name)
            if "/".join(parts[:2]) != self._own:
                raise BuildStepFailed("dockerfile_image_foreign", line=line, image=image)


def _bare(word: str) -> str:
    return "".join(char for char in word.partition("=")[0] if char not in _QUOTING)


def _escapes(lines: Sequence[str]) -> Iterator[str]:
    """Yield the possible line-continuation characters; two if the directive is ambiguous."""
    if lines and _ESCAPE_SURE.fullmatch(lines[0]):
        yield "`"
        return
    yield "\\"
    for line in lines:
        if line.strip() and not line.strip().startswith("#"):
            return
        # A single search for the last directive keeps the time linear.
        if _ESCAPE_TOLD.search(line.rpartition("`")[0]):
            yield "`"
            return


def _instructions(
    lines: Sequence[str], escape: str, doubled: bool
) -> Iterator[tuple[int, int, str]]:
    """Yield first line, last line and joined text of each instruction."""
    before = "" if doubled else f"(?<!{re.escape(escape)})"
    joined = re.compile(f"{before}{re.escape(escape)}[ \\t]*$")
    begun, text = 0, ""
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        begun = begun or number
        piece = joined.sub("", line)
        text += piece
        if piece != line:
            continue
        if text.strip():
            yield begun, number, text
        begun, text = 0, ""
    if text.strip():
        yield begun, len(lines), text


def _numbers(lines: Sequence[str]) -> list[int]:
    """Return the line number in the project's Dockerfile for each line that is not generated."""
    ours = f"LABEL {LAYER_LABEL}="
    return [0, *accumulate(0 if line.startswith(ours) else 1 for line in lines)]
