"""Registry of outbound classes by the name that rules use, and validation of their parameters."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from apps.routing.engine import rules
from apps.routing.engine.files.placeholders import holds_any
from apps.routing.engine.outbounds.base import Outbound, Settings
from apps.routing.engine.outbounds.parameters import ParameterError, nearest, parameter_errors

GROUP: Final = "crawlyard.outbounds"
_HERE: Final = "apps.routing.engine.outbounds"
# Imported on demand, because each module imports the client library of its target.
_OWN: Final[dict[str, tuple[str, str]]] = {
    "redis_queue.RedisListOutbound": (f"{_HERE}.redis_queue", "RedisListOutbound"),
    "redis_queue.RedisPriorityOutbound": (f"{_HERE}.redis_queue", "RedisPriorityOutbound"),
    "rabbitmq.RabbitQueueOutbound": (f"{_HERE}.rabbitmq", "RabbitQueueOutbound"),
    "kafka.KafkaOutbound": (f"{_HERE}.kafka", "KafkaOutbound"),
    "http.HttpOutbound": (f"{_HERE}.http_post", "HttpOutbound"),
}
# Optional dependencies of classes: (module, extra of this package).
_EXTRAS: Final[dict[str, tuple[str, str]]] = {"kafka.KafkaOutbound": ("confluent_kafka", "kafka")}

_registered: dict[str, type[Outbound]] = {}
_lock = threading.Lock()


class UnknownOutbound(LookupError):
    """Raised when a class is unknown or cannot be loaded; ``code`` distinguishes the cases."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def register(name: str, cls: type[Outbound]) -> None:
    """Register a class that the engine must not import, as it uses another app. Thread-safe.

    Raises ``ValueError`` if another class has this name.
    """
    with _lock:
        if name in _OWN or _registered.get(name, cls) is not cls:
            raise ValueError(f"the outbound class {name} exists already")
        _registered[name] = cls


def names() -> list[str]:
    """Return all class names that a rule may use, sorted."""
    return sorted({*_OWN, *_registered, *(point.name for point in _points())})


def find(name: str) -> type[Outbound]:
    """Return the class of a name; built-in ones take precedence. Raises ``UnknownOutbound``."""
    if name in _OWN:
        module, attribute = _OWN[name]
        outbound_class: type[Outbound] = getattr(import_module(module), attribute)
        return outbound_class
    if name in _registered:
        return _registered[name]
    for point in _points():
        if point.name == name:
            return _load(point)
    near = nearest(name, names())
    raise UnknownOutbound("unknown_class", f"there is no outbound class {name!r}; {near}")


def parameters(name: str) -> frozenset[str]:
    """Return the keys of ``init`` that the class defines. Raises ``UnknownOutbound``."""
    return frozenset(find(name).parameters)


def build(rule: rules.Outbound, settings: Settings) -> Outbound:
    """Create the outbound of a rule.

    Raises ``UnknownOutbound``, ``ValueError`` or ``ImportError``.
    """
    return find(rule.cls)(rule, settings)


def check(rule: rules.Outbound, *, filled: bool = True) -> list[rules.Problem]:
    """Validate the class of an outbound and its parameters; no message contains a secret.

    With ``filled=False``, parameters that contain a placeholder are not validated yet.
    """
    try:
        cls = find(rule.cls)
    except UnknownOutbound as error:
        return [_problem(rule, error.code, "class", str(error))]
    problems = [
        _problem_of(rule, fault)
        for fault in parameter_errors(rule.init, cls.parameters)
        if filled or not holds_any(rule.init.get(fault.key.partition(".")[0]))
    ]
    module, extra = _EXTRAS.get(rule.cls, ("", ""))
    if module and not _is_installed(module):
        text = f"{rule.cls} needs the extra {extra}: pip install '.[{extra}]'"
        problems.append(_problem(rule, "missing_extra", "class", text))
    return problems


def _points() -> Iterator[EntryPoint]:
    yield from entry_points(group=GROUP)


def _load(point: EntryPoint) -> type[Outbound]:
    try:
        cls = point.load()
    except Exception as error:  # a plug-in may raise anything at import
        text = f"the outbound class {point.name!r} cannot be loaded from {point.value}: {error!r}"
        raise UnknownOutbound("broken_class", text) from error
    lacking = [
        name
        for name in ("parameters", "default_expects_result", "send", "depth", "close")
        if not hasattr(cls, name)
    ]
    if lacking:
        text = f"the outbound class {point.name!r} ({point.value}) has no {', '.join(lacking)}"
        raise UnknownOutbound("broken_class", text)
    outbound_class: type[Outbound] = cls
    return outbound_class


def _is_installed(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True


def _problem_of(rule: rules.Outbound, fault: ParameterError) -> rules.Problem:
    return _problem(rule, fault.code, f"init.{fault.key}", fault.text)


def _problem(rule: rules.Outbound, code: str, where: str, text: str) -> rules.Problem:
    return rules.Problem(rule.place or f"outbound {rule.name}.{where}", code, text)
