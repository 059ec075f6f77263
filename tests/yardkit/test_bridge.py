"""From threads to the event loop and back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import Future

import pytest

from yardkit import bridge
from yardkit.bridge import in_daemon_thread, settled


async def test_a_call_in_a_thread() -> None:
    def name(word: str, *, end: str) -> tuple[str, bool]:
        return word + end, threading.current_thread().daemon

    assert await in_daemon_thread(name, "ya", end="rd") == ("yard", True)


async def test_a_thread_is_used_again_but_never_by_two() -> None:
    first = await in_daemon_thread(threading.get_ident)
    while not bridge._idle:  # it takes the next call a moment after the result of this one
        await asyncio.sleep(0)
    assert await in_daemon_thread(threading.get_ident) == first
    both = threading.Barrier(2, timeout=30)
    places = await asyncio.gather(in_daemon_thread(both.wait), in_daemon_thread(both.wait))
    assert sorted(places) == [0, 1]


async def test_idle_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "_IDLE_SECONDS", 0.01)
    monkeypatch.setattr(bridge, "_idle", [])
    thread = await in_daemon_thread(threading.current_thread)
    await asyncio.to_thread(thread.join, 30)
    assert not thread.is_alive()
    assert bridge._idle == []
    assert await in_daemon_thread(divmod, 7, 2) == (3, 1)


def test_a_forked_process_has_threads_of_its_own() -> None:
    program = """
import asyncio, os
from yardkit import bridge
call = bridge.in_daemon_thread
asyncio.run(call(divmod, 7, 2))
while not bridge._idle:
    pass
pid = os.fork()
quotient = asyncio.run(call(divmod, 7, 2))[0]
if not pid:
    os._exit(quotient)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


async def test_its_error_arrives() -> None:
    with pytest.raises(ZeroDivisionError):
        await in_daemon_thread(divmod, 1, 0)


async def test_cancelling_leaves_the_thread_alone() -> None:
    release, finished = threading.Event(), threading.Event()

    def work() -> None:
        release.wait(30)
        finished.set()

    task = asyncio.ensure_future(in_daemon_thread(work))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    assert finished.wait(30)


async def test_a_future_of_another_thread() -> None:
    source: Future[int] = Future()
    threading.Timer(0.01, source.set_result, [7]).start()
    assert await settled(source) == 7
    failed: Future[int] = Future()
    failed.set_exception(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await settled(failed)
    cancelled: Future[int] = Future()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await settled(cancelled)


async def test_cancelling_leaves_the_future_alone() -> None:
    source: Future[int] = Future()
    task = asyncio.ensure_future(settled(source))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    source.set_result(7)
    await asyncio.sleep(0.01)
    assert source.result() == 7


def test_a_loop_that_is_gone_is_no_error() -> None:
    source: Future[int] = Future()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await settled(source)

    asyncio.run(give_up())
    source.set_result(7)
