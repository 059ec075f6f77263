"""``yardspider init``: a new project with a spider, its test and its Dockerfile."""

from __future__ import annotations

import keyword
import re
import sys
from importlib import metadata, resources
from pathlib import Path
from typing import Final

from yardspider.errors import BadInput

MOST_CHARACTERS: Final = 50
_NAME: Final = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
# A file of the package, and its place in the project.
FILES: Final = {
    "spider.py.txt": "{module}.py",
    "test_spider.py.txt": "tests/test_{module}.py",
    "pyproject.toml.txt": "pyproject.toml",
    "requirements.txt": "requirements.txt",
    "Dockerfile.txt": "Dockerfile",
    "dockerignore.txt": ".dockerignore",
    "gitignore.txt": ".gitignore",
    "README.md.txt": "README.md",
}
# Of an installation from sources, the folders of the SDK are no packages.
_TAKEN: Final = frozenset({"tests", "test", "conftest", "setup", "yardspider", "yardkit"})


def version() -> str:
    """Return the version of the installed package: the SDK, or the product that contains it."""
    for name in ("yardspider", "crawlyard"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "latest"


def make_project(name: str, folder: Path | None = None) -> list[Path]:
    """Write the project ``name`` into ``folder``, else ``./name``; return the files.

    Raises ``BadInput``: the name is invalid, a file exists already (nothing is written then), or
    the folder is not writable.
    """
    module = _module(name)
    folder = Path(name) if folder is None else folder
    words = {
        "@name@": name,
        "@module@": module,
        "@class@": "".join(part.capitalize() for part in re.split("[-_]", name)),
        "@version@": version(),
    }
    wanted = {folder / place.format(module=module): file for file, place in FILES.items()}
    _refuse_to_overwrite(folder, list(wanted))
    try:
        for path, file in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="\n") as target:
                target.write(_filled(file, words))
    except OSError as error:
        raise BadInput(f"cannot write into {folder}: {error.strerror or error}") from error
    return list(wanted)


def _module(name: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > MOST_CHARACTERS:
        raise BadInput(
            f"{name!r} cannot be the name of a project: small letters, digits, - and _ between "
            f"them, a letter first, at most {MOST_CHARACTERS} characters, such as book-shop"
        )
    module = name.replace("-", "_")
    taken = module in _TAKEN or module in sys.stdlib_module_names or keyword.iskeyword(module)
    if taken or keyword.issoftkeyword(module) or module in metadata.packages_distributions():
        raise BadInput(f"{name!r} would hide another module of this name; choose another one")
    return module


def _refuse_to_overwrite(folder: Path, wanted: list[Path]) -> None:
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is there already, and it is no folder")
    there = [str(path.relative_to(folder)) for path in wanted if path.exists() or path.is_symlink()]
    if there:
        raise BadInput(
            f"{folder} has {', '.join(there)} already; nothing was written: "
            "choose another folder with --dir"
        )


def _filled(file: str, words: dict[str, str]) -> str:
    text = (resources.files("yardspider") / "template" / file).read_text(encoding="utf-8")
    for word, value in words.items():
        text = text.replace(word, value)
    return text
