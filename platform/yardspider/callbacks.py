"""Call a spider author's callbacks, whatever form they have, and describe their errors."""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any

from yardspider.errors import BadInput
from yardspider.request import Callback, Request
from yardspider.seeds.seed import Seed
from yardspider.spider import Spider

_TEXT_CHARACTERS = 300


def find_callback(spider: Spider, callback: Callback | None) -> Any:
    """Return the function to call. Raises ``BadInput`` for a name the spider does not have."""
    if callback is None:
        return spider.parse
    if not isinstance(callback, str):
        return callback
    found = getattr(spider, callback, None)
    if not callable(found):
        raise BadInput(f"{type(spider).__name__} has no callback {callback!r}")
    return found


def ready_outputs(result: Any) -> Iterable[Any] | None:
    """Return what a callback returned, if it can be iterated at once; None if it must be
    awaited.
    """
    if result is None:
        return ()
    if isinstance(result, (Request, Seed, dict)):
        return (result,)
    if inspect.isawaitable(result) or isinstance(result, AsyncIterable):
        return None
    if isinstance(result, Iterable) and not isinstance(result, (str, bytes)):
        return result
    raise TypeError(f"returned {type(result).__name__}, not requests, seeds or dicts")


async def waited_outputs(result: Any) -> AsyncIterator[Any]:
    """Iterate over the outputs of a coroutine or an asynchronous generator."""
    while inspect.isawaitable(result):
        result = await result
    if isinstance(result, AsyncIterable):
        async for output in result:
            yield output
        return
    for output in ready_outputs(result) or ():
        yield output


def describe_error(what: str, error: BaseException, code_of: Any = None) -> str:
    """Return one line such as ``callback parse raised ValueError: no price (shop.py:12)``.

    Args:
        code_of: a function; the place is then the deepest line inside its own file, if any.
    """
    text = " ".join(str(error).split())[:_TEXT_CHARACTERS]
    raised = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{what} raised {raised}{_place(error, code_of)}"


def callback_name(callback: Any) -> str:
    """Return the name of a function such as ``parse``, or the class of a callable object."""
    return str(getattr(callback, "__name__", type(callback).__name__))


def _place(error: BaseException, code_of: Any) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    code = getattr(inspect.unwrap(code_of), "__code__", None) if code_of is not None else None
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    chosen = (own or list(frames))[-1:]
    return f" ({os.path.basename(chosen[0].filename)}:{chosen[0].lineno})" if chosen else ""
