"""Replies of chat and paging services, which validate requests as their documentation says."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from tests.alerts.servers import Asked, Reply, json_reply


def _text(status: int, text: str) -> Reply:
    return status, {"Content-Type": "text/plain"}, text.encode()


def _is_json(asked: Asked) -> bool:
    return asked.headers.get("content-type", "").partition(";")[0] == "application/json"


def slack(asked: Asked) -> Reply:
    """Reply like an incoming webhook: plain text, "ok" or the name of an error."""
    if asked.method != "POST" or not _is_json(asked):
        return _text(400, "invalid_payload")
    if asked.path != "/services/T000/B000/t0ken":
        return _text(404, "no_service")
    body = asked.json
    if not body.get("text"):
        return _text(400, "no_text")
    if not 1 <= len(body.get("blocks", [None])) <= 50:
        return _text(400, "invalid_blocks")
    for block in body.get("blocks", []):
        text = block["text"]
        most = {"header": 150, "section": 3000}.get(block["type"], 0)
        kinds = ("plain_text",) if block["type"] == "header" else ("plain_text", "mrkdwn")
        if text["type"] not in kinds or not 1 <= len(text["text"]) <= most:
            return _text(400, "invalid_blocks")
    return _text(200, "ok")


def teams(asked: Asked) -> Reply:
    """Reply like the trigger of a workflow: 202 with an empty body."""
    if asked.query.get("sig") != "t0ken":
        message = "The provided workflow signature is not valid."
        return json_reply(
            401, error={"code": "DirectApiInvalidAuthorizationScheme"} | {"message": message}
        )
    body = asked.json
    if len(asked.body) > 28_000 or body.get("type") != "message":
        return json_reply(400, error={"code": "TriggerInputSchemaMismatch", "message": "type"})
    (attachment,) = body["attachments"]
    card = attachment["content"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert all(run["type"] == "TextRun" for row in card["body"] for run in row["inlines"])
    assert all(each["type"] == "Action.OpenUrl" and each["url"] for each in card["actions"])
    return 202, {}, b""


def discord(asked: Asked) -> Reply:
    """Reply like a webhook: the message with ``wait=true``, else 204."""
    if not asked.path.startswith("/api/webhooks/1/t0ken"):
        return json_reply(404, message="Unknown Webhook", code=10015)
    body = asked.json
    (embed,) = body["embeds"]
    if len(embed["title"]) > 256 or len(embed["description"]) > 4096 or embed["color"] > 0xFFFFFF:
        errors = {"embeds": {"0": {"_errors": [{"code": "BASE_TYPE_MAX_LENGTH"}]}}}
        return json_reply(400, message="Invalid Form Body", code=50035, errors=errors)
    datetime.fromisoformat(embed["timestamp"])
    if asked.query.get("wait") != "true":
        return 204, {}, b""
    return json_reply(200, id="1234567890", type=0, content="", embeds=body["embeds"])


def telegram(asked: Asked) -> Reply:
    """Reply like ``sendMessage``: the status repeats in ``error_code``."""
    if asked.path != "/bot123456:ABC-t0ken-of-bot/sendMessage":
        return json_reply(401, ok=False, error_code=401, description="Unauthorized")
    body = asked.json
    if body["chat_id"] != "-100123":
        text = "Bad Request: chat not found"
        return json_reply(400, ok=False, error_code=400, description=text)
    if not 1 <= len(body["text"].encode("utf-16-le")) // 2 <= 4096:
        text = "Bad Request: message is too long"
        return json_reply(400, ok=False, error_code=400, description=text)
    assert "parse_mode" not in body
    return json_reply(200, ok=True, result={"message_id": 7, "text": body["text"]})


def pagerduty(asked: Asked) -> Reply:
    """Reply like Events API v2."""
    if (asked.method, asked.path) != ("POST", "/v2/enqueue"):
        return json_reply(404, status="not found")
    body, errors = asked.json, []
    if len(body.get("routing_key", "")) != 32:
        errors.append("'routing_key' is invalid (must be 32 characters)")
    if body.get("event_action") not in ("trigger", "acknowledge", "resolve"):
        errors.append("'event_action' is missing or invalid")
    if len(body.get("dedup_key", "")) > 255 or not body.get("dedup_key"):
        errors.append("'dedup_key' is invalid")
    if body.get("event_action") == "trigger":
        payload = body.get("payload", {})
        for name in ("summary", "source", "severity"):
            if not payload.get(name):
                errors.append(f"'payload.{name}' is missing or blank")
        if payload.get("severity") not in ("critical", "error", "warning", "info"):
            errors.append("'payload.severity' is invalid")
        if len(payload.get("summary", "")) > 1024:
            errors.append("'payload.summary' is too long")
        datetime.fromisoformat(payload["timestamp"])
    if errors:
        message = "Event object is invalid"
        return json_reply(400, status="invalid event", message=message, errors=errors)
    key = body["dedup_key"]
    return json_reply(202, status="success", message="Event processed", dedup_key=key)


def opsgenie(asked: Asked) -> Reply:
    """Reply like the Alert API: requests are processed later."""
    if asked.headers.get("authorization") != "GenieKey t0ken-of-an-integration":
        return json_reply(401, message="Could not authenticate", took=0.0, requestId="r")
    body = asked.json
    if asked.path == "/v2/alerts":
        sizes = (("message", 130), ("alias", 512), ("description", 15_000), ("source", 100))
        errors = {name: "too long" for name, most in sizes if len(body.get(name, "")) > most}
        if not body.get("message"):
            errors["message"] = "Message can not be empty."
        if body.get("priority") not in ("P1", "P2", "P3", "P4", "P5"):
            errors["priority"] = "should be one of [ P1, P2, P3, P4, P5 ]"
        if errors:
            text = "Request body is not processable. Please check the errors."
            return json_reply(422, message=text, errors=errors, took=0.0, requestId="r")
        assert all(isinstance(value, str) for value in body["details"].values())
        return json_reply(202, result="Request will be processed", took=0.1, requestId="r")
    assert asked.path.startswith("/v2/alerts/")
    assert asked.path.endswith("/close?identifierType=alias")
    return json_reply(202, result="Request will be processed", took=0.1, requestId="r")


def ntfy(asked: Asked) -> Reply:
    """Reply like ntfy: the published message."""
    if asked.headers.get("authorization") not in (None, "Bearer tk_t0ken-of-ntfy"):
        return json_reply(401, code=40101, http=401, error="unauthorized")
    if asked.path != "/":
        return json_reply(404, code=40401, http=404, error="page not found")
    body = asked.json
    if body["topic"] != "t0ken-topic":
        return json_reply(403, code=40301, http=403, error="forbidden")
    if body["priority"] not in range(1, 6) or len(body["message"].encode()) > 4096:
        return json_reply(400, code=40007, http=400, error="invalid priority parameter")
    more = {key: body[key] for key in ("topic", "title", "message")}
    return json_reply(200, id="xE73Iyuabi", time=1, expires=2, event="message", **more)


def too_many(kind: str) -> Callable[[Asked], Reply]:
    """Return the reply of a service over its rate limit, with a wait of 77 seconds."""
    bodies: dict[str, tuple[dict[str, str], Any]] = {
        "slack": ({"Retry-After": "77"}, "rate_limited"),
        "teams": ({"Retry-After": "77"}, {"error": {"code": "429", "message": "Rate limit"}}),
        "discord": (
            {"Retry-After": "76", "X-RateLimit-Scope": "user"},
            {"message": "You are being rate limited.", "retry_after": 76.64, "global": False},
        ),
        "telegram": (
            {},
            {
                "ok": False,
                "error_code": 429,
                "description": "Too Many Requests: retry after 77",
                "parameters": {"retry_after": 77},
            },
        ),
        "pagerduty": ({"Retry-After": "77"}, {"status": "throttle exceeded"}),
        "opsgenie": (
            {"X-RateLimit-State": "THROTTLED", "X-RateLimit-Period-In-Sec": "77"},
            {"message": "You are making too many requests!", "took": 0.0, "requestId": "r"},
        ),
        "ntfy": (
            {"Retry-After": "77"},
            {"code": 42901, "http": 429, "error": "limit reached: too many requests"},
        ),
    }
    headers, body = bodies[kind]
    text = body if isinstance(body, str) else json.dumps(body)
    return lambda _asked: (429, headers, text.encode())
