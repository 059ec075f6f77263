"""Texts for the codes of ``engine.checking``, translated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from apps.configcenter.engine.kinds import DataProblem
from apps.requeststore.engine.validation import Flaw

# By the code of a ``Flaw``, whose values fill the names in braces.
FLAWS: Final[Mapping[str, str]] = {
    "after_ttl": _("later than requests expire ({ttl} s)"),
    "bad_downloader": _("the downloader cannot use this: {why}"),
    "bad_flag": _("a flag of one's own is a whole number from {least} to {most}"),
    "bad_header": _("this cannot be sent as a header"),
    "bad_name": _("a name has 1 to 32 of a-z, 0-9 and _, a letter first"),
    "bad_records_name": _("a name has 1 to 63 of letters, digits, dots, - and _"),
    "epoch_changed": _(
        "requests lie where this epoch put them; they will still be found, but each look-up asks "
        "every split. Better keep it, and add one whose since is a moment to come; it is {now} now"
    ),
    "epochs_count": _("there are 1 to {most} epochs"),
    "epochs_not_rising": _("an epoch begins after the one before it ({before})"),
    "first_epoch": _("the first epoch begins at 0, so that every time has one"),
    "idle_nodes": _("{nodes} nodes for {splits} splits: some of them will hold nothing"),
    "node_twice": _("the node {node} is there twice: it gets twice as many splits"),
    "nodes_count": _("an epoch has 1 to {most} nodes"),
    "not_bool": _("true or false"),
    "not_choice": _("one of: {names}"),
    "not_direct": _("direct downloads need no agents; this has no effect"),
    "not_list": _("a list"),
    "not_mapping": _("a mapping of names to values"),
    "not_number": _("a number"),
    "not_text": _("a text; use quotes"),
    "not_whole": _("a whole number"),
    "not_within": _("a number from {least} to {most}"),
    "same_collection": _("its requests would lie in the collection of {other}"),
    "same_queue": _("its requests would wait in the queue of {other}"),
    "taken_too_short": _(
        "shorter than a download may take ({timeout} s): slow pages would be fetched twice"
    ),
    "too_long": _("at most {most} characters"),
    "too_many": _("at most {most}"),
    "unknown_field": _("there is no such field; there are {names}"),
    "unknown_field_near": _("there is no such field; did you mean {near}?"),
    "unknown_flag": _("it is {usual} or one of the biz's own flags"),
}

# What ``engine.reading`` finds in a request.
REQUESTS: Final[Mapping[str, str]] = {
    "bad_body": _("this is no base64"),
    "body_twice": _("either body or body_base64"),
    "no_such_rule": _("the biz has no such extraction rule; there are {names}"),
    "not_request": _("a request is a text with its URL, or an object"),
    "not_serialisable": _("it cannot be stored: {why}"),
    "required": _("this is needed"),
    "too_large": _("it has more than {most} bytes, which is what can be stored"),
    "unknown_request_field": _("a request has no such field"),
}


def told(flaw: Flaw) -> DataProblem:
    """Return a flaw as a problem of a configuration."""
    text = FLAWS.get(flaw.code) or REQUESTS.get(flaw.code)
    words = str(flaw.values.get("text", flaw.code)) if text is None else gettext(text)
    shown = words if text is None else words.format(**flaw.values)
    return DataProblem(flaw.place, flaw.code, shown, flaw.warning)
