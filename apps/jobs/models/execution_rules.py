"""Validators of execution fields; messages name the error and its position, but no secrets."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.jobs.runners.spider_files import scrapy_environment
from yardkit.names import CONTROL, is_variable

MAX_WORDS: Final = 200
MAX_WORD_CHARACTERS: Final = 8 * 1024
MAX_VARIABLES: Final = 200
# The kernel allows 128 KiB per variable; all variables and arguments share another limit.
MAX_VALUE_CHARACTERS: Final = 32 * 1024
MAX_ENVIRONMENT_CHARACTERS: Final = 128 * 1024
MAX_LABELS: Final = 20
MAX_TAGS: Final = 20
MAX_TAG_CHARACTERS: Final = 40
MAX_NOTES_CHARACTERS: Final = 10_000
_SHOWN: Final = 60

_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/:-]{0,98}[A-Za-z0-9])?|")

RESERVED_PREFIX: Final = "CRAWLYARD_"
# Variables that the runner sets itself.
RESERVED: Final = frozenset({"BROKER_URL", "FAILPOINTS", "PATH", "PYTHONPATH"})


def shown(value: object) -> str:
    """Return an invalid value for a message, shortened and printable."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return CONTROL.sub("?", text[:_SHOWN]).encode("utf-8", "replace").decode()


