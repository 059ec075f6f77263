"""Explanation of an item over HTTP: what the rules would do with it. Read-only."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import partial
from typing import Any

from django.http import Http404
from django.utils import timezone
from django.utils.translation import gettext as _
from rest_framework import serializers, status
from rest_framework.response import Response

from apps.access.api.errors import error_body
from apps.configcenter.models import Configuration, ConfigVersion
from apps.routing.api.callers import track_of_configuration
from apps.routing.engine.dry_run import UnknownInbound, explain_item
from apps.routing.engine.files.data import from_data
from apps.routing.engine.submissions import IMPLICIT, web_entrances
from apps.routing.engine.track import InvalidRules, Track, compile_track
from apps.routing.errors import RulesBroken
from apps.routing.queries import find_known_item, track_of


def explained(
    project: int, track: Track, raw_or_item: bytes | str | Mapping[str, Any], inbound: str | None
) -> Response:
    """Return the explanation of an item.

    Answers 404 for an inbound that the rules do not have, with the most similar name.
    """
    names = dict.fromkeys(
        [*track.entrances, *(entrance.rule.name for entrance in web_entrances(track))]
    )
    if inbound is not None and inbound not in track.entrances and inbound == IMPLICIT.name in names:
        # The implicit inbound has no converters and no selectors.
        inbound = None

    try:
        explanation = explain_item(
            track,
            raw_or_item,
            inbound=inbound,
            known=partial(find_known_item, project),
            now=timezone.now(),
        )
    except UnknownInbound:
        return _no_inbound(inbound or "", list(names))
    return Response(explanation.as_dict())


def track_asked_for(configuration: Configuration, values: dict[str, Any]) -> Track:
    """Return the rules of a request: of a draft, of a saved version, by default the active ones.

    Raises ``NoActiveRules``, ``RulesBroken``, ``ValidationError`` for an invalid draft, and
    ``Http404`` for an unknown version.
    """
    if "draft" in values:
        return _track_of_draft(values["draft"])
    if "version" not in values:
        return track_of_configuration(configuration)
    saved = ConfigVersion.objects.filter(
        configuration=configuration, number=values["version"]
    ).values_list("pk", flat=True)
    version = saved.first()
    if version is None:
        raise Http404
    try:
        return track_of(version)
    except InvalidRules as error:
        raise RulesBroken(
            fields={"version": [str(problem) for problem in error.problems[:5]]}
        ) from error


def _track_of_draft(data: dict[str, Any]) -> Track:
    rules, problems = from_data(data)
    try:
        if rules is None:
            raise InvalidRules([problem for problem in problems if not problem.warning])
        return compile_track(rules)
    except InvalidRules as error:
        texts = [str(problem) for problem in error.problems[:20]]
        raise serializers.ValidationError({"draft": texts}) from error


def _no_inbound(name: str, names: list[str]) -> Response:
    near = difflib.get_close_matches(name[:200], names, n=1, cutoff=0.5)
    text = _("No inbound has this name.")
    if near:
        text = _("No inbound has this name; did you mean %(name)s?") % {"name": near[0]}
    return Response(error_body("inbound_not_found", text), status=status.HTTP_404_NOT_FOUND)
