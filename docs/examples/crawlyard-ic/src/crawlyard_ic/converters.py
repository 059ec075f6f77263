"""What the logs of company register spiders need before the rules can read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from apps.routing.engine.converters.base import ConvertError
from apps.routing.engine.items import Item

EMPTY: tuple[Any, ...] = (None, "", [], {})
FOUND_BY_CAPTCHA = ("search_id", "change_id", "company_key", "company_name_digest")
FOUND_BY_SEARCH = ("detail_url", "company_key", "province")
SEARCH_KEYS = ("credit_no", "company_code", "company_name")


def read(item: Item, key: str, kind: type) -> Any:
    """The value of ``key``, or what its JSON text says; None for nothing."""
    value = item.get(key)
    if value in EMPTY:
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ConvertError("not_json", f"{key} holds a text that is no JSON") from None
    if not isinstance(value, kind):
        raise ConvertError("wrong_type", f"{key} holds no {kind.__name__}")
    return value


def names(value: Sequence[str], what: str) -> tuple[str, ...]:
    """A parameter that is a list of keys."""
    if isinstance(value, str) or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f"{what} is a list of keys")
    return tuple(value)


class ExtractTaskParams:
    """Lift ``task_params``; an empty value never replaces one that says something."""

    def convert(self, item: Item) -> Item:
        """The item with its parameters at the top level."""
        inside = read(item, "task_params", dict) or {}
        item.pop("task_params", None)
        for key, value in inside.items():
            if key != "task_result" and (value not in EMPTY or key not in item):
                item[key] = value
        return item


class CaptchaExtraItem:
    """Lift what a captcha spider has found on its way, so that the next one need not search."""

    def __init__(self, keys: Sequence[str] = FOUND_BY_CAPTCHA) -> None:
        self.keys = names(keys, "keys")

    def convert(self, item: Item) -> Item:
        """The item with what is in ``extra_item`` of these keys."""
        extra = read(item, "extra_item", dict)
        if extra is not None:
            item |= {key: extra[key] for key in self.keys if extra.get(key) not in EMPTY}
            del item["extra_item"]
        return item


class ChangeSearchKey:
    """Search by the next key: who is not found by number may be found by name."""

    def __init__(self, order: Sequence[str] = SEARCH_KEYS, when: Sequence[int | str] = ()) -> None:
        self.order = names(order, "order")
        if isinstance(when, str):
            raise ValueError("when is a list of values of task_result")
        self.when = {str(code) for code in when}

    def convert(self, item: Item) -> Item:
        """The item with another ``search_key``; with its own when there is no other."""
        keys = [item[key] for key in self.order if item.get(key) not in EMPTY]
        now = item.get("search_key")
        if now in EMPTY:
            if keys:
                item["search_key"] = keys[0]
        elif str(item.get("task_result")) in self.when:
            later = keys[keys.index(now) + 1 :] if now in keys else keys
            item["search_key"] = next((key for key in later if key != now), now)
        return item


class ParseSearchinfoItems:
    """Of the hits of a search, take the one that is the company asked for."""

    def __init__(self, keys: Sequence[str] = FOUND_BY_SEARCH) -> None:
        self.keys = names(keys, "keys")

    def convert(self, item: Item) -> Item:
        """The item with ``searchinfo_count``, and what the right hit says."""
        hits = read(item, "searchinfo_items", list)
        if hits is None:
            return item
        del item["searchinfo_items"]
        item["searchinfo_count"] = len(hits)
        for hit in hits:
            if isinstance(hit, dict) and self._is_it(hit, item):
                item |= {key: hit[key] for key in self.keys if hit.get(key) not in EMPTY}
                break
        return item

    def _is_it(self, hit: Item, item: Item) -> bool:
        known = [key for key in SEARCH_KEYS if item.get(key) not in EMPTY]
        return any(hit.get(key) == item[key] for key in known)


class ParseNoticeItem:
    """Make keys of a notice that was found."""

    def convert(self, item: Item) -> Item:
        """The item with ``notice_title``, ``notice_date`` and ``notice_url``."""
        notice = read(item, "notice_item", dict)
        if notice is not None:
            del item["notice_item"]
            for key in ("title", "date", "url"):
                if notice.get(key) not in EMPTY:
                    item[f"notice_{key}"] = notice[key]
        return item
