"""Webhook deliveries: authenticate, store and process, in one transaction.

Failures rely on the retries of the sender: a failure stores no row and is answered with 5xx, so
that the sender repeats the delivery. A stored delivery was answered; its repetition is only
counted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import translation

from apps.access.models import User
from apps.access.services import record
from apps.projects.engine.payloads import (
    Ignored,
    ImagePushed,
    PayloadRefused,
    TagPushed,
    interpret,
    read_body,
)
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.engine.registry import LATEST, is_image_tag
from apps.projects.engine.senders import (
    MAX_EVENT,
    IncomingDelivery,
    WebhookSender,
    check_sender,
    delivery_id_of,
    event_of,
    printable,
    sender_of,
)
from apps.projects.engine.signatures import SignatureRefused, new_secret
from apps.projects.engine.tags import TagReading, read_tag, write_tag
from apps.projects.errors import AlreadyBuilt, DeliveryNotReplayable, ImageKnown, RegistryAway
from apps.projects.models import Build, Delivery, Image, Project
from apps.projects.reasons import text_of
from apps.projects.services.builds import queue_build
from apps.projects.services.images import list_image
from apps.projects.services.registry import look_up_digest, registry_name
from apps.projects.states import DeliverySource, DeliveryVerdict, ImageSource
from yardkit import failpoints

logger = logging.getLogger(__name__)

KEPT_REFUSED: Final = 100
FORGOTTEN_AT_ONCE: Final = 100
MAX_TAG: Final = 250
# Secret used for unknown projects, so that the response time does not reveal which exist.
_NOBODYS_SECRET: Final = new_secret()


_AWAY: Final = frozenset({"registry_away", "registry_too_slow"})


@dataclass(frozen=True)
class DeliveryReceipt:
    """Result for the sender. ``malformed``: authenticated, but the body cannot be parsed."""

    delivery: Delivery
    code: str
    reason: str
    repeated: bool = False
    malformed: bool = False
    of_registry: bool = False


@dataclass
class _Outcome:
    """Result of a delivery, to be stored in its row."""

    verdict: DeliveryVerdict
    code: str = ""
    reason: str = ""
    tag: str = ""
    commit: str = ""
    build: Build | None = None
    image: Image | None = None


@dataclass(frozen=True)
class _Meaning:
    """Interpretation of a body, or the reason why it cannot be interpreted."""

    pushed: TagPushed | ImagePushed | None
    refusal: ProjectInputError | None
    # Requested before the transaction, so that no lock is held while a registry answers.
    digest: str = ""


def receive_delivery(
    *, slug: str, incoming: IncomingDelivery, remote_address: str, now: datetime
) -> DeliveryReceipt | None:
    """Process a delivery to the project ``slug``; return None if it is not authenticated.

    Refused deliveries are stored without body, the newest ``KEPT_REFUSED`` of each project; for an
    unknown project nothing is stored. Reasons are in the language of the installation.

    Raises:
        RegistryAway: the registry, needed for the digest, does not answer; nothing is stored.
    """
    project = Project.objects.filter(slug=slug).first()
    sender = sender_of(incoming)
    secret = (project.webhook_secret if project else "") or _NOBODYS_SECRET
    with translation.override(settings.LANGUAGE_CODE):
        try:
            check_sender(sender, incoming, secret=secret, now=now)
        except SignatureRefused as error:
            if project is not None:
                _store_refused(project, sender, incoming, error, remote_address, now)
            return None
        if project is None or sender is None:
            return None
        content_type = incoming.header("content-type")
        source = _source(sender, incoming.body, content_type)
        # Determine the event before parsing the body: it is stored for a malformed body too.
        delivery = Delivery(
            project=project,
            source=source,
            delivery_id=delivery_id_of(sender, incoming, now=now),
            event=event_of(sender, incoming),
            headers=incoming.kept_headers,
            body=incoming.body,
            body_bytes=len(incoming.body),
            remote_address=remote_address[:64],
            received_at=now,
        )
        repeated = _count_repetition(delivery)
        return repeated or _judge(delivery, sender, content_type, now=now, actor=None)


def replay_delivery(*, delivery: Delivery, actor: User | None, now: datetime) -> Delivery:
    """Process a stored delivery again with the current settings; return the new delivery.

    Raises:
        DeliveryNotReplayable: the delivery was refused.
        RegistryAway: the registry, needed for the digest, does not answer.
    """
    if delivery.verdict == DeliveryVerdict.REFUSED:
        raise DeliveryNotReplayable
    again = Delivery(
        project=delivery.project,
        source=delivery.source,
        delivery_id=f"replay:{uuid4()}",
        event=delivery.event,
        headers=delivery.headers,
        body=bytes(delivery.body),
        body_bytes=delivery.body_bytes,
        remote_address=delivery.remote_address,
        replay_of=delivery,
        received_at=now,
    )
    content_type = str(delivery.headers.get("content-type", ""))
    sender = WebhookSender(delivery.source)
    with translation.override(settings.LANGUAGE_CODE):
        return _judge(again, sender, content_type, now=now, actor=actor).delivery


def forget_deliveries(*, now: datetime) -> int:
    """Delete deliveries older than ``DELIVERY_DAYS`` in small transactions; return their number."""
    old = Delivery.objects.filter(received_at__lt=now - timedelta(days=settings.DELIVERY_DAYS))
    forgotten = 0
    while ids := list(old.order_by("pk").values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE]):
        Delivery.objects.filter(pk__in=ids).delete()
        forgotten += len(ids)
    return forgotten


# --- processing -----------------------------------------------------------------------------------


def _judge(
    delivery: Delivery,
    sender: WebhookSender,
    content_type: str,
    *,
    now: datetime,
    actor: User | None,
) -> DeliveryReceipt:
    meaning = _read(delivery, sender, content_type)
    try:
        with transaction.atomic():
            # Insert the row first, so that a concurrent identical delivery waits here.
            delivery.verdict = DeliveryVerdict.IGNORED
            delivery.save(force_insert=True)
            failpoints.hit("projects.delivery.stored")
            outcome = _act(delivery, meaning, now, actor)
            _write(delivery, outcome)
            _audit(delivery, actor)
            failpoints.hit("projects.delivery.before_commit")
    except IntegrityError:
        repeated = _count_repetition(delivery)
        if repeated is None:
            raise
        return repeated
    failpoints.hit("projects.delivery.committed")
    return DeliveryReceipt(
        delivery=delivery,
        code=delivery.code,
        reason=delivery.reason,
        malformed=isinstance(meaning.refusal, PayloadRefused),
        of_registry=delivery.source == DeliverySource.REGISTRY,
    )


def _read(delivery: Delivery, sender: WebhookSender, content_type: str) -> _Meaning:
    try:
        payload = read_body(bytes(delivery.body), content_type)
        if sender is WebhookSender.GITLAB and isinstance(payload.get("object_kind"), str):
            delivery.event = printable(payload["object_kind"], MAX_EVENT)
        pushed = interpret(sender, delivery.event, payload)
        # For senders that do not name the event.
        delivery.event = delivery.event or ("tag" if isinstance(pushed, TagPushed) else "image")
        digest = _digest(delivery.project, pushed) if isinstance(pushed, ImagePushed) else ""
    except ProjectInputError as error:
        if error.code in _AWAY:
            raise RegistryAway(text_of(error)) from error
        return _Meaning(None, error)
    return _Meaning(pushed, None, digest)


def _digest(project: Project, pushed: ImagePushed) -> str:
    """Return the digest of a pushed image: from the delivery, else from the registry."""
    _check_image(project, pushed)
    return pushed.digest or look_up_digest(project, pushed.tag)


def _act(delivery: Delivery, meaning: _Meaning, now: datetime, actor: User | None) -> _Outcome:
    pushed = meaning.pushed
    if pushed is None:
        error = meaning.refusal or ProjectInputError("unknown_event", event=delivery.event)
        tag = error.tag if isinstance(error, Ignored) else ""
        return _ignored(error, tag=tag or str(error.params.get("tag", "")))
    try:
        if isinstance(pushed, TagPushed):
            return _build(delivery, pushed, now, actor)
        return _list(delivery, pushed, meaning.digest, now)
    except ProjectInputError as error:
        commit = pushed.commit if isinstance(pushed, TagPushed) else ""
        return _ignored(error, tag=pushed.tag, commit=commit)


def _ignored(error: ProjectInputError, *, tag: str = "", **more: Any) -> _Outcome:
    return _Outcome(
        DeliveryVerdict.IGNORED,
        code=error.code,
        reason=text_of(error),
        tag=printable(tag, MAX_TAG),
        **more,
    )


def _build(delivery: Delivery, pushed: TagPushed, now: datetime, actor: User | None) -> _Outcome:
    project = delivery.project
    tag, reading = git_tag(project, pushed.tag, colon_allowed=pushed.colon_allowed)
    if not project.builds_enabled:
        raise ProjectInputError("builds_disabled")
    if not project.git_url:
        raise ProjectInputError("no_git_url")
    try:
        build = queue_build(
            project=project,
            tag=tag,
            commit=pushed.commit,
            reading=reading,
            now=now,
            actor=actor,
            requested_by="" if actor else f"webhook {delivery.source}",
        )
    except AlreadyBuilt as error:
        refusal = ProjectInputError("already_built", build=str(error.build))
        return _ignored(refusal, tag=pushed.tag, commit=pushed.commit, build=error.build)
    return _Outcome(DeliveryVerdict.BUILT, tag=pushed.tag, commit=pushed.commit, build=build)


def git_tag(project: Project, tag: str, *, colon_allowed: bool = False) -> tuple[str, TagReading]:
    """Return the tag in git's form, without colons, and its parts. Raises ``TagRefused``."""
    reading = read_tag(project.tag_template, tag, colon_allowed=colon_allowed)
    if ":" in tag:
        return write_tag(project.tag_template, reading), reading
    return tag, reading


