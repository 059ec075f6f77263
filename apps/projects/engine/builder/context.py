"""Build context: a reproducible archive of the files of a commit.

Files are copied from git's archive directly into the context and never unpacked on this machine, so
that links are mere archive entries. A link that leaves the context is rejected.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from apps.projects.engine.builder.control import BuildControl, BuildStepFailed
from apps.projects.engine.builder.dockerignore import Ignoring
from apps.projects.engine.builder.plan import LAYER_LABEL, BuildPlan
from apps.projects.engine.builder.recipe import scrapy_recipe
from apps.projects.engine.builder.references import Base, check_references, pinned
from apps.projects.engine.git import FetchedTag

DOCKERFILE: Final = ".crawlyard.Dockerfile"
IGNORE_FILE: Final = ".dockerignore"
MAX_DOCKERFILE_BYTES: Final = 1024**2
MAX_IGNORE_BYTES: Final = 256 * 1024
MAX_MEMBERS: Final = 200_000


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Archive at ``path``, with the Dockerfile at ``DOCKERFILE`` inside.

    ``lines``: line of the Dockerfile where each step begins, 0 for steps that were added here.
    ``dockerfile``: content of the Dockerfile; ``bases``: its base images. ``recipe``: whether the
    Dockerfile is that of Scrapy projects.
    """

    path: Path
    files: int
    size_bytes: int
    lines: tuple[int, ...] = ()
    dockerfile: bytes = b""
    bases: tuple[Base, ...] = ()
    recipe: bool = False


def make_context(fetched: FetchedTag, plan: BuildPlan, control: BuildControl) -> BuildContext:
    """Write the archive of a commit.

    Raises ``BuildStepFailed``, ``GitFailed``, ``BuildStopped``.
    """
    dockerfile, recipe = _dockerfile(fetched, plan)
    text, steps = labelled(dockerfile, plan.layer)
    # Parse the Dockerfile in the same way as the engine.
    bases = check_references(text, plan.image.repository, plan.arguments)
    ignore = fetched.read(IGNORE_FILE, max_bytes=MAX_IGNORE_BYTES)
    ignoring = Ignoring((ignore or b"").decode("utf-8", "replace"))
    path = plan.folder / "context.tar"
    writer = _ContextWriter(fetched.committed_at(), plan.max_image_bytes, control)
    with (
        tarfile.open(path, mode="w", format=tarfile.PAX_FORMAT) as out,
        fetched.archive(timeout=control.remaining, watch=control.check) as stream,
    ):
        for member, content in _members(stream, ignoring):
            writer.add(out, member, content)
        writer.text(out, DOCKERFILE, text)
        # Like the Docker client: the engine itself removes files that only the build uses.
        hidden = [DOCKERFILE] if ignore is not None else [DOCKERFILE, IGNORE_FILE]
        lines = (ignore or b"").rstrip(b"\n") + b"\n" + "\n".join(hidden).encode() + b"\n"
        writer.text(out, IGNORE_FILE, lines.lstrip(b"\n"))
    return BuildContext(path, writer.files, path.stat().st_size, steps, text, tuple(bases), recipe)


def pin_bases(context: BuildContext, ids: Mapping[Base, str]) -> None:
    """Replace the names of base images in the archive's Dockerfile by their IDs."""
    text = pinned(context.dockerfile, context.bases, ids)
    info = tarfile.TarInfo(DOCKERFILE)
    info.size, info.mode = len(text), 0o644
    # Of two archive members with the same name the engine uses the last.
    with tarfile.open(context.path, mode="a", format=tarfile.PAX_FORMAT) as out:
        info.mtime = out.getmember(DOCKERFILE).mtime
        out.addfile(info, io.BytesIO(text))


