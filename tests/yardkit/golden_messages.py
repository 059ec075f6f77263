"""One message of each type with every field set, made from its definition alone.

``python -m tests.yardkit.golden_messages`` writes those of the present version that have no file
yet. A file that is there is what some process out there has sent: it is never written again.
"""

from __future__ import annotations

import enum
import types
import typing
from pathlib import Path
from typing import Any, Final

import msgspec

from yardkit import protocol
from yardkit.protocol import codec

FOLDER: Final = Path(__file__).with_name("golden")
KINDS: Final[dict[str, type[protocol.Message]]] = {
    kind.__struct_config__.tag: kind
    for kind in typing.get_args(codec.AnyMessage)
    if isinstance(kind.__struct_config__.tag, str)
}


def file_of(tag: str, version: int) -> Path:
    """Where the golden message is, or will be."""
    return FOLDER / f"{tag}.v{version}.msgpack"


def sample(kind: type[msgspec.Struct]) -> Any:
    """A message whose fields are all there and, as far as may be, not what they are by default."""
    hints = typing.get_type_hints(kind)
    given = {
        field.name: _value(hints[field.name], field.name)
        for field in msgspec.structs.fields(kind)
        if field.name != "v"
    }
    return kind(**given)


def _value(kind: Any, name: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _value(arguments[0], name)
    if origin in (typing.Union, types.UnionType):
        return _value(arguments[0], name)
    if origin is typing.Literal:
        return arguments[-1]
    if origin is tuple:
        inside = [each for each in arguments if each is not Ellipsis]
        return tuple(_value(each, f"{name}{n}") for n, each in enumerate(inside))
    if origin in (list, typing.Sequence):
        return [_value(arguments[0], name)]
    if origin is dict:
        return {_value(arguments[0], name): _value(arguments[1], name)}
    if kind is msgspec.Raw:
        return protocol.encode_request(protocol.DownloadRequest(url="https://x.example/"))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return list(kind)[-1]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return sample(kind)
    plain: dict[Any, Any] = {
        str: f"{name} 中",
        bytes: b"\x00\xff" + name.encode(),
        int: 1 + sum(name.encode()),
        float: 0.5 + len(name),
        bool: True,
        # Headers of results are text or bytes; version 1 has text.
        Any: f"{name} 中" if name.startswith("headers") else {name: [1, None, "x"]},
        type(None): None,
    }
    return plain[kind]


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for tag, kind in KINDS.items():
        file = file_of(tag, protocol.VERSION)
        if not file.exists():
            file.write_bytes(protocol.encode(sample(kind)))
