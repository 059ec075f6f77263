"""REST search over all visible logs."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.joblogs.api.serializers import SEARCH_CHARACTERS, LevelField, LogLineSerializer
from apps.joblogs.engine.fingerprints import FINGERPRINT
from apps.joblogs.engine.lines import BIGGEST_SEQ, owner_of
from apps.joblogs.queries import searched_projects
from apps.joblogs.services import search_lines
from apps.joblogs.stores.base import MOST_LINES, Search, StoredLine


class IdField(serializers.IntegerField):
    """ID in a query."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=1, max_value=BIGGEST_SEQ, required=False, **kwargs)


class LogSearchSerializer(serializers.Serializer[Any]):
    """Conditions of a search, combined by AND."""

    project = IdField()
    job = IdField()
    run = IdField()
    build = IdField()
    level = LevelField()
    since = serializers.DateTimeField(required=False, help_text="Lines from this time on.")
    until = serializers.DateTimeField(required=False, help_text="Lines before this time.")
    text = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=SEARCH_CHARACTERS,
        help_text="Words that must all be there; in double quotes as they stand together.",
    )
    contains = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=SEARCH_CHARACTERS,
        trim_whitespace=False,
        help_text="Exactly this somewhere in the line; only of one run or build.",
    )
    fingerprint = serializers.RegexField(
        FINGERPRINT, required=False, help_text="Errors of one kind."
    )
    cursor = serializers.CharField(
        required=False, allow_blank=True, max_length=200, help_text="`next` of the page before."
    )
    limit = serializers.IntegerField(
        required=False, min_value=1, max_value=MOST_LINES, default=100, help_text="Lines of a page."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Restrict ``contains`` to one log, and the search to at most one log."""
        if "run" in attrs and "build" in attrs:
            raise serializers.ValidationError(_("Use one of run and build."), code="two_logs")
        if attrs.get("contains") and "run" not in attrs and "build" not in attrs:
            text = _("`contains` needs a run or a build. To search all logs, use words in `text`.")
            raise serializers.ValidationError({"contains": text})
        return attrs


class FoundLineSerializer(LogLineSerializer):
    """Log line with its run or build and its permalink."""

    project = serializers.IntegerField()
    job = serializers.SerializerMethodField(help_text="Null for a line of a build.")
    run = serializers.SerializerMethodField()
    build = serializers.SerializerMethodField()
    page = serializers.SerializerMethodField(help_text="The line in its log, for a browser.")

    def get_job(self, line: StoredLine) -> int | None:
        """Return the job of the line's run."""
        return line.job or None

    def get_run(self, line: StoredLine) -> int | None:
        """Return the run that wrote the line."""
        kind, pk = owner_of(line.stream)
        return pk if kind == "run" else None

    def get_build(self, line: StoredLine) -> int | None:
        """Return the build that wrote the line."""
        kind, pk = owner_of(line.stream)
        return pk if kind == "build" else None

    def get_page(self, line: StoredLine) -> str:
        """Return the permalink as a path."""
        return f"{reverse('joblogs:log', args=[line.stream])}#{line.ref}"


class FoundSerializer(serializers.Serializer[Any]):
    """Matching lines, the newest first."""

    results = FoundLineSerializer(many=True)
    next = serializers.CharField(
        allow_null=True, help_text="Send it as `cursor` for older lines; null when there are none."
    )


class LogSearchView(ApiView):
    """Search the lines of all runs and builds that the caller may see."""

    @extend_schema(
        operation_id="logs_search",
        summary="Search all logs",
        parameters=[LogSearchSerializer],
        responses=FoundSerializer,
    )
    def get(self, request: Request) -> Response:
        """Return the newest matching lines of the projects that the caller may see."""
        query = LogSearchSerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        values = query.validated_data
        projects = searched_projects(self.person)
        if "project" in values:
            seen = projects is None or values["project"] in projects
            projects = {values["project"]} if seen else frozenset()
        streams = [f"{kind}:{values[kind]}" for kind in ("run", "build") if kind in values]
        search = Search(
            projects=projects,
            stream=streams[0] if streams else "",
            job=values.get("job"),
            levels=values.get("level", ()),
            since=values.get("since"),
            until=values.get("until"),
            text=values.get("text", ""),
            contains=values.get("contains", ""),
            fingerprint=values.get("fingerprint", ""),
        )
        result = search_lines(search, cursor=values.get("cursor", ""), limit=values["limit"])
        shown = {"results": result.lines, "next": result.next or None}
        return Response(FoundSerializer(shown).data)