def _dockerfile(fetched: FetchedTag, plan: BuildPlan) -> tuple[bytes, bool]:
    """Return the Dockerfile, and whether it is the recipe of Scrapy projects."""
    if plan.script.strip():
        return plan.script.replace("\r\n", "\n").encode(), False
    path = posixpath.normpath(plan.dockerfile or "Dockerfile")
    if path.startswith(("/", "..")):
        raise BuildStepFailed("dockerfile_outside", path=plan.dockerfile)
    text = fetched.read(path, max_bytes=MAX_DOCKERFILE_BYTES)
    if text is not None:
        return text, False
    recipe = scrapy_recipe(fetched, plan.scrapy_base) if path == "Dockerfile" else None
    if recipe is None:
        raise BuildStepFailed("dockerfile_missing", path=path)
    return recipe, True


def labelled(dockerfile: bytes, layer: str) -> tuple[bytes, tuple[int, ...]]:
    """Return the Dockerfile with a label after each FROM, and the line of each step.

    The labels identify the layers of lost builds. The classic builder itself can label only the
    finished image.
    """
    lines = dockerfile.decode("utf-8", "surrogateescape").removeprefix("\ufeff").splitlines()
    escape = _escape_of(lines)
    result: list[str] = []
    steps: list[int] = []
    begun = ""
    for number, line in enumerate(lines, 1):
        result.append(line)
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if not begun:
            begun = text.split(maxsplit=1)[0].upper()
            steps.append(number)
        if text.endswith(escape):
            continue
        if begun == "FROM":
            result.append(f'LABEL {LAYER_LABEL}="{layer}"')
            steps.append(0)
        begun = ""
    return ("\n".join(result) + "\n").encode("utf-8", "surrogateescape"), tuple(steps)


def _escape_of(lines: list[str]) -> str:
    for line in lines:
        name, equals, value = line.strip().removeprefix("#").partition("=")
        if not line.strip().startswith("#") or not equals:
            break
        if name.strip().lower() == "escape" and value.strip() == "`":
            return "`"
    return "\\"


def _members(
    stream: IO[bytes], ignoring: Ignoring
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield the files of the context in git's order, which is sorted by name."""
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                name = member.name.rstrip("/")
                if name in (DOCKERFILE, IGNORE_FILE) or ignoring.leaves_out(name):
                    continue
                yield member, archive.extractfile(member) if member.isreg() else None
    except tarfile.TarError as error:
        raise BuildStepFailed("context_archive") from error


class _ContextWriter:
    """Writer of archive members, without metadata that differs between clones of a commit."""

    def __init__(self, at: int, max_bytes: int, control: BuildControl) -> None:
        self.files = 0
        self._at = at
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._check: Callable[[], None] = control.check

    def add(self, out: tarfile.TarFile, member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        """Add a file, a folder or a link."""
        name = posixpath.normpath(member.name)
        if name.startswith(("/", "../")) or name == "..":
            raise BuildStepFailed("context_name", path=member.name)
        info = tarfile.TarInfo(name)
        if member.isdir():
            info.type, info.mode = tarfile.DIRTYPE, 0o755
        elif member.issym():
            _refuse_way_out(name, member.linkname)
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, member.linkname, 0o777
        elif member.isreg():
            info.size, info.mode = member.size, 0o755 if member.mode & 0o100 else 0o644
        else:
            raise BuildStepFailed("context_name", path=member.name)
        self._write(out, info, content)

    def text(self, out: tarfile.TarFile, name: str, content: bytes) -> None:
        """Add a generated file."""
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o644
        self._write(out, info, io.BytesIO(content))

    def _write(
        self, out: tarfile.TarFile, info: tarfile.TarInfo, content: IO[bytes] | None
    ) -> None:
        self.files += 1
        self._left -= info.size + tarfile.BLOCKSIZE
        if self._left < 0 or self.files > MAX_MEMBERS:
            raise BuildStepFailed("context_too_large", limit=self._max_bytes, files=MAX_MEMBERS)
        info.mtime = self._at
        self._check()
        out.addfile(info, content)


def _refuse_way_out(name: str, target: str) -> None:
    # The target of an absolute link is a path in the image, not on this machine.
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    if not target.startswith("/") and (reached == ".." or reached.startswith("../")):
        raise BuildStepFailed("context_link", path=name, target=target)
