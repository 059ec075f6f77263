"""Loads a spider class from ``module:Class``."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from yardspider.callbacks import describe_error
from yardspider.errors import BadInput
from yardspider.spider import Spider


def load_spider(spec: str) -> type[Spider]:
    """Return the class ``Class`` of the module ``module``, also from the current folder.

    Raises ``BadInput``, one line: no such module, it fails to import, no such class, no spider.
    """
    module_name, separator, class_name = spec.partition(":")
    if not (separator and class_name and all(p.isidentifier() for p in module_name.split("."))):
        raise BadInput(f"{spec!r} names no spider; write module:Class, such as quotes:Quotes")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _import(module_name)
    found = getattr(module, class_name, None)
    if found is None:
        raise BadInput(f"module {module_name} has no class {class_name!r}; {_spiders_of(module)}")
    if not (isinstance(found, type) and issubclass(found, Spider)):
        raise BadInput(f"{spec} is no spider: it must be a class made from yardspider.Spider")
    return found


def make_spider(spider: type[Spider], arguments: Mapping[str, Any]) -> Spider:
    """Return an instance. Raises ``BadInput`` with what its constructor raised."""
    try:
        return spider(dict(arguments))
    except BadInput:
        raise
    except Exception as error:  # a spider's code may raise anything; reported in one line
        raise BadInput(
            describe_error(f"spider {spider.__name__}", error, spider.__init__)
        ) from error


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(missing + "."):
            raise BadInput(
                f"no module {missing!r} in {os.getcwd()} or among the packages"
            ) from None
        raise BadInput(f"module {name} needs {missing!r}, which is not installed") from error
    except SyntaxError as error:
        place = f"{os.path.basename(error.filename or name)}:{error.lineno}"
        raise BadInput(f"module {name} cannot be read: {error.msg} ({place})") from error
    except (Exception, SystemExit) as error:  # a module's code, reported in one line
        raise BadInput(describe_error(f"the import of module {name}", error)) from error


def _spiders_of(module: ModuleType) -> str:
    names = [
        name
        for name, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, Spider) and found.__module__ == module.__name__
    ]
    return f"its spiders: {', '.join(names)}" if names else "it has no spiders"
