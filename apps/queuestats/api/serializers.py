"""The books of a run, and its failed requests, as REST shows them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.jobs.states import RunState
from apps.queuestats.models import FailedRequest


class RunBooksSerializer(serializers.Serializer[Any]):
    """``left = total - success - failed``; ``balanced``: ``left = queued + in_flight``."""

    run = serializers.IntegerField()
    state = serializers.ChoiceField(choices=RunState.choices)
    reason = serializers.CharField(allow_blank=True)
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    total = serializers.IntegerField(help_text="Distinct requests so far.")
    left = serializers.IntegerField(help_text="total - success - failed.")
    success = serializers.IntegerField()
    failed = serializers.IntegerField()
    queued = serializers.IntegerField(help_text="Waiting inside the run.")
    in_flight = serializers.IntegerField(help_text="Sent, and not yet answered.")
    sent = serializers.IntegerField(help_text="Retries are not counted.")
    returned = serializers.IntegerField()
    retried = serializers.IntegerField()
    skipped = serializers.IntegerField(help_text="Not dispatched by the center; the run retries.")
    duplicates = serializers.IntegerField(help_text="Requests left out because they were known.")
    pages = serializers.IntegerField(help_text="HTML answers with status 200.")
    items = serializers.IntegerField()
    bytes_received = serializers.IntegerField()
    agents = serializers.DictField(
        child=serializers.IntegerField(), help_text="Answers by agent id."
    )
    balanced = serializers.BooleanField()
    final = serializers.BooleanField(help_text="The run has said that nothing more will come.")
    reported = serializers.BooleanField(help_text="The run has said anything at all.")


class FailedRequestSerializer(serializers.ModelSerializer[FailedRequest]):
    """A request that failed for good. ``status`` is 0 where there was no answer."""

    class Meta:
        model = FailedRequest
        fields = ["id", "url", "status", "reason", "at"]
        read_only_fields = fields
