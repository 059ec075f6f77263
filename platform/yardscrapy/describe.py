"""``yardscrapy describe``: the spiders of a Scrapy project, their arguments and settings.

Arguments of a spider are the parameters of its ``__init__`` and ``from_crawler``, those of its
base classes as far as keyword arguments are passed on, and annotated class attributes. No spider is
instantiated and no crawl is run.
"""

from __future__ import annotations

import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from scrapy import Spider
from scrapy.settings import Settings
from scrapy.utils.conf import closest_scrapy_cfg
from scrapy.utils.misc import load_object
from scrapy.utils.project import get_project_settings

from yardspider.description import (
    EXIT_NOTHING,
    argument_content,
    argument_helps,
    description,
    import_module,
    own_output,
    plain,
    spider_content,
    write_content,
)

_SCRAPYS_LOADER: Final = "scrapy.spiderloader.SpiderLoader"
# Of settings.py, as ``scrapy.settings.SETTINGS_PRIORITIES`` has it.
_PROJECT_PRIORITY: Final = 20
_NO_ARGUMENTS: Final = frozenset({"self", "cls", "crawler", "name"})
# Of ``Spider``: attributes that are not arguments, also where a project annotates them anew.
_SPIDERS_OWN: Final = frozenset({*vars(Spider), *Spider.__annotations__, "allowed_domains"})


def describe() -> dict[str, Any] | None:
    """Return the description of the Scrapy project of the current folder; None if it has none."""
    if not (closest_scrapy_cfg() or os.environ.get("SCRAPY_SETTINGS_MODULE")):
        return None
    errors: list[dict[str, str]] = []
    try:
        settings = get_project_settings()
    except Exception as error:  # noqa: BLE001 - the project's settings may raise anything
        errors.append({"module": "settings", "error": f"{type(error).__name__}: {error}"})
        return description("scrapy", spiders=[], settings={}, errors=errors)
    # Scrapy's own commands put the project's folder on the path.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    spiders: dict[str, dict[str, Any]] = {}
    for module, spider in _spiders(settings, errors):
        if spider.name in spiders:
            text = f"another spider is named {spider.name!r}, too"
            errors.append({"module": module, "error": text})
        spiders[spider.name] = _content(spider)
    own = {
        name: settings[name] for name in settings if settings.getpriority(name) == _PROJECT_PRIORITY
    }
    return description(
        "scrapy",
        spiders=[spiders[name] for name in sorted(spiders)],
        settings=plain(own),
        errors=errors,
    )


def main(arguments: Sequence[str] = ()) -> int:
    """Print the description; return the exit status, ``EXIT_NOTHING`` without a project."""
    if arguments:
        sys.stderr.write("usage: yardscrapy describe\n")
        return 2
    with own_output() as output:
        content = describe()
        if content is None:
            sys.stderr.write("no scrapy.cfg in this folder or above it\n")
            return EXIT_NOTHING
        write_content(output, content)
    return 0


def _spiders(
    settings: Settings, errors: list[dict[str, str]]
) -> Iterator[tuple[str, type[Spider]]]:
    """Yield (module, class) of all spiders; a broken module hides only its own.

    Scrapy's loader gives up a whole package at the first broken module. A loader of the project's
    own decides by itself what it finds.
    """
    loader = settings.get("SPIDER_LOADER_CLASS")
    if loader != _SCRAPYS_LOADER:
        yield from _loaded(loader, settings, errors)
        return
    for package in settings.getlist("SPIDER_MODULES"):
        for name in _modules(package, errors):
            module, error = import_module(name)
            if module is None:
                errors.append({"module": name, "error": error})
                continue
            for found in vars(module).values():
                if (
                    inspect.isclass(found)
                    and issubclass(found, Spider)
                    and found.__module__ == name
                    and getattr(found, "name", None)
                ):
                    yield name, found


def _loaded(
    loader: Any, settings: Settings, errors: list[dict[str, str]]
) -> Iterator[tuple[str, type[Spider]]]:
    try:
        made = load_object(loader).from_settings(settings)
        for name in made.list():
            spider = made.load(name)
            yield spider.__module__, spider
    except Exception as error:  # noqa: BLE001 - the project's code may raise anything
        errors.append({"module": str(loader), "error": f"{type(error).__name__}: {error}"})


def _modules(package: str, errors: list[dict[str, str]]) -> Iterator[str]:
    """Yield a module and those below it; packages are imported on the way."""
    yield package
    module, _error = import_module(package)
    if module is None or not hasattr(module, "__path__"):
        return
    for found in pkgutil.iter_modules(module.__path__, f"{package}."):
        if found.ispkg:
            yield from _modules(found.name, errors)
        else:
            yield found.name


def _content(spider: type[Spider]) -> dict[str, Any]:
    custom = spider.custom_settings
    settings = dict(custom) if isinstance(custom, Mapping) else {}
    return spider_content(spider.name, spider, _arguments(spider), settings)


def _arguments(spider: type[Spider]) -> list[dict[str, Any]]:
    classes = [
        base for base in spider.__mro__ if issubclass(base, Spider) and not _is_scrapys(base)
    ]
    helps = argument_helps(
        *(text for base in classes for text in (base.__doc__, _docstring(base, "__init__")))
    )
    found: dict[str, dict[str, Any]] = {}
    for base in classes:
        for name, annotation in inspect.get_annotations(base).items():
            if name not in _SPIDERS_OWN and not name.startswith("_") and _is_instance(annotation):
                has_default = hasattr(spider, name)
                default = getattr(spider, name, None)
                found.setdefault(
                    name,
                    argument_content(
                        name,
                        annotation=annotation,
                        default=default,
                        required=not has_default,
                        helps=helps,
                    ),
                )
    for parameter in _parameters(classes):
        required = parameter.default is parameter.empty
        found[parameter.name] = argument_content(
            parameter.name,
            annotation="" if parameter.annotation is parameter.empty else parameter.annotation,
            default=None if required else parameter.default,
            required=required,
            helps=helps,
        )
    return list(found.values())


def _parameters(classes: Sequence[type[Spider]]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of constructors, of a base class only if ``**kwargs`` reach it."""
    for method in ("__init__", "from_crawler"):
        seen: set[str] = set()
        for base in classes:
            function = base.__dict__.get(method)
            if function is None:
                continue
            passes_on = False
            for parameter in _signature(function):
                if parameter.kind is parameter.VAR_KEYWORD:
                    passes_on = True
                elif (
                    parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
                    and parameter.name not in _NO_ARGUMENTS | seen
                ):
                    seen.add(parameter.name)
                    yield parameter
            if not passes_on:
                break


def _signature(function: Any) -> list[inspect.Parameter]:
    plain_function: Callable[..., Any] = getattr(function, "__func__", function)
    try:
        return list(inspect.signature(plain_function).parameters.values())
    except (TypeError, ValueError):
        return []


def _docstring(base: type, method: str) -> str | None:
    return getattr(base.__dict__.get(method), "__doc__", None)


def _is_scrapys(base: type) -> bool:
    return base.__module__.partition(".")[0] == "scrapy"


def _is_instance(annotation: Any) -> bool:
    return "ClassVar" not in str(annotation)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
