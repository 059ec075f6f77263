"""A process that writes to a failure file until it has done so or is killed.

Arguments: folder, own name, how many batches, bytes of a file. A line on its output for each batch
that is written.
"""

from __future__ import annotations

import sys
from pathlib import Path

from apps.routing.engine.failures import FailureFile
from tests.routing.engine.failure_files import failed


def main(folder: str, name: str, batches: int, most_bytes: int) -> None:
    """Write batches of three lines that carry the process name."""
    file = FailureFile(
        "failed.jsonl",
        folders=[Path(folder)],
        compress=True,
        most_bytes=most_bytes,
        kept=10_000,
        lock_seconds=60,
    )
    for number in range(batches):
        file.write([failed(f"{name}-{number}-{part}", "省" * 200) for part in range(3)])
        print(number, flush=True)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
