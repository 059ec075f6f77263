"""Serializers of seed calls; the large bodies are only described here (see ``shapes``)."""

from __future__ import annotations

from typing import Any, Final

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from apps.seeds.api.moments import MillisecondsField
from apps.seeds.api.service_calls import MAX_NAME
from apps.seeds.stores.base import MAX_LEASE_SECONDS
from yardkit.protocol.seeds import MAX_SEEDS, MAX_WAIT_SECONDS, SeedOutcome, SeedState

MAX_GRAB_SECONDS: Final = 60
MAX_LOOK_UPS: Final = 100
STATES: Final = [(choice.name.lower(), choice.name.lower()) for choice in SeedState]
_OUTCOMES: Final = [(choice.name.lower(), choice.name.lower()) for choice in SeedOutcome]
_MAX_GENERATION: Final = 2**63 - 1


class OwnerField(serializers.CharField):
    """Caller-chosen part of the lease owner; the user name is put before it."""

    def __init__(self, **kwargs: Any) -> None:
        options: dict[str, Any] = {
            "required": False,
            "default": "",
            "allow_blank": True,
            "max_length": MAX_NAME,
            "help_text": _("Name chosen by the caller, such as a host name."),
        }
        super().__init__(**(options | kwargs))

    def run_validation(self, data: Any = serializers.empty) -> Any:
        """Also reject characters that an owner must not contain."""
        value = super().run_validation(data)
        if not value.isprintable():
            raise serializers.ValidationError(gettext("Only printable characters are allowed."))
        return value


class SecondsField(serializers.FloatField):
    """Duration of a lease in seconds; 0 means the frontier's default."""

    def __init__(self, **kwargs: Any) -> None:
        options: dict[str, Any] = {
            "required": False,
            "default": 0.0,
            "min_value": 0.0,
            "max_value": float(MAX_LEASE_SECONDS),
            "help_text": _("Duration of the lease; 0 or omitted: the URL queue's default."),
        }
        super().__init__(**(options | kwargs))


def _generation(**options: Any) -> serializers.IntegerField:
    text = _("Number of the lease (fencing token); always below 2^53.")
    return serializers.IntegerField(
        min_value=0, max_value=_MAX_GENERATION, help_text=text, **options
    )


# OpenAPI schema of any JSON value.
def _anything(text: Any) -> serializers.JSONField:
    return serializers.JSONField(required=False, allow_null=True, help_text=text)


# --- adding ---------------------------------------------------------------------------------------


class SeedSerializer(serializers.Serializer[Any]):
    """A seed to add."""

    data = serializers.CharField(  # type: ignore[assignment]  # the wire name is fixed
        help_text=_("Usually a URL; at most 64 KiB.")
    )
    active_at = MillisecondsField(
        required=False,
        allow_null=True,
        help_text=_(
            "Earliest crawl time, which determines the segment. ISO 8601, or ms since 1970. If "
            "omitted: the default segment, due at once."
        ),
    )
    max_retry = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=1000
    )
    ext = serializers.DictField(
        required=False, allow_null=True, help_text=_("Data for the spider; at most 64 KiB.")
    )
    urgent = serializers.BooleanField(
        default=False, help_text=_("Leased before all others; not with active_at.")
    )


SEEDS_REQUEST: Final = {
    "application/json": {
        "oneOf": [
            {"type": "string"},
            {"$ref": "#/components/schemas/Seed"},
            {
                "type": "array",
                "maxItems": MAX_SEEDS,
                "items": {"oneOf": [{"type": "string"}, {"$ref": "#/components/schemas/Seed"}]},
            },
        ]
    }
}


class SeedAnswerSerializer(serializers.Serializer[Any]):
    """Result of adding one seed."""

    code = serializers.CharField(
        help_text=_("new, duplicate, or the reason of a rejection, such as empty_data.")
    )
    since = serializers.DateTimeField(
        allow_null=True, help_text=_("For a duplicate: when it was first added.")
    )
    state = serializers.ChoiceField(choices=STATES, allow_null=True)
    text = serializers.CharField(help_text=_("Explanation of a rejection, for people."))


