"""Interpretation of a delivery's body: a pushed tag, a pushed image, or no action."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

from apps.projects.engine.refs import RefRefused, check_commit
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.engine.senders import WebhookSender
from apps.projects.engine.tags import IMAGE_DIGEST
from yardkit.nesting import MAX_DEPTH

TAGS: Final = "refs/tags/"
FORM: Final = "application/x-www-form-urlencoded"
Payload = Mapping[str, Any]


class PayloadRefused(ProjectInputError):
    """The body cannot be parsed; answered with status 400."""


@dataclass(frozen=True, slots=True)
class TagPushed:
    """Pushed tag. ``commit`` is "" if the sender does not state it."""

    tag: str
    commit: str = ""
    colon_allowed: bool = False


@dataclass(frozen=True, slots=True)
class ImagePushed:
    """Pushed image of a registry. ``digest`` is "" if the sender does not state it."""

    repository: str
    tag: str
    digest: str = ""


class Ignored(ProjectInputError):
    """The delivery is valid but requires no action. ``tag`` is set if the body names one."""

    def __init__(self, code: str, *, tag: str = "", **params: object) -> None:
        super().__init__(code, **params)
        self.tag = tag


def read_body(body: bytes, content_type: str) -> Payload:
    """Return the JSON object of a body. Raises ``PayloadRefused``.

    Accepts also GitHub's default, a form with the JSON in one field.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PayloadRefused("body_not_utf8", position=error.start) from error
    if content_type.partition(";")[0].strip().lower() == FORM:
        text = _form_field(text)
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError as error:
        raise PayloadRefused("body_too_deep", limit=MAX_DEPTH) from error
    except ValueError as error:
        raise PayloadRefused("body_malformed", error=str(error)) from error
    if not isinstance(value, dict):
        raise PayloadRefused("body_no_object")
    _check_depth(value)
    return value


def _form_field(text: str) -> str:
    try:
        fields = parse_qs(text, max_num_fields=20, errors="strict")
    except ValueError as error:
        raise PayloadRefused("body_malformed", error=str(error)) from error
    values = fields.get("payload", [])
    if len(values) != 1:
        raise PayloadRefused("body_without_payload")
    return values[0]


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _check_depth(value: object) -> None:
    level = [value]
    for _depth in range(MAX_DEPTH):
        inner: list[object] = []
        for node in level:
            if isinstance(node, dict):
                inner += node.values()
            elif isinstance(node, list):
                inner += node
        if not inner:
            return
        level = inner
    raise PayloadRefused("body_too_deep", limit=MAX_DEPTH)


def interpret(sender: WebhookSender, event: str, payload: Payload) -> TagPushed | ImagePushed:
    """Return the pushed tag or image.

    The clone URL in a delivery is never used: it comes from the project. Raises ``Ignored`` with
    the reason, ``PayloadRefused`` for missing parts.
    """
    if sender is WebhookSender.GITLAB:
        return _gitlab(payload)
    if sender in (WebhookSender.GITHUB, WebhookSender.GITEA):
        return _github(event, payload)
    if _lookup(payload, "push_data") is not None:
        return _registry(payload)
    if sender is WebhookSender.REGISTRY:
        # A token in the URL is not a signature: it permits to list images, but not to build.
        raise PayloadRefused("field_missing", field="Push_Data")
    tag = _text(payload, "tag")
    commit = payload.get("commit")
    if commit is not None and not isinstance(commit, str):
        raise PayloadRefused("field_no_text", field="commit")
    return TagPushed(tag, _checked_commit(commit or "", strict=True), colon_allowed=True)


def _github(event: str, payload: Payload) -> TagPushed | ImagePushed:
    if event == "push":
        return _push(payload)
    if event in ("create", "delete"):
        kind = _text(payload, "ref_type")
        ref = _text(payload, "ref")
        if kind != "tag":
            raise Ignored("branch", ref=ref)
        if event == "delete":
            raise Ignored("tag_deleted", tag=ref, ref=ref)
        return TagPushed(ref.removeprefix(TAGS), _commit(payload.get("sha")))
    if event == "ping":
        raise Ignored("ping")
    if event in ("registry_package", "package"):
        return _package(payload)
    raise Ignored("unknown_event", event=event)


