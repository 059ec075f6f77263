"""Outbounds of the seed's kind and items for them, as many as one likes (seed S2.19).

An outbound is for one kind of business in one province, as those of the seed are: the kinds follow
from how many outbounds there are. The same number always gives the same rules and items.
"""

from __future__ import annotations

import random
from typing import Any

SEED_SELECTORS = (
    "submitter == 'taskhub' and (company_name or credit_no or company_code)"
    " and int(task_src) in [1, 11, 5, 3, 22, 21, 7]",
    "task_type == '找新' and detail_url and province != 'AH' and task_src == 0",
    "task_type == '找新' and province in ['JS', 'TJ', 'ZJ'] and task_result == 1000"
    " and task_src == 0",
    "task_type == '小微企业补充行业'",
    "task_src in [3] and not detail_url and data_type and task_params['province'] == 'GD'",
)
PROVINCES = (
    "AH", "BJ", "CQ", "FJ", "GD", "GS", "GX", "GZ", "HA", "HB", "HE", "HI", "HL", "HN", "JL", "JS",
    "JX", "LN", "NM", "NX", "QH", "SC", "SD", "SH", "SN", "SX", "TJ", "XJ", "XZ", "YN", "ZJ",
)  # fmt: skip
BUSINESSES = ("工商", "税务", "法院", "招聘", "专利", "商标", "海关", "土地", "年报", "舆情")
# Of ten items, one fits no outbound.
UNROUTED = 10


def make_rules(outbounds: int) -> list[tuple[str, list[str]]]:
    """Outbounds as (name, five selectors)."""
    return [(f"outbound_{number}", _selectors(number)) for number in range(outbounds)]


def make_items(outbounds: int, items: int) -> list[dict[str, Any]]:
    """Items that each fit a selector of one of the outbounds, or none."""
    chance = random.Random(7)  # noqa: S311 - no secret
    return [_item(chance, chance.randrange(outbounds), number) for number in range(items)]


def complete_items(items: int) -> list[dict[str, Any]]:
    """Items with every key of ``SEED_SELECTORS``, which Python's ``eval`` cannot do without."""
    chance = random.Random(8)  # noqa: S311 - no secret
    return [
        {
            "submitter": chance.choice(("taskhub", "other")),
            "company_name": chance.choice(("", "宁乡县老粮仓镇楚江冻库")),
            "credit_no": chance.choice(("", "92430124MA4MGMN16U")),
            "company_code": "",
            "task_src": chance.choice((0, 1, 3, 4, "7")),
            "task_type": chance.choice(("找新", "小微企业补充行业", "破码")),
            "detail_url": chance.choice(("", "https://example.com/company/1")),
            "province": chance.choice(PROVINCES),
            "task_result": chance.choice((1000, 1001)),
            "data_type": "change",
            "task_params": {"province": chance.choice(("GD", "JS"))},
            "rt": True,
        }
        for _ in range(items)
    ]


def _place(outbound: int) -> tuple[str, list[str]]:
    """The business of an outbound and its province, with two that follow it."""
    round_, first = divmod(outbound, len(PROVINCES))
    business = BUSINESSES[round_ % len(BUSINESSES)] + "甲乙丙丁戊"[round_ // len(BUSINESSES) % 5]
    return business, [PROVINCES[(first + step) % len(PROVINCES)] for step in range(3)]


def _selectors(outbound: int) -> list[str]:
    business, (one, two, three) = _place(outbound)
    return [
        "submitter == 'taskhub' and (company_name or credit_no or company_code)"
        f" and int(task_src) in [1, 11, 5, 22, 21, 7] and data_type == '{business}'"
        f" and province == '{one}'",
        f"task_type == '{business}找新' and detail_url and province == '{one}' and task_src == 0",
        f"task_type == '{business}找新' and province in ['{one}', '{two}', '{three}']"
        " and task_result == 1000 and task_src == 0",
        f"task_type == '{business}小微企业补充行业{outbound}'",
        f"task_src in [3] and not detail_url and data_type == '{business}'"
        f" and task_params['province'] == '{one}'",
    ]


def _item(chance: random.Random, outbound: int, number: int) -> dict[str, Any]:
    business, (province, *_) = _place(outbound)
    item: dict[str, Any] = {
        "company_name": f"浙江温州龙湾农村商业银行股份有限公司第{number}支行",
        "credit_no": f"9133030077720{number:05}",
        "search_key": f"9133030077720{number:05}",
        "province": province,
        "data_type": "employee",
        "submitter": "spider",
        "task_type": "破码",
        "task_src": 0,
        "task_result": 1001,
        "spider_name": "tax_arrears_announcement",
        "http_code": 200,
        "metadata": {"period": "2020年第2期"},
        "task_params": {"province": province, "operate": "all"},
        "rt": number % 2 == 0,
    }
    kind = chance.randrange(5) if number % UNROUTED else None
    if kind == 0:
        item |= {"submitter": "taskhub", "task_src": "11", "data_type": business}
    elif kind == 1:
        item |= {"task_type": f"{business}找新", "detail_url": "https://example.com/company/1"}
    elif kind == 2:
        item |= {"task_type": f"{business}找新", "task_result": 1000}
    elif kind == 3:
        item |= {"task_type": f"{business}小微企业补充行业{outbound}"}
    elif kind == 4:
        item |= {"task_src": 3, "data_type": business}
    return item
