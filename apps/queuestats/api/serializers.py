"""The totals of a run, and its failed requests, for REST."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.jobs.states import RunState
from apps.queuestats.models import FailedRequest, RunStats


class CenterCountersSerializer(serializers.Serializer[Any]):
    """Totals of all centers: ``received = dispatched + skipped + expired + refused + held``."""

    received = serializers.IntegerField(help_text="Attempts that reached a center.")
    dispatched = serializers.IntegerField(help_text="Sent on to an agent.")
    skipped = serializers.IntegerField(help_text="Returned to the run: no agent alive.")
    expired = serializers.IntegerField(help_text="Dropped: too old on arrival.")
    refused = serializers.IntegerField(help_text="Forbidden by the host's robots.txt.")
    held = serializers.IntegerField(help_text="Deferred to respect the limits of their host.")
    reported = serializers.BooleanField(help_text="Whether a center has reported.")
    balanced = serializers.BooleanField()


class RunCountersSerializer(serializers.Serializer[Any]):
    """Counters of a run.

    They satisfy: ``total = success + failed + left``, ``left = queued + in_flight``, and for
    attempts ``sent + retried = returned + skipped + timed_out + refused + cancelled + out``.
    """

    run = serializers.IntegerField()
    state = serializers.ChoiceField(choices=RunState.choices)
    reason = serializers.CharField(allow_blank=True)
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    total = serializers.IntegerField(help_text="Distinct requests.")
    left = serializers.IntegerField(help_text="total - success - failed.")
    success = serializers.IntegerField()
    failed = serializers.IntegerField()
    queued = serializers.IntegerField(help_text="Queued inside the run.")
    in_flight = serializers.IntegerField(help_text="Sent at least once, not finished.")
    undone = serializers.IntegerField(help_text="Pending when the run ended.")
    sent = serializers.IntegerField(help_text="First attempts.")
    retried = serializers.IntegerField(help_text="Attempts after the first.")
    returned = serializers.IntegerField(help_text="Attempts with an accepted response.")
    skipped = serializers.IntegerField(
        help_text="Not dispatched by the center; retried by the run."
    )
    timed_out = serializers.IntegerField(help_text="Attempts without a response in time.")
    refused = serializers.IntegerField(help_text="Forbidden by the host's robots.txt.")
    cancelled = serializers.IntegerField(help_text="In flight when the run ended.")
    out = serializers.IntegerField(help_text="Attempts in flight.")
    held = serializers.IntegerField(help_text="Attempts of out deferred by a center.")
    duplicates = serializers.IntegerField(help_text="Repeated responses.")
    filtered = serializers.IntegerField(help_text="Duplicates that the scheduler has dropped.")
    pages = serializers.IntegerField(help_text="HTML responses with status 200.")
    items = serializers.IntegerField()
    bytes_received = serializers.IntegerField()
    agents = serializers.DictField(
        child=serializers.IntegerField(), help_text="Responses by agent ID."
    )
    agent_failed = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Responses that the spider judged failed, by agent ID.",
    )
    agent_ms = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Total download time in milliseconds, by agent ID.",
    )
    mean_download_ms = serializers.FloatField(
        allow_null=True,
        help_text="Average of a download; null before the first, and with older SDKs.",
    )
    callback_ms = serializers.IntegerField(
        help_text="Total time of the spider's callbacks in milliseconds."
    )
    mean_callback_ms = serializers.FloatField(allow_null=True, help_text="Average of a page.")
    items_by_field = serializers.DictField(
        child=serializers.IntegerField(), help_text="Number of items with a value, by field."
    )
    requests_balanced = serializers.BooleanField()
    attempts_balanced = serializers.BooleanField()
    balanced = serializers.BooleanField(help_text="requests_balanced and attempts_balanced.")
    center = CenterCountersSerializer()
    final = serializers.BooleanField(help_text="No further reports will follow.")
    reported = serializers.BooleanField(help_text="Whether the run has reported.")


class FailedRequestSerializer(serializers.ModelSerializer[FailedRequest]):
    """A request that failed permanently. ``status`` is 0 without a response."""

    class Meta:
        model = FailedRequest
        fields = ["id", "url", "status", "reason", "at"]
        read_only_fields = fields


class RunStatsSerializer(serializers.ModelSerializer[RunStats]):
    """Statistics of a run's framework, by name."""

    job = serializers.IntegerField(source="run.job_id", help_text="ID of the job.")
    stats = serializers.DictField(help_text="Numbers, texts, booleans and nulls, by name.")

    class Meta:
        model = RunStats
        fields = ["id", "run", "job", "stats", "updated_at"]
        read_only_fields = fields
