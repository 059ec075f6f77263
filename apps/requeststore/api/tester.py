"""REST API to test extraction rules and compare them with the active ones."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.requeststore.api.store_errors import biz_named
from apps.requeststore.errors import BadTest
from apps.requeststore.extraction import Extracted, ResponsePage
from apps.requeststore.models import SamplePage
from apps.requeststore.services.rule_tests import Trial, rule_named, try_rule
from apps.requeststore.services.sample_pages import MAX_BODY_BYTES

MOST_PAGES: Final = 50


class GivenPageSerializer(serializers.Serializer[Any]):
    """Page in the body of the call."""

    url = serializers.CharField(max_length=8000)
    status = serializers.IntegerField(min_value=100, max_value=599, default=200)
    headers = serializers.DictField(child=serializers.CharField(allow_blank=True), default=dict)
    body = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, max_length=MAX_BODY_BYTES
    )
    body_base64 = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=2 * MAX_BODY_BYTES,
        help_text=_("Body as Base64, instead of `body`."),
    )


class RuleTestSerializer(serializers.Serializer[Any]):
    """Rule to test, and the pages."""

    rule = serializers.CharField(
        required=False,
        allow_blank=True,
        default="",
        max_length=64,
        help_text=_("Name of the rule."),
    )
    definition = serializers.JSONField(
        required=False, help_text=_("Rule to test; the active rule by default.")
    )
    sample = serializers.IntegerField(
        required=False, min_value=1, max_value=2**63 - 1, help_text=_("ID of a sample page.")
    )
    page = GivenPageSerializer(required=False)


class RuleProblemSerializer(serializers.Serializer[Any]):
    """Problem of a rule."""

    place = serializers.CharField()
    code = serializers.CharField()
    text = serializers.CharField()
    offset = serializers.IntegerField(
        allow_null=True,
        help_text=_("Offset of the first invalid character in the expression, from 0."),
    )
    warning = serializers.BooleanField()


class PageProblemSerializer(serializers.Serializer[Any]):
    """Value that a page does not have as the rule demands. `record`: from 0; -1 is the page."""

    code = serializers.CharField()
    text = serializers.CharField()
    field = serializers.CharField()
    record = serializers.IntegerField()
    fatal = serializers.BooleanField()


class LinkToFollowSerializer(serializers.Serializer[Any]):
    """URL that would become a request."""

    url = serializers.CharField()
    rule = serializers.CharField()
    depth = serializers.IntegerField()


class ExtractedSerializer(serializers.Serializer[Any]):
    """Result of extraction; when it has failed, a fetcher would store nothing."""

    failed = serializers.BooleanField()
    reason = serializers.CharField()
    matched = serializers.IntegerField()
    records = serializers.ListField(child=serializers.DictField())
    follow = LinkToFollowSerializer(many=True)
    problems = PageProblemSerializer(many=True)


class ExpressionSerializer(serializers.Serializer[Any]):
    """Expression with the values it matched, before any step."""

    place = serializers.CharField()
    count = serializers.IntegerField()
    samples = serializers.ListField(child=serializers.CharField())
    problem = serializers.CharField()


class ValueChangeSerializer(serializers.Serializer[Any]):
    """Value that would change, as JSON; "" means no value."""

    record = serializers.IntegerField()
    field = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()


class TrialSerializer(serializers.Serializer[Any]):
    """Result on one page. `before`: by the active rule, null without one."""

    sample = serializers.IntegerField(allow_null=True)
    url = serializers.CharField()
    encoding = serializers.CharField()
    changed = serializers.BooleanField()
    after = ExtractedSerializer()
    before = ExtractedSerializer(allow_null=True)
    changes = ValueChangeSerializer(many=True)
    expressions = ExpressionSerializer(many=True)


class TestedSerializer(serializers.Serializer[Any]):
    """Results on all pages."""

    rule = serializers.CharField()
    refused = serializers.BooleanField(help_text=_("The rule is invalid; nothing was tested."))
    problems = RuleProblemSerializer(many=True)
    changed = serializers.IntegerField(help_text=_("Number of pages whose result would change."))
    left = serializers.IntegerField(help_text=_("Number of pages not tested before the timeout."))
    results = TrialSerializer(many=True)


class RuleTesterMixin:
    """Action to test rules, for the view set of bizzes."""

    def initial(self: Any, request: Request, *args: Any, **kwargs: Any) -> None:
        """Require only read access: a test changes nothing although it is a POST."""
        self.only_reads = self.action == "test_rule"
        super().initial(request, *args, **kwargs)  # type: ignore[misc]  # of the view

    @extend_schema(request=RuleTestSerializer, responses=TestedSerializer)
    @action(detail=True, methods=["post"], url_path="rules/test", url_name="rules-test")
    def test_rule(self: Any, request: Request, pk: str) -> Response:
        """Test a rule and compare it with the active one; nothing is stored or downloaded.

        Runs on a `page` of the body, on one `sample`, or on every sample page of the rule. Each
        page has 3 s of CPU time.
        """
        bound = biz_named(request.user, pk)
        serializer = RuleTestSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        rules = bound.settings.rules
        name = rule_named(rules, values["rule"])
        tested = try_rule(
            active=rules,
            name=name,
            definition=values.get("definition"),
            pages=pages_asked(bound.project_id, bound.name, name, values),
        )
        answer = {
            "rule": name,
            "refused": tested.refused,
            "problems": tested.problems,
            "changed": tested.changed,
            "left": tested.left,
            "results": [_shown(trial) for trial in tested.trials],
        }
        return Response(TestedSerializer(answer).data)


def pages_asked(
    project_id: int, biz: str, rule: str, values: dict[str, Any]
) -> list[ResponsePage | SamplePage]:
    """Return the page of the body, one sample page, or all sample pages of the rule."""
    if "page" in values:
        return [page_given(values["page"])]
    rows = SamplePage.objects.filter(project_id=project_id, biz=biz)
    if "sample" in values:
        sample = rows.filter(pk=values["sample"]).first()
        if sample is None:
            raise BadTest(fields={"sample": [_("This request group has no such sample page.")]})
        return [sample]
    return list(rows.filter(rule__in={rule, ""})[:MOST_PAGES])


def page_given(values: dict[str, Any]) -> ResponsePage:
    """Return the page of the body. Raises ``BadTest``."""
    body = values.get("body", "").encode("utf-8", "replace")
    if "body_base64" in values:
        try:
            body = base64.b64decode(values["body_base64"], validate=True)
        except (binascii.Error, ValueError):
            raise BadTest(fields={"body_base64": [_("This is not valid Base64.")]}) from None
    headers = list(values["headers"].items())
    return ResponsePage(url=values["url"], status=values["status"], headers=headers, body=body)


def _shown(trial: Trial) -> dict[str, Any]:
    return {
        "sample": trial.sample.pk if trial.sample is not None else None,
        "url": trial.page.url,
        "encoding": trial.explained.encoding,
        "changed": trial.changed,
        "after": _extracted(trial.after),
        "before": None if trial.before is None else _extracted(trial.before),
        "changes": trial.changes,
        "expressions": [msgspec.structs.asdict(matches) for matches in trial.explained.matched],
    }


def _extracted(found: Extracted) -> dict[str, Any]:
    return msgspec.structs.asdict(found) | {"reason": found.reason}
