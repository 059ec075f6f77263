"""Translated texts of validation codes of ``engine.validation`` and ``engine.request_parser``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from apps.configcenter.engine.kinds import DataProblem
from apps.requeststore.engine.validation import SettingsProblem

# By the code of a ``SettingsProblem``, whose values fill the placeholders.
FLAWS: Final[Mapping[str, str]] = {
    "after_ttl": _("longer than the time to expiry ({ttl} s)"),
    "bad_downloader": _("invalid for the downloader: {why}"),
    "bad_flag": _("a custom flag must be a whole number from {least} to {most}"),
    "bad_header": _("cannot be sent as a header"),
    "bad_name": _("use 1 to 32 characters a-z, 0-9 and _, starting with a letter"),
    "bad_records_name": _("use 1 to 63 letters, digits, dots, - and _"),
    "epoch_changed": _(
        "requests are stored under this epoch; after the change they are still found, but "
        "each look-up queries every split. Keep the epoch and add one whose since is in "
        "the future; it is {now} now"
    ),
    "epochs_count": _("use 1 to {most} epochs"),
    "epochs_not_rising": _("must be later than the previous epoch ({before})"),
    "first_epoch": _("the first epoch must begin at 0, so that every time has an epoch"),
    "idle_nodes": _("{nodes} nodes for {splits} splits: some nodes stay empty"),
    "node_twice": _("node {node} is listed twice: it gets twice as many splits"),
    "nodes_count": _("use 1 to {most} nodes"),
    "not_bool": _("true or false"),
    "not_choice": _("one of: {names}"),
    "not_direct": _("direct downloads need no agents; this has no effect"),
    "not_list": _("a list"),
    "not_mapping": _("a mapping of names to values"),
    "not_number": _("a number"),
    "not_text": _("a text; use quotes"),
    "not_whole": _("a whole number"),
    "not_within": _("a number from {least} to {most}"),
    "same_collection": _("uses the same collection as {other}"),
    "same_queue": _("uses the same queue as {other}"),
    "taken_too_short": _(
        "shorter than the download timeout ({timeout} s): slow pages would be downloaded twice"
    ),
    "too_long": _("at most {most} characters"),
    "too_many": _("at most {most}"),
    "unknown_field": _("unknown field; use one of: {names}"),
    "unknown_field_near": _("unknown field; did you mean {near}?"),
    "unknown_flag": _("must be {usual} or a custom flag of the request group"),
}

# Problems of requests, by ``engine.request_parser``.
REQUESTS: Final[Mapping[str, str]] = {
    "bad_body": _("not valid Base64"),
    "body_twice": _("specify either body or body_base64"),
    "no_such_rule": _("unknown extraction rule; use one of: {names}"),
    "not_request": _("must be a URL string or an object"),
    "not_serialisable": _("cannot be stored: {why}"),
    "required": _("required"),
    "too_large": _("exceeds the limit of {most} bytes"),
    "unknown_request_field": _("unknown field"),
}


def told(flaw: SettingsProblem) -> DataProblem:
    """Return a flaw as a problem of a configuration."""
    text = FLAWS.get(flaw.code) or REQUESTS.get(flaw.code)
    words = str(flaw.values.get("text", flaw.code)) if text is None else gettext(text)
    shown = words if text is None else words.format(**flaw.values)
    return DataProblem(flaw.place, flaw.code, shown, flaw.warning)