def is_storable(text: str) -> bool:
    """Return whether every database can store this text: no NUL, no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text


def validate_line(text: str) -> None:
    """Accept a name that fits on one line."""
    if CONTROL.search(text) or text != text.strip() or not is_storable(text):
        raise ValidationError(
            _("Line breaks, control characters and surrounding spaces are not allowed.")
        )


def validate_finite(value: float) -> None:
    """Reject NaN and infinity."""
    if not math.isfinite(value):
        raise ValidationError(_("Enter a finite number."))


def validate_command(value: object) -> None:
    """Accept a list of strings: a program and its arguments."""
    if not isinstance(value, list):
        raise ValidationError(_('Enter a list of texts such as ["python", "crawl.py", "--all"].'))
    if len(value) > MAX_WORDS:
        raise ValidationError(
            _("%(count)d words are given, at most %(limit)d are allowed."),
            params={"limit": MAX_WORDS, "count": len(value)},
        )
    for number, word in enumerate(value, 1):
        problem = _word_problem(word)
        if problem is not None:
            raise ValidationError(
                _("Word %(number)d: %(problem)s"), params={"number": number, "problem": problem}
            )


def _word_problem(word: object) -> str | None:
    if not isinstance(word, str):
        return gettext("%(value)s is not a text.") % {"value": shown(word)}
    if not word:
        return gettext("it must not be empty.")
    if len(word) > MAX_WORD_CHARACTERS:
        return gettext("longer than %(limit)d characters.") % {"limit": MAX_WORD_CHARACTERS}
    if not is_storable(word):
        return gettext("a character that cannot be stored (\\u0000 or half of a pair).")
    return None


def validate_environment(value: object) -> None:
    """Accept an object of strings by variable name."""
    if not isinstance(value, dict):
        raise ValidationError(_('Enter an object of texts such as {"DEPTH": "3"}.'))
    if len(value) > MAX_VARIABLES:
        raise ValidationError(
            _("%(count)d variables are given, at most %(limit)d are allowed."),
            params={"limit": MAX_VARIABLES, "count": len(value)},
        )
    errors = [problem for name, text in value.items() if (problem := _variable_problem(name, text))]
    if errors:
        raise ValidationError(errors)
    size = sum(len(name) + len(text) for name, text in value.items())
    if size > MAX_ENVIRONMENT_CHARACTERS:
        raise ValidationError(
            _("All together longer than %(limit)d characters."),
            params={"limit": MAX_ENVIRONMENT_CHARACTERS},
        )


def _variable_problem(name: str, text: object) -> str | None:
    """Return the error of one variable; the message never contains the value."""
    named = {"name": shown(name), "limit": MAX_VALUE_CHARACTERS}
    if not is_variable(name, 200):
        return (
            gettext(
                "“%(name)s” cannot be the name of a variable: letters, digits and _ only, no digit "
                "first."
            )
            % named
        )
    if name in RESERVED or name.upper().startswith(RESERVED_PREFIX):
        return gettext("%(name)s is reserved: the host that runs the job sets it.") % named
    if not isinstance(text, str):
        return gettext("%(name)s: the value must be a text in quotes.") % named
    if len(text) > MAX_VALUE_CHARACTERS:
        return gettext("%(name)s: longer than %(limit)d characters.") % named
    if not is_storable(text):
        return (
            gettext("%(name)s: a character that cannot be stored (\\u0000 or half of a pair).")
            % named
        )
    return None


def validate_host_labels(value: object) -> None:
    """Accept an object of label names and values."""
    if not isinstance(value, dict):
        raise ValidationError(_('Enter an object of texts such as {"zone": "eu"}.'))
    if len(value) > MAX_LABELS:
        raise ValidationError(
            _("%(count)d labels are given, at most %(limit)d are allowed."),
            params={"limit": MAX_LABELS, "count": len(value)},
        )
    for name, text in value.items():
        if not _LABEL_NAME.fullmatch(name):
            raise ValidationError(
                _("“%(name)s” cannot be the name of a label: letters, digits and ._/- only."),
                params={"name": shown(name)},
            )
        if not isinstance(text, str) or not _LABEL_VALUE.fullmatch(text):
            raise ValidationError(
                _("%(name)s: “%(value)s” cannot be the value of a label."),
                params={"name": name, "value": shown(text)},
            )


def validate_tags(value: object) -> None:
    """Accept a list of distinct tags."""
    if not isinstance(value, list):
        raise ValidationError(_('Enter a list of words such as ["news", "daily"].'))
    if len(value) > MAX_TAGS:
        raise ValidationError(
            _("%(count)d tags are given, at most %(limit)d are allowed."),
            params={"limit": MAX_TAGS, "count": len(value)},
        )
    seen = set()
    for tag in value:
        if not _is_tag(tag):
            raise ValidationError(
                _(
                    "“%(tag)s” cannot be a tag: 1 to %(limit)d characters without spaces, commas "
                    "and quotes are needed."
                ),
                params={"tag": shown(tag), "limit": MAX_TAG_CHARACTERS},
            )
        if tag in seen:
            raise ValidationError(_("The tag %(tag)s occurs twice."), params={"tag": shown(tag)})
        seen.add(tag)


def _is_tag(tag: object) -> bool:
    return (
        isinstance(tag, str)
        and 1 <= len(tag) <= MAX_TAG_CHARACTERS
        and is_storable(tag)
        and not re.search(r"[\s,;\"'\\\x00-\x1f\x7f]", tag)
    )


def execution_contradictions(values: Mapping[str, Any]) -> dict[str, str]:
    """Return errors of the combination of image, spider, command and environment, by field.

    ``values``: ``image`` and ``frontier`` are objects or None, ``project`` is an object,
    ``secret_names`` is a set. Fields that are missing or invalid are not checked.
    """
    errors: dict[str, str] = {}
    image, project = values.get("image"), values.get("project")
    if image is not None and project is not None and image.project_id != project.pk:
        errors["image"] = gettext(
            "The image belongs to another project; choose one of %(project)s, or none."
        ) % {"project": project}
    frontier = values.get("frontier")
    if frontier is not None and project is not None and frontier.project_id != project.pk:
        errors["frontier"] = gettext(
            "The URL queue belongs to another project; choose one of %(project)s, or none."
        ) % {"project": project}
    if values.get("spider") and values.get("command"):
        errors["command"] = gettext("Give a spider or a command, not both.")
    whole = "spider" in values and "command" in values and "image" in values
    if whole and not (values["spider"] or values["command"] or image):
        errors["spider"] = gettext("Enter a spider or a command, or choose an image.")
    spider = str(values.get("spider") or "")
    if whole and spider and ":" not in spider and not image and not _has_scrapy_project():
        errors["spider"] = gettext(
            "Write it as module:Class, for example yardspider.spiders:SiteSpider. The name of a "
            "Scrapy spider needs an image, or a scrapy.cfg in SPIDERS_DIR."
        )
    both = sorted(set(values.get("environment") or ()) & set(values.get("secret_names") or ()))
    if both:
        errors["environment"] = gettext("%(name)s is already a secret.") % {"name": both[0]}
    return errors


def _has_scrapy_project() -> bool:
    return bool(scrapy_environment(Path(settings.SPIDERS_DIR)))
