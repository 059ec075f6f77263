"""Input validators that ``manage.py check_input`` runs, by kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings

from apps.projects.engine.addresses import check_clone_url
from apps.projects.engine.refs import check_tag
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.reasons import text_of
from apps.routing.engine.selector import SelectorError, compile_selector
from yardkit.addresses import check_address, resolve_name


@dataclass(frozen=True, slots=True)
class InputCheck:
    """Result for one input: accepted, or the reason and the index of the first wrong character."""

    accepted: bool
    reason: str = ""
    position: int | None = None


def _address(value: str) -> InputCheck:
    verdict = check_address(value)
    return InputCheck(accepted=verdict.accepted, reason=verdict.reason)


def _tag(value: str) -> InputCheck:
    try:
        check_tag(value)
    except ProjectInputError as error:
        return InputCheck(accepted=False, reason=text_of(error))
    return InputCheck(accepted=True)


def _clone_url(value: str) -> InputCheck:
    try:
        check_clone_url(value, allowed_networks=settings.GIT_ALLOWED_NETWORKS, resolve=resolve_name)
    except ProjectInputError as error:
        return InputCheck(accepted=False, reason=text_of(error))
    return InputCheck(accepted=True)


def _selector(value: str) -> InputCheck:
    try:
        compile_selector(value)
    except SelectorError as error:
        return InputCheck(accepted=False, reason=error.text, position=error.offset)
    return InputCheck(accepted=True)


KINDS: dict[str, Callable[[str], InputCheck]] = {
    "addresses": _address,
    "clone_urls": _clone_url,
    "selectors": _selector,
    "tags": _tag,
}
