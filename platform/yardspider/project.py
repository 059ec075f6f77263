"""``yardspider describe``: finds the spiders of a folder and of installed projects.

Modules that define classes are imported, others are not: a script may start to work when it is
imported. No spider is instantiated and no crawl is run.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from yardspider.description import (
    EXIT_NOTHING,
    argument_content,
    argument_helps,
    description,
    import_module,
    own_output,
    spider_content,
    write_content,
)
from yardspider.settings import SpiderSettings
from yardspider.spider import Spider
from yardspider.spiders import SiteSpider

_MAX_MODULES: Final = 5000
_SKIPPED_FOLDERS: Final = frozenset({"tests", "test", "venv", "build", "dist", "node_modules"})
_SKIPPED_MODULES: Final = frozenset({"conftest", "setup", "__main__"})
_OWN: Final = frozenset({"yardspider", "crawlyard"})


def describe(modules: Sequence[str] = (), folder: Path | None = None) -> dict[str, Any]:
    """Return the description of a project.

    Args:
        modules: names of modules; else all modules of ``folder`` and those of installed
            distributions that require the SDK.
        folder: root of the project; else the current folder.
    """
    folder = (folder or Path.cwd()).resolve()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    spiders: dict[str, dict[str, Any]] = {}
    errors: list[dict[str, str]] = []
    for name in modules or [*_modules_of(folder, ""), *_installed()]:
        module, error = import_module(name)
        if module is None:
            errors.append({"module": name, "error": error})
            continue
        for spider in _spiders_in(vars(module), name):
            spiders[f"{name}:{spider.__name__}"] = _content(name, spider)
    if spiders:
        # Of use in every image, without code.
        site = f"{SiteSpider.__module__}:{SiteSpider.__name__}"
        spiders[site] = _content(SiteSpider.__module__, SiteSpider)
    return description(
        "yardspider",
        spiders=[spiders[name] for name in sorted(spiders)],
        settings={},
        errors=errors,
    )


def main(modules: Sequence[str]) -> int:
    """Print the description; return the exit status."""
    with own_output() as output:
        content = describe(modules)
        write_content(output, content)
    return 0 if content["spiders"] or content["errors"] else EXIT_NOTHING


def _content(module: str, spider: type[Spider]) -> dict[str, Any]:
    defaults = SpiderSettings()
    settings = {
        name: value
        for name in SpiderSettings.__struct_fields__
        if (value := getattr(spider.settings, name)) != getattr(defaults, name)
    }
    name = f"{module}:{spider.__name__}"
    return spider_content(name, spider, _arguments(spider), settings)


def _arguments(spider: type[Spider]) -> list[dict[str, Any]]:
    """Return the arguments that the class declares: a default, or a type if it is required."""
    helps = argument_helps(spider.__doc__, spider.__init__.__doc__)
    declared = spider.arguments if isinstance(spider.arguments, dict) else {}
    return [
        argument_content(
            str(name),
            annotation="" if not _is_type(value) else value,
            default=value,
            required=_is_type(value),
            helps=helps,
        )
        for name, value in declared.items()
    ]


def _is_type(value: Any) -> bool:
    return isinstance(value, type)


def _spiders_in(names: dict[str, Any], module: str) -> list[type[Spider]]:
    return [
        found
        for name, found in names.items()
        if inspect.isclass(found)
        and issubclass(found, Spider)
        and found.__module__ == module
        and not name.startswith("_")
        and not inspect.isabstract(found)
    ]


def _modules_of(folder: Path, prefix: str) -> Iterator[str]:
    """Yield the names of modules below a folder that define classes, sorted."""
    count = 0
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder).with_suffix("").parts
        if _is_skipped(parts) or not _defines_classes(file):
            continue
        count += 1
        if count > _MAX_MODULES:
            return
        if parts[-1] == "__init__":
            parts = parts[:-1]
        name = ".".join([*prefix.split("."), *parts] if prefix else parts)
        if name:
            yield name


def _is_skipped(parts: tuple[str, ...]) -> bool:
    if any(part in _SKIPPED_FOLDERS or not part.isidentifier() for part in parts[:-1]):
        return True
    name = parts[-1]
    return name in _SKIPPED_MODULES or name.startswith("test_") or not name.isidentifier()


def _defines_classes(file: Path) -> bool:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        # The import tells the error.
        return True
    return any(isinstance(node, ast.ClassDef) and node.bases for node in ast.walk(tree))


def _installed() -> Iterator[str]:
    """Yield the modules of installed distributions that require the SDK."""
    packages = metadata.packages_distributions()
    for distribution in metadata.distributions():
        requires = distribution.requires or []
        names = {re.split(r"[^A-Za-z0-9._-]", text)[0].lower() for text in requires}
        name = distribution.metadata["Name"]
        if not names & _OWN or name in _OWN:
            continue
        for package in sorted(top for top, owners in packages.items() if name in owners):
            spec = importlib.util.find_spec(package)
            folders = list(spec.submodule_search_locations or ()) if spec else []
            if folders:
                yield from _modules_of(Path(folders[0]), package)
            elif spec is not None:
                yield package