def _check_image(project: Project, pushed: ImagePushed) -> str:
    """Return ``host/repository`` of a permitted image. Raises ``ProjectInputError``."""
    name = registry_name(project)
    # Some registries include their host in the name.
    if pushed.repository not in (project.registry_repository, name):
        raise Ignored("unknown_repository", tag=pushed.tag, repository=pushed.repository)
    if pushed.tag == LATEST:
        raise Ignored("latest_pushed", tag=pushed.tag)
    if not is_image_tag(pushed.tag):
        raise Ignored("image_tag_malformed", tag=pushed.tag)
    return name


def _list(delivery: Delivery, pushed: ImagePushed, digest: str, now: datetime) -> _Outcome:
    name = _check_image(delivery.project, pushed)
    try:
        image = list_image(
            project=delivery.project,
            source=ImageSource.REGISTRY,
            name=name,
            tag=pushed.tag,
            digest=digest,
            now=now,
        )
    except ImageKnown as error:
        code = "image_known" if error.image.digest == digest else "image_moved"
        refusal = ProjectInputError(code, image=str(error.image))
        return _ignored(refusal, tag=pushed.tag, image=error.image)
    return _Outcome(DeliveryVerdict.LISTED, tag=pushed.tag, image=image)


# --- rows -----------------------------------------------------------------------------------------