class AddedSerializer(serializers.Serializer[Any]):
    """Results of adding seeds."""

    new = serializers.IntegerField()
    duplicates = serializers.IntegerField()
    refused = serializers.IntegerField()
    answers = SeedAnswerSerializer(many=True, help_text=_("Results in the order of the seeds."))


# --- leasing --------------------------------------------------------------------------------------


class LeaseSerializer(serializers.Serializer[Any]):
    """Owner, number of seeds and duration of a lease."""

    owner = OwnerField()
    limit = serializers.IntegerField(default=100, min_value=1, max_value=MAX_SEEDS)
    seconds = SecondsField()
    wait_seconds = serializers.FloatField(
        default=0.0,
        min_value=0.0,
        max_value=MAX_WAIT_SECONDS,
        help_text=_("How long to wait for a first due seed."),
    )


class LeasedSeedSerializer(serializers.Serializer[Any]):
    """Leased seed, identified by ``segment`` and ``key``."""

    segment = serializers.IntegerField(
        help_text=_("Beginning of the segment in ms since 1970; 0: the default segment.")
    )
    key = serializers.CharField()
    data = serializers.CharField()  # type: ignore[assignment]  # the wire name is fixed
    retry = serializers.IntegerField(help_text=_("Number of earlier failed tries."))
    max_retry = serializers.IntegerField()
    ext = serializers.DictField(allow_null=True)
    grab = serializers.CharField(
        allow_null=True,
        help_text=_("Set if a caller waits for this seed: return this value with the finish."),
    )


class LeasedSerializer(serializers.Serializer[Any]):
    """A lease. Without seeds there is no lease, and ``generation`` has no meaning."""

    owner = serializers.CharField()
    generation = _generation()
    deadline = serializers.DateTimeField(allow_null=True)
    seeds = LeasedSeedSerializer(many=True)
    next_due = serializers.DateTimeField(
        allow_null=True, help_text=_("When the next seed becomes due, if none is due now.")
    )
    pending = serializers.IntegerField(help_text=_("Number of pending seeds, due or not."))


class FinishSerializer(serializers.Serializer[Any]):
    """Outcome of one leased seed."""

    segment = MillisecondsField(help_text=_("As returned by the lease."))
    key = serializers.CharField()
    outcome = serializers.ChoiceField(choices=_OUTCOMES)
    generation = _generation(required=False)
    grab = serializers.CharField(required=False, allow_null=True)
    result = _anything(_("Result for the caller that grabbed the seed; at most 1 MiB."))


class FinishesSerializer(serializers.Serializer[Any]):
    """Outcomes of leased seeds, and newly discovered seeds to add."""

    owner = OwnerField()
    generation = _generation(required=False)
    finishes = FinishSerializer(many=True)
    found = SeedSerializer(many=True, required=False)


class FinishAnswerSerializer(serializers.Serializer[Any]):
    """Result of one finish."""

    code = serializers.CharField(
        help_text=_(
            "finished or retried; late, repeated, wrong_lease or unknown_key had no effect."
        )
    )
    state = serializers.ChoiceField(choices=STATES, allow_null=True)


class FinishedSerializer(serializers.Serializer[Any]):
    """Results in the order of the request."""

    answers = FinishAnswerSerializer(many=True)
    added = SeedAnswerSerializer(many=True)


class HeldLeaseSerializer(serializers.Serializer[Any]):
    """Lease to refer to."""

    owner = OwnerField()
    generation = _generation()


class ExtendSerializer(HeldLeaseSerializer):
    """Lease to extend, and its duration from now."""

    seconds = SecondsField()


class ExtendedSerializer(serializers.Serializer[Any]):
    """New end of the lease."""

    deadline = serializers.DateTimeField()


class GivenBackSerializer(serializers.Serializer[Any]):
    """Number of seeds returned to pending."""

    count = serializers.IntegerField()


# --- looking up -----------------------------------------------------------------------------------


