"""Child process of ``ExtractionProcess``: reads jobs until its input ends or a limit is reached."""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import Any

import msgspec

from apps.requeststore.extraction import compile_rules
from apps.requeststore.extraction.matches import explain
from apps.requeststore.extraction.problems import InvalidExtractionRules, PageProblem
from apps.requeststore.extraction.process_messages import (
    ExtractionJob,
    JobAnswer,
    read_frame,
    write_frame,
)
from apps.requeststore.extraction.rules import Extracted, RuleMap

_KEPT = 100


def main(cpu_seconds: float, memory_bytes: int) -> None:
    """Serve until the input ends. The kernel's CPU limit kills the process on a slow page."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Ctrl-C in a terminal reaches the parent as well, which then closes the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    # Unbuffered: each message is read by its length.
    source = os.fdopen(0, "rb", buffering=0)
    decoder = msgspec.msgpack.Decoder(ExtractionJob)
    maps: dict[str, RuleMap | InvalidExtractionRules] = {}
    while True:
        try:
            job = decoder.decode(read_frame(source))
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        if job.rules is not None:
            if len(maps) >= _KEPT:
                maps.clear()
            maps[job.key] = _compiled(job.rules)
        raw = msgspec.msgpack.encode(_answer(maps[job.key], job))
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_frame(sys.stdout.buffer, raw)


def _compiled(rules: dict[str, Any]) -> RuleMap | InvalidExtractionRules:
    try:
        return compile_rules(rules)
    except InvalidExtractionRules as error:
        return error


def _answer(rules: RuleMap | InvalidExtractionRules, job: ExtractionJob) -> JobAnswer:
    if isinstance(rules, InvalidExtractionRules):
        problem = PageProblem(code="bad_rules", text=str(rules)[:500], fatal=True)
        return JobAnswer(extracted=Extracted(problems=[problem], failed=True))
    if job.explain:
        return JobAnswer(explained=explain(rules, job.name, job.page))
    return JobAnswer(extracted=rules.extract(job.name, job.page))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