def _gitlab(payload: Payload) -> TagPushed:
    kind = _text(payload, "object_kind")
    if kind == "push":
        raise Ignored("branch", ref=_text(payload, "ref"))
    if kind != "tag_push":
        raise Ignored("unknown_event", event=kind)
    return _push(payload)


def _push(payload: Payload) -> TagPushed:
    """Parse a push of one reference, in the structure shared by all three servers."""
    ref = _text(payload, "ref")
    if not ref.startswith(TAGS):
        raise Ignored("branch", ref=ref)
    tag = ref.removeprefix(TAGS)
    before, after = _text(payload, "before"), _text(payload, "after")
    if payload.get("deleted") is True or _is_zero(after):
        raise Ignored("tag_deleted", tag=tag, ref=tag)
    created = payload.get("created")
    if created is False or (created is not True and not _is_zero(before)):
        raise Ignored("tag_moved", tag=tag, ref=tag)
    head = payload.get("head_commit")
    # For an annotated tag "after" is the tag object itself.
    peeled = head.get("id") if isinstance(head, dict) else payload.get("checkout_sha")
    return TagPushed(tag, _commit(peeled or after))


def _registry(payload: Payload) -> ImagePushed:
    """Parse a registry's push; registries differ in the case of key names."""
    pushed = _object(payload, "push_data")
    repository = _object(payload, "repository")
    name = _lookup(repository, "repo_full_name") or _lookup(repository, "repo_name")
    tag = _lookup(pushed, "tag")
    for field, value in (("Repository.Repo_Full_Name", name), ("Push_Data.Tag", tag)):
        if not isinstance(value, str) or not value:
            raise PayloadRefused("field_missing", field=field)
    return ImagePushed(str(name), str(tag), _digest(_lookup(pushed, "digest")))


def _package(payload: Payload) -> ImagePushed:
    """Parse a package event of GitHub's registry."""
    package = payload.get("registry_package") or payload.get("package")
    if not isinstance(package, dict):
        raise PayloadRefused("field_missing", field="registry_package")
    kinds = {str(package.get(name, "")).lower() for name in ("ecosystem", "package_type")}
    if not kinds & {"docker", "container"}:
        raise Ignored("package_no_image")
    version = package.get("package_version")
    metadata = version.get("container_metadata") if isinstance(version, dict) else None
    tag = metadata.get("tag") if isinstance(metadata, dict) else None
    name = tag.get("name") if isinstance(tag, dict) else None
    if not isinstance(version, dict) or not isinstance(name, str) or not name:
        # Each layer and platform of an image is sent as a separate package without a tag.
        raise Ignored("package_without_tag")
    digest = _digest(version.get("version")) or _digest(tag.get("digest") if tag else None)
    path = "/".join(str(package.get(name) or "") for name in ("namespace", "name"))
    return ImagePushed(path.strip("/").lower(), name, digest)


def _lookup(payload: Payload, name: str) -> Any:
    """Return the value of a key, ignoring case."""
    return next((value for key, value in payload.items() if key.lower() == name), None)


def _object(payload: Payload, name: str) -> Payload:
    value = _lookup(payload, name)
    if not isinstance(value, dict):
        raise PayloadRefused("field_missing", field=name)
    return value


def _text(payload: Payload, name: str) -> str:
    value = payload.get(name)
    if value is None:
        raise PayloadRefused("field_missing", field=name)
    if not isinstance(value, str):
        raise PayloadRefused("field_no_text", field=name)
    return value


def _is_zero(commit: str) -> bool:
    return len(commit) >= 40 and not commit.strip("0")


def _commit(value: object) -> str:
    return _checked_commit(value, strict=False) if isinstance(value, str) else ""


def _checked_commit(commit: str, *, strict: bool) -> str:
    if not commit:
        return ""
    try:
        return check_commit(commit)
    except RefRefused as error:
        if strict:
            raise PayloadRefused(error.code, **error.params) from error
        return ""


def _digest(value: object) -> str:
    return value if isinstance(value, str) and IMAGE_DIGEST.fullmatch(value) else ""
