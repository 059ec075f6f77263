"""Search, filters, order and columns of a list of items, all of which are in its address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from apps.datasets.engine.errors import BadItemQuery
from apps.datasets.engine.filters import NO_VALUE, FilterOp, ItemFilter, read_filter, written
from apps.datasets.engine.item_types import ItemQuery

PER_PAGE: Final = 50
MOST_FILTERS: Final = 20
# Value of ``sort`` for the items stored last.
NEWEST: Final = "-"
OPERATORS: Final = {
    FilterOp.CONTAINS.value: gettext_lazy("contains"),
    FilterOp.EQUALS.value: gettext_lazy("equals"),
    FilterOp.NOT_EQUALS.value: gettext_lazy("is not"),
    FilterOp.AT_LEAST.value: gettext_lazy("at least"),
    FilterOp.AT_MOST.value: gettext_lazy("at most"),
    FilterOp.PRESENT.value: gettext_lazy("has a value"),
    FilterOp.MISSING.value: gettext_lazy("is missing"),
}
# Parameters of the row that adds a filter; they become ``filter``.
_ADDING: Final = ("field", "op", "value")


class ItemsForm(forms.Form):
    """Text, order, columns, and one more filter."""

    text = forms.CharField(
        label=gettext_lazy("Text"),
        required=False,
        max_length=200,
        widget=UnfoldAdminTextInputWidget({"type": "search"}),
    )
    field = forms.ChoiceField(
        label=gettext_lazy("Field"), required=False, widget=UnfoldAdminSelectWidget
    )
    op = forms.ChoiceField(
        label=gettext_lazy("Condition"),
        required=False,
        choices=list(OPERATORS.items()),
        widget=UnfoldAdminSelectWidget,
    )
    value = forms.CharField(
        label=gettext_lazy("Value"),
        required=False,
        max_length=500,
        widget=UnfoldAdminTextInputWidget,
    )
    sort = forms.ChoiceField(
        label=gettext_lazy("Sort by"), required=False, widget=UnfoldAdminSelectWidget
    )
    show = forms.MultipleChoiceField(
        label=gettext_lazy("Columns"), required=False, widget=forms.CheckboxSelectMultiple
    )
    latest = forms.BooleanField(label=gettext_lazy("Latest of each key"), required=False)

    def __init__(self, data: Any, fields: Sequence[str], *, has_key: bool) -> None:
        super().__init__(data)
        names = [(name, name) for name in fields]
        self.fields["field"].choices = [("", "–"), *names]  # type: ignore[attr-defined]
        orders = [(name, f"{name} ↑") for name in fields]
        orders += [(f"-{name}", f"{name} ↓") for name in fields]
        self.fields["sort"].choices = [  # type: ignore[attr-defined]
            ("", _("Oldest first")),
            (NEWEST, _("Newest first")),
            *orders,
        ]
        self.fields["show"].choices = names  # type: ignore[attr-defined]
        if not has_key:
            del self.fields["latest"]


@dataclass(frozen=True, slots=True)
class Chip:
    """One filter as people read it, and the parameters of the page without it."""

    field: str
    operator: str
    value: str
    text: str
    without: str


class Asked:
    """What an address asks for. ``problem``: why a filter of it cannot be read."""

    def __init__(
        self, parameters: QueryDict, fields: Sequence[str], *, has_key: bool, newest: bool = False
    ) -> None:
        self.parameters = parameters.copy()
        self._newest = newest and not parameters.get("after")
        if self._newest:
            self.parameters.setdefault("sort", NEWEST)
        self.form = ItemsForm(self.parameters, fields, has_key=has_key)
        self.problem = "" if self.form.is_valid() else self._invalid()
        self.filters: list[ItemFilter] = []
        texts = self.parameters.getlist("filter")
        if len(texts) > MOST_FILTERS:
            self.problem = _("At most %(most)d filters.") % {"most": MOST_FILTERS}
        for text in texts[:MOST_FILTERS]:
            try:
                self.filters.append(read_filter(text))
            except BadItemQuery:
                self.problem = _("“%(filter)s” is not a filter.") % {"filter": text[:100]}

    def _invalid(self) -> str:
        errors = [str(error) for each in self.form.errors.values() for error in each]
        return " ".join([_("This filter cannot be used."), *errors])

    @property
    def is_narrowed(self) -> bool:
        """Return whether the list may leave items out."""
        values = self._values
        return bool(self.filters or values.get("text") or values.get("latest"))

    @property
    def _values(self) -> dict[str, Any]:
        # Only what is valid.
        return getattr(self.form, "cleaned_data", {})

    @property
    def shown(self) -> list[str]:
        """Return the chosen columns; [] for the default ones."""
        return list(self._values.get("show", ()))

    @property
    def sort(self) -> str:
        """Return the order."""
        return str(self._values.get("sort", ""))

    @property
    def latest(self) -> bool:
        """Return whether only the last item of each key is asked for."""
        return bool(self._values.get("latest"))

    def query(self) -> ItemQuery:
        """Return the query of a page. What cannot be used is left out."""
        # The items stored last and the last of each key are different questions.
        newest = self.sort == NEWEST and not self.latest
        return ItemQuery(
            filters=tuple(self.filters),
            text=self._values.get("text", ""),
            sort="" if self.sort == NEWEST else self.sort,
            latest=self.latest,
            newest=newest,
            limit=PER_PAGE,
            after="" if newest else self.parameters.get("after", ""),
        )

    def selection(self) -> ItemQuery:
        """Return the query of all items of the list, in no order."""
        query = self.query()
        return ItemQuery(filters=query.filters, text=query.text, latest=query.latest)

    def address_to_redirect(self) -> str | None:
        """Return the parameters with what a submitted form adds; None if nothing is to be moved.

        A form sends empty parameters, and the filter to add in three of them.
        """
        sent = self.parameters
        empty = [name for name in ("text", "sort") if sent.get(name) == ""]
        if self._newest and "sort" in empty:
            # Here, no order is another choice than the one that is made for people.
            empty.remove("sort")
        if not self.form.is_valid() or not (empty or any(name in sent for name in _ADDING)):
            return None
        changed = sent.copy()
        for name in (*empty, *_ADDING, "after"):
            changed.pop(name, None)
        values = self._values
        if values["field"]:
            op = FilterOp(values["op"] or FilterOp.CONTAINS)
            if op in NO_VALUE or values["value"]:
                value = None if op in NO_VALUE else values["value"]
                text = written(ItemFilter(values["field"], op, value))
                if text not in changed.getlist("filter"):
                    changed.appendlist("filter", text)
        return changed.urlencode()

    def chips(self) -> list[Chip]:
        """Return the filters, each with the address without it."""
        return [
            Chip(
                condition.field,
                str(OPERATORS[condition.op.value]),
                "" if condition.value is None else str(condition.value),
                written(condition),
                self.changed(filter=[written(each) for each in self.filters if each != condition]),
            )
            for condition in self.filters
        ]

    def changed(self, **values: str | Sequence[str]) -> str:
        """Return the parameters with others; an empty one is left out. The first page."""
        changed = self.parameters.copy()
        for name in ("after", *_ADDING):
            changed.pop(name, None)
        for name, value in values.items():
            chosen = [value] if isinstance(value, str) else list(value)
            changed.setlist(name, [each for each in chosen if each])
        return changed.urlencode()

    def with_filter(self, condition: ItemFilter) -> str:
        """Return the parameters with one more filter."""
        texts = [written(each) for each in self.filters]
        text = written(condition)
        return self.changed(filter=texts if text in texts else [*texts, text], values="")

    def sent_again(self) -> list[tuple[str, str]]:
        """Return parameters that the form sends besides its fields."""
        return [
            (name, value)
            for name in ("filter", "values")
            for value in self.parameters.getlist(name)
        ]

    def export(self) -> str:
        """Return the parameters of REST for the same items and columns."""
        query = self.query()
        pairs = [("filter", written(condition)) for condition in query.filters]
        pairs += [
            (name, value) for name, value in (("text", query.text), ("sort", query.sort)) if value
        ]
        if query.latest:
            pairs.append(("latest", "1"))
        if self.shown:
            pairs.append(("fields", ",".join(self.shown)))
        return urlencode(pairs)