class LookUpSerializer(serializers.Serializer[Any]):
    """Seed to look up, either as it would be added or by segment and key."""

    data = serializers.CharField(required=False, trim_whitespace=False)  # type: ignore[assignment]  # the wire name is fixed
    active_at = MillisecondsField(required=False, allow_null=True)
    segment = MillisecondsField(required=False)
    key = serializers.CharField(required=False, trim_whitespace=False)


class KnownSeedSerializer(serializers.Serializer[Any]):
    """All stored fields of a seed."""

    segment = serializers.IntegerField()
    begins_at = serializers.DateTimeField(allow_null=True)
    key = serializers.CharField()
    data = serializers.CharField()  # type: ignore[assignment]  # the wire name is fixed
    state = serializers.ChoiceField(choices=STATES)
    retry = serializers.IntegerField()
    max_retry = serializers.IntegerField()
    added_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField()
    due_at = serializers.DateTimeField(allow_null=True)
    generation = _generation()
    ext = serializers.DictField(allow_null=True)
    owner = serializers.CharField(allow_null=True, help_text=_("Owner of the lease."))
    deadline = serializers.DateTimeField(allow_null=True)


class LookedUpSerializer(serializers.Serializer[Any]):
    """Whether a seed would be new and, if not, since when it is known."""

    new = serializers.BooleanField()
    segment = serializers.IntegerField()
    begins_at = serializers.DateTimeField(allow_null=True)
    key = serializers.CharField()
    due_at = serializers.DateTimeField(allow_null=True)
    known = KnownSeedSerializer(allow_null=True)


class LookUpsSerializer(serializers.Serializer[Any]):
    """Results in the order of the request."""

    results = LookedUpSerializer(many=True)


_TIME: Final = {"oneOf": [{"type": "string", "format": "date-time"}, {"type": "integer"}]}
_LOOK_UP: Final = {
    "oneOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"data": {"type": "string"}, "active_at": _TIME},
            "required": ["data"],
        },
        {
            "type": "object",
            "properties": {"segment": _TIME, "key": {"type": "string"}},
            "required": ["key"],
        },
    ]
}
LOOK_UP_REQUEST: Final = {
    "application/json": {
        "oneOf": [
            *_LOOK_UP["oneOf"],
            {"type": "array", "maxItems": MAX_LOOK_UPS, "items": _LOOK_UP},
        ]
    }
}


# --- grabbing -------------------------------------------------------------------------------------


class GrabSerializer(serializers.Serializer[Any]):
    """Seed to crawl now, before all others."""

    data = serializers.CharField(trim_whitespace=False)  # type: ignore[assignment]  # the wire name is fixed
    max_retry = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=1000
    )
    ext = serializers.DictField(required=False, allow_null=True)
    timeout_seconds = serializers.FloatField(
        default=30.0,
        min_value=0.1,
        max_value=MAX_GRAB_SECONDS,
        help_text=_("How long to wait for the result."),
    )
    again = serializers.BooleanField(
        default=False, help_text=_("Crawl the seed even if it was crawled before.")
    )


class GrabbedSerializer(serializers.Serializer[Any]):
    """State of a grabbed seed; ``result`` is the value returned by its spider at the end."""

    segment = serializers.IntegerField()
    key = serializers.CharField()
    state = serializers.ChoiceField(choices=STATES)
    ended = serializers.BooleanField()
    result = _anything(_("Any JSON value."))
    look_up = serializers.CharField(help_text=_("URL of the seed's state."))


# --- managing -------------------------------------------------------------------------------------


class OneSeedSerializer(serializers.Serializer[Any]):
    """Segment and key of a seed."""

    segment = MillisecondsField(
        default=0, help_text=_("Beginning of the segment; 0: the default segment.")
    )
    key = serializers.CharField(trim_whitespace=False)


class SeedStateSerializer(serializers.Serializer[Any]):
    """Current state of the seed; null if it no longer exists."""

    segment = serializers.IntegerField()
    key = serializers.CharField()
    state = serializers.ChoiceField(choices=STATES, allow_null=True)
