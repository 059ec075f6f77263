"""*Extract again* over REST, on the pages and by the command: who may, and what is answered."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.requeststore.models import Reextraction
from apps.requeststore.services.reextractions import work_on_reextraction
from tests.access.factories import Api, enter, make_user
from tests.requeststore.kept_shop import NEW, Shop

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.covers("OB.7"),
    pytest.mark.slow("children that read pages"),
]


@pytest.fixture
def shop(settings: Any, tmp_path: Path, request_nodes: dict[str, str]) -> Shop:
    settings.OBJECTS_URL = f"file://{tmp_path}/objects"
    settings.DATA_DIR = tmp_path
    shop = Shop(3)
    shop.change(rules=NEW)
    return shop


def test_over_rest(shop: Shop) -> None:
    address = f"bizzes/{shop.project.pk}.news/extract-again"
    viewer = Api(make_user(roles={shop.project: Role.VIEWER}))
    assert viewer.post(address).status_code == 403
    operator = Api(make_user(roles={shop.project: Role.OPERATOR}))
    assert operator.post(address, {"ids": ["x"]}).status_code == 400
    answer = operator.post(address, {"ids": [str(number) for number in shop.ids[:2]]})
    assert answer.status_code == 202, answer.content
    row = answer.json()
    assert (row["state"], row["total"], row["seen"]) == ("running", 2, 0)
    assert operator.post(address).json()["code"] == "reextraction_running"
    assert viewer.post(f"reextractions/{row['id']}/cancel").status_code == 403
    work_on_reextraction(row["id"])
    ended = viewer.get(f"reextractions/{row['id']}").json()
    assert (ended["state"], ended["done"], ended["records"]) == ("done", 2, 4)
    assert operator.post(f"reextractions/{row['id']}/cancel").status_code == 409
    assert len(viewer.get("reextractions?biz=news&state=done").json()["results"]) == 1
    assert Api(make_user()).get(f"reextractions/{row['id']}").status_code == 404


def test_on_the_pages(shop: Shop) -> None:
    key = f"{shop.project.pk}.news"
    page = reverse("admin:requeststore_extract", args=[key])
    viewer = enter(make_user(roles={shop.project: Role.VIEWER}))
    html = viewer.get(page).content.decode()
    assert 'data-kept="kept">3<' in html
    assert '<form method="post" class=' not in html
    assert viewer.post(page).status_code == 403
    operator = enter(make_user(roles={shop.project: Role.OPERATOR}))
    listing = operator.get(reverse("admin:requeststore_requests", args=[key]), {"flag": "1"})
    boxes = re.findall(r'name="id" value="(\d+)"', listing.content.decode())
    assert sorted(map(int, boxes)) == sorted(shop.ids)
    assert 'name="flag" value="1"' in listing.content.decode()
    assert operator.post(page, {"selected": "1", "id": boxes[:1]})["Location"] == page
    row = Reextraction.objects.get()
    assert row.selection == {"ids": [int(boxes[0])]}
    live = operator.get(reverse("admin:requeststore_extract_live", args=[key])).content.decode()
    assert f'data-extraction="{row.pk}" data-state="running"' in live
    cancel = reverse("admin:requeststore_extract_cancel", args=[row.pk])
    assert cancel in live
    assert viewer.post(cancel).status_code == 403
    operator.post(cancel)
    row.refresh_from_db()
    assert row.state == "cancelled"
    operator.post(page, {"selected": "1"})
    assert Reextraction.objects.count() == 1
    operator.post(page, {"flag": "1"})
    assert Reextraction.objects.first().selection["flag"] == 1  # type: ignore[union-attr]  # there is one
    actions = AuditRecord.objects.filter(action__startswith="requeststore.")
    assert list(actions.order_by("pk").values_list("action", flat=True)) == [
        "requeststore.extract_again",
        "requeststore.cancel_reextraction",
        "requeststore.extract_again",
    ]


def test_by_the_command(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("requests", "extract", "news", "--follow", "--json")
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["state"], found["done"], found["records"]) == ("done", 3, 6)
    assert "3 requests: 3 done, 0 failed, 0 not kept" in err
    call_command("requests", "extract", "news", str(shop.ids[0]))
    assert "re-extraction" in capsys.readouterr().out
    call_command("requests", "extract", "news", "--cancel")
    with pytest.raises(CommandError, match="no re-extraction"):
        call_command("requests", "extract", "news", "--cancel")
