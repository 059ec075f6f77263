"""What an error of RabbitMQ on the control channel means for the caller."""

from __future__ import annotations

import pytest
from pika.exceptions import ChannelClosedByBroker

from yardkit.broker import BrokerError, BrokerUnavailable, Unroutable
from yardkit.broker.rabbitmq_control import ControlRequest, _explain

_ASKED = ControlRequest(lambda _channel, _done: None, "q")


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (404, "NOT_FOUND - no queue 'q' in vhost '/'", Unroutable),
        (
            404,
            "NOT_FOUND - home node 'rabbit@b' of durable queue 'q' in vhost '/' is down or"
            " inaccessible",
            BrokerUnavailable,
        ),
        (404, "NOT_FOUND - no exchange 'x' in vhost '/'", BrokerError),
        (403, "ACCESS_REFUSED - access to queue 'q' refused", BrokerError),
    ],
    ids=["no queue", "home node is down", "no exchange", "no right"],
)
def test_each_answer_has_its_error(code: int, text: str, kind: type[BrokerError]) -> None:
    error = _explain(_ASKED, ChannelClosedByBroker(code, text))
    assert type(error) is kind