def _source(sender: WebhookSender, body: bytes, content_type: str) -> DeliverySource:
    """Return the source; a Standard Webhook with a registry's push counts as a registry."""
    if sender is WebhookSender.SIGNED:
        try:
            payload = read_body(body, content_type)
        except PayloadRefused:
            return DeliverySource.SIGNED
        if any(key.lower() == "push_data" for key in payload):
            return DeliverySource.REGISTRY
    return DeliverySource(sender.value)


def _write(delivery: Delivery, outcome: _Outcome) -> None:
    delivery.verdict = outcome.verdict
    delivery.code = outcome.code
    delivery.reason = outcome.reason
    delivery.tag = printable(outcome.tag, MAX_TAG)
    delivery.commit = outcome.commit
    delivery.build = outcome.build
    delivery.image = outcome.image
    delivery.save(
        update_fields=["verdict", "code", "reason", "tag", "commit", "build", "image", "event"]
    )
    level = (
        logging.WARNING if outcome.code in ("latest_pushed", "unknown_repository") else logging.INFO
    )
    logger.log(
        level,
        "delivery %s to %s: %s %s",
        delivery.pk,
        delivery.project.slug,
        outcome.verdict,
        outcome.reason or delivery.tag,
    )


def _audit(delivery: Delivery, actor: User | None) -> None:
    """Record a delivery in the audit trail if a user replayed it or it had an effect."""
    replayed = delivery.replay_of_id is not None
    if not replayed and delivery.verdict == DeliveryVerdict.IGNORED:
        return
    record(
        actor=actor,
        actor_label="" if actor else f"webhook {delivery.source}",
        action="projects.replay_delivery" if replayed else "projects.receive_delivery",
        obj=delivery,
        after={
            "verdict": delivery.verdict,
            "tag": delivery.tag,
            "build_id": delivery.build_id,
            "image_id": delivery.image_id,
            "replay_of_id": delivery.replay_of_id,
        },
    )


def _count_repetition(delivery: Delivery) -> DeliveryReceipt | None:
    same = Delivery.objects.filter(
        project=delivery.project, source=delivery.source, delivery_id=delivery.delivery_id
    ).exclude(verdict=DeliveryVerdict.REFUSED)
    if not same.update(repeats=F("repeats") + 1):
        return None
    return DeliveryReceipt(
        delivery=same.get(),
        code="repeated",
        reason=text_of(ProjectInputError("repeated")),
        repeated=True,
        of_registry=delivery.source == DeliverySource.REGISTRY,
    )


@transaction.atomic
def _store_refused(
    project: Project,
    sender: WebhookSender | None,
    incoming: IncomingDelivery,
    error: SignatureRefused,
    remote_address: str,
    now: datetime,
) -> None:
    Delivery.objects.create(
        project=project,
        source=sender.value if sender else "",
        delivery_id=delivery_id_of(sender, incoming, now=now),
        event=event_of(sender, incoming),
        verdict=DeliveryVerdict.REFUSED,
        code=error.code,
        reason=text_of(error),
        headers=incoming.kept_headers,
        body_bytes=len(incoming.body),
        remote_address=remote_address[:64],
        received_at=now,
    )
    refused = Delivery.objects.filter(project=project, verdict=DeliveryVerdict.REFUSED)
    oldest = refused.order_by("-id").values_list("id", flat=True)[KEPT_REFUSED : KEPT_REFUSED + 1]
    for limit in oldest:
        refused.filter(pk__lte=limit).delete()
