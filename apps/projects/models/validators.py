"""Validators of a project's git, build and registry settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from apps.projects.engine.addresses import check_clone_url, check_registry_url, check_repository
from apps.projects.engine.refs import check_branch
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.engine.tags import parse_template
from apps.projects.reasons import text_of
from yardkit.names import is_variable

MAX_ARGUMENTS: Final = 100
MAX_ARGUMENT: Final = 4096
MIN_SECRET: Final = 16
_PATH_PART = re.compile(r"[\w.+@-][\w.+@ -]*")


def _checked(check: Callable[[], object]) -> None:
    try:
        check()
    except ProjectInputError as error:
        raise ValidationError(text_of(error), code=error.code) from error


def validate_git_url(value: str) -> None:
    """Accept a URL that may be cloned; names are resolved only when the URL is used."""
    networks = settings.GIT_ALLOWED_NETWORKS
    _checked(lambda: check_clone_url(value, allowed_networks=networks))


def validate_registry_url(value: str) -> None:
    """Accept the URL of a registry, without a path."""
    networks = settings.GIT_ALLOWED_NETWORKS
    _checked(lambda: check_registry_url(value, allowed_networks=networks))


def validate_repository(value: str) -> None:
    """Accept the name of a repository in a registry."""
    _checked(lambda: check_repository(value))


def validate_branch(value: str) -> None:
    """Accept a plain branch name."""
    _checked(lambda: check_branch(value))


def validate_tag_template(value: str) -> None:
    """Accept a tag template."""
    _checked(lambda: parse_template(value))


def validate_dockerfile(value: str) -> None:
    """Accept a path inside the repository."""
    parts = value.split("/")
    if value.startswith("/") or ".." in parts:
        raise ValidationError(_("The path must stay inside the repository."))
    if "\\" in value or not all(_PATH_PART.fullmatch(part) for part in parts):
        raise ValidationError(_("Enter the path of a file, such as docker/Dockerfile."))
    if value.startswith("-"):
        raise ValidationError(_("The path must not begin with a hyphen."))


def validate_build_arguments(value: object) -> None:
    """Accept an object of strings by names that are valid in a Dockerfile."""
    if not isinstance(value, dict):
        raise ValidationError(_('Enter a JSON object of texts such as {"PYTHON": "3.12"}.'))
    if len(value) > MAX_ARGUMENTS:
        raise ValidationError(
            _("At most %(limit)d build arguments."), params={"limit": MAX_ARGUMENTS}
        )
    for name, text in value.items():
        params = {"name": str(name)[:60], "limit": MAX_ARGUMENT}
        if not is_variable(name, 100):
            raise ValidationError(
                _("“%(name)s” is not a valid name of a build argument."), params=params
            )
        if not isinstance(text, str):
            raise ValidationError(_("The value of %(name)s must be a text."), params=params)
        if len(text) > MAX_ARGUMENT or "\0" in text:
            raise ValidationError(
                _("The value of %(name)s is longer than %(limit)d characters."), params=params
            )


def validate_username(value: str) -> None:
    """Accept a user name that is valid in an HTTP header and a prompt."""
    if ":" in value or not value.isprintable():
        raise ValidationError(_("A user name must not contain a colon or a line break."))


def validate_webhook_secret(value: object) -> None:
    """Accept a strong secret that is valid for every kind of sender."""
    text = str(value)
    if text and (len(text) < MIN_SECRET or not text.isascii() or not text.isprintable()):
        raise ValidationError(
            _(
                "Enter at least %(limit)d printable ASCII characters, or leave it empty to "
                "generate one."
            ),
            params={"limit": MIN_SECRET},
        )
