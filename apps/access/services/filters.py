"""Saved list filters."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlencode

from django.db import IntegrityError, transaction
from django.urls import Resolver404, resolve
from django.utils.translation import gettext as _

from apps.access.errors import BadFilter, FilterNameTaken, TooManyFilters
from apps.access.models import SavedFilter, User
from apps.access.services.audit import record

# Limit for each user and page.
MOST_FILTERS: Final = 50
MOST_NAME: Final = 60
MOST_QUERY: Final = 2_000
# Parameters of the position in a list, not of its content.
PLACES: Final = frozenset({"p", "page", "after", "before", "cursor", "all", "e", "_popup"})


def clean_query(query: str) -> str:
    """Remove pagination and empty parameters from a query string."""
    pairs = parse_qsl(query.removeprefix("?"), keep_blank_values=False, max_num_fields=100)
    return urlencode([(name, value) for name, value in pairs if name not in PLACES])


@transaction.atomic
def save_filter(*, user: User, path: str, name: str, query: str) -> SavedFilter:
    """Save ``query`` of the page ``path`` under ``name``.

    Raises ``BadFilter``, ``FilterNameTaken``, ``TooManyFilters``.
    """
    kept = SavedFilter(
        user=user, path=_checked_path(path), name=_checked_name(name), query=_checked_query(query)
    )
    if SavedFilter.objects.filter(user=user, path=kept.path).count() >= MOST_FILTERS:
        raise TooManyFilters
    try:
        with transaction.atomic():
            kept.save(force_insert=True)
    except IntegrityError as error:
        raise FilterNameTaken from error
    record(actor=user, action="access.save_filter", obj=kept, after=_shown(kept))
    return kept


@transaction.atomic
def rename_filter(*, user: User, saved: SavedFilter, name: str) -> SavedFilter:
    """Rename a filter. Raises ``BadFilter``, ``FilterNameTaken``."""
    before, checked = _shown(saved), _checked_name(name)
    if checked == saved.name:
        return saved
    try:
        with transaction.atomic():
            SavedFilter.objects.filter(pk=saved.pk, user=user).update(name=checked)
    except IntegrityError as error:
        raise FilterNameTaken from error
    saved.name = checked
    record(actor=user, action="access.rename_filter", obj=saved, before=before, after=_shown(saved))
    return saved


@transaction.atomic
def delete_filter(*, user: User, saved: SavedFilter) -> None:
    record(actor=user, action="access.delete_filter", obj=saved, before=_shown(saved))
    SavedFilter.objects.filter(pk=saved.pk, user=user).delete()


def _shown(saved: SavedFilter) -> dict[str, str]:
    return {"path": saved.path, "name": saved.name, "query": saved.query}


def _checked_path(path: str) -> str:
    """Require a page of this installation: a stored link must not lead elsewhere."""
    try:
        if not path.startswith("/") or path.startswith("//") or len(path) > 200:
            raise BadFilter
        resolve(path)
    except Resolver404 as error:
        raise BadFilter(_("There is no such page.")) from error
    return path


def _checked_name(name: str) -> str:
    words = " ".join(name.replace("\x00", "").split())
    if not words or len(words) > MOST_NAME:
        text = _("A name of 1 to %(most)d characters is needed.") % {"most": MOST_NAME}
        raise BadFilter(text, fields={"name": [text]})
    return words


def _checked_query(query: str) -> str:
    try:
        kept = clean_query(query)
    except ValueError as error:
        raise BadFilter from error
    if not kept or len(kept) > MOST_QUERY or "%00" in kept:
        raise BadFilter(_("There is no filter to save: filter the list first."))
    return kept
