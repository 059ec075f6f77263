"""Connections of one process, and of those it forks."""

from __future__ import annotations

import os
import signal

from apps.runtime.engine.postgres_pool import ProcessPool


def test_a_process_forked_while_a_thread_opens_the_pool_is_not_stuck() -> None:
    address = "postgresql://u:p@127.0.0.1:9/none"
    pool = ProcessPool(address, application="t", options="", connections=1, wait_seconds=1.0)
    with pool._lock:
        child = os.fork()
        if child == 0:
            # Nothing of pytest may run here; the alarm ends it where it hangs.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(5)
            pool.close()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    pool.close()
