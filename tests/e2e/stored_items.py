"""Items of runs, as the platform has stored them."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.daemon_processes import Daemons

_CODE = """
import json
from apps.datasets.engine.item_types import ItemQuery
from apps.datasets.models import DatasetRun
from apps.datasets.queries.items import open_reader
rows = DatasetRun.objects.of_items().select_related("dataset")
row = rows.filter(run_number={run}).first()
found, after = [], ""
while row is not None:
    with open_reader(row.dataset, [{run}]) as reader:
        page = reader.page(ItemQuery(limit=1000, after=after))
    found += [item.data for item in page.items]
    after = page.next
    if not after:
        break
print("items " + json.dumps(found))
"""


def items_of_run(daemons: Daemons, run: int) -> list[dict[str, Any]]:
    """Return the items of a run, after what is in the queue has been stored."""
    daemons.manage("run_dataset_writer", "--once", "--name", "reader")
    output = daemons.manage("shell", "-v0", "-c", _CODE.format(run=run)).stdout
    (line,) = [line for line in output.splitlines() if line.startswith("items ")]
    found: list[dict[str, Any]] = json.loads(line.removeprefix("items "))
    return found
