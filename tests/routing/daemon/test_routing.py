"""Items go from a file to the outbound that the rules choose."""

from __future__ import annotations

import json

import pytest

from apps.routing.models import RoutedItem, ValuePage
from apps.routing.queries import reconcile_items
from tests.routing.daemon.routers import Router, inbound, outbound


@pytest.mark.covers("S2.1", "S2.3", "S2.33")
def test_the_first_outbound_in_order_gets_a_new_item(router: Router) -> None:
    router.use(
        [inbound("in.jsonl")],
        [
            outbound("captcha", "data_type == 'change'"),
            outbound("second", "data_type in ['change', 'list']"),
        ],
    )
    router.put(
        {"data_type": "change", "company_name": "宁乡县楚江冻库"},
        {"data_type": "list", "company_name": "b"},
        {"data_type": "else"},
    )
    router.until(lambda: sum(router.states().values()) == 3, "three items")
    router.run_dry()
    (first,) = router.target("captcha").messages
    assert first["company_name"] == "宁乡县楚江冻库"
    assert first["submitter"] == "taskhub"
    assert [each["company_name"] for each in router.target("second").messages] == ["b"]
    assert router.states() == {"dispatched": 2, "rejected": 1}
    found = RoutedItem.objects.get(outbound="captcha")
    assert str(found.task_uuid) == first["task_uuid"]
    assert [each.kind for each in found.story] == ["received", "matched", "dispatched"]
    assert reconcile_items(router.project.pk).holds


def test_the_log_of_a_spider_is_written_once_without_the_priority_of_a_hub(router: Router) -> None:
    router.use([inbound("in.jsonl")], [outbound("all", "a")])
    router.put({"a": "1", "submitter": "taskhub", "priority": 7})
    router.until(lambda: router.states() == {"dispatched": 1}, "the item is sent")

    kept = json.loads(RoutedItem.objects.get().item)
    assert kept == {"a": "1", "submitter": "taskhub"}
    assert ValuePage.objects.count() == 1
