"""The totals of a run, and its failed requests, as REST shows them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.jobs.states import RunState
from apps.queuestats.models import FailedRequest


class CenterCountersSerializer(serializers.Serializer[Any]):
    """``received = dispatched + skipped + expired + refused + held``, over all centers."""

    received = serializers.IntegerField(help_text="Attempts that reached a center.")
    dispatched = serializers.IntegerField(help_text="Sent on to an agent.")
    skipped = serializers.IntegerField(help_text="No living agent; the run was told.")
    expired = serializers.IntegerField(help_text="Too old when they were read, and dropped.")
    refused = serializers.IntegerField(help_text="Forbidden by the host's robots.txt.")
    held = serializers.IntegerField(help_text="Kept back so that their host is not hurried.")
    reported = serializers.BooleanField(help_text="A center has said anything at all.")
    balanced = serializers.BooleanField()


class RunCountersSerializer(serializers.Serializer[Any]):
    """Three equations that hold at every moment.

    Requests: ``total = success + failed + left`` and ``left = queued + in_flight``. Attempts at
    them: ``sent + retried = returned + skipped + timed_out + refused + cancelled + out``. The
    third one is the centers'.
    """

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
    in_flight = serializers.IntegerField(help_text="Sent at least once, and not ended.")
    undone = serializers.IntegerField(help_text="Left when the run ended: nobody makes them.")
    sent = serializers.IntegerField(help_text="First attempts; retries are not counted.")
    retried = serializers.IntegerField(help_text="All later attempts.")
    returned = serializers.IntegerField(help_text="Attempts whose answer was accepted.")
    skipped = serializers.IntegerField(help_text="Not dispatched by the center; the run retries.")
    timed_out = serializers.IntegerField(help_text="Given up without an answer in time.")
    refused = serializers.IntegerField(help_text="Forbidden by the host's robots.txt.")
    cancelled = serializers.IntegerField(help_text="Still out when the run ended.")
    out = serializers.IntegerField(help_text="On their way at this moment.")
    held = serializers.IntegerField(help_text="Those of out that wait at the center.")
    duplicates = serializers.IntegerField(help_text="Answers to requests that had one already.")
    pages = serializers.IntegerField(help_text="HTML answers with status 200.")
    items = serializers.IntegerField()
    bytes_received = serializers.IntegerField()
    agents = serializers.DictField(
        child=serializers.IntegerField(), help_text="Answers by agent id."
    )
    agent_failed = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Those of them that the spider did not take for a success.",
    )
    agent_ms = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Milliseconds that their downloads took together, by agent id.",
    )
    mean_download_ms = serializers.FloatField(
        allow_null=True, help_text="Of a download; null before the first, and of older spiders."
    )
    callback_ms = serializers.IntegerField(
        help_text="Milliseconds that the spider's callbacks took together."
    )
    mean_callback_ms = serializers.FloatField(allow_null=True, help_text="Of a page.")
    items_by_field = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="In how many of the items each field had a value.",
    )
    requests_balanced = serializers.BooleanField()
    attempts_balanced = serializers.BooleanField()
    balanced = serializers.BooleanField(help_text="Both of these; center has its own.")
    center = CenterCountersSerializer()
    final = serializers.BooleanField(help_text="The run has said that nothing more will come.")
    reported = serializers.BooleanField(help_text="The run has said anything at all.")


class FailedRequestSerializer(serializers.ModelSerializer[FailedRequest]):
    """A request that failed for good. ``status`` is 0 where there was no answer."""

    class Meta:
        model = FailedRequest
        fields = ["id", "url", "status", "reason", "at"]
        read_only_fields = fields
