"""Connection that decodes plain deliveries in one pass.

pika builds three frames, a method and properties for each message and looks up callbacks for each
frame, which dominates at thousands of messages a second. Deliveries that have arrived completely,
in one body frame, on a channel that asked for it, are decoded in the buffer. Everything else is
left to pika.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import pika

# Arguments of a delivery: tag, redelivered, exchange, routing key, properties (None when the
# message id, which follows, is all of them that matters), message id, body.
Plain = Callable[[int, bool, str, str, "pika.BasicProperties | None", str, bytes], None]

# More at once than pika asks the socket for.
_READ_BYTES: Final = 65536

# The head of a frame, with the number of a method or with all that stands before properties.
_METHOD: Final = struct.Struct(">BHLL")
_HEADER: Final = struct.Struct(">BHLHHQH")
_BODY: Final = struct.Struct(">BHL")
_TAG: Final = struct.Struct(">QB")
_HEAD_BYTES: Final = _BODY.size

_DELIVER: Final = pika.spec.Basic.Deliver.INDEX
_OF_METHOD: Final = pika.spec.FRAME_METHOD
_OF_HEADER: Final = pika.spec.FRAME_HEADER
_OF_BODY: Final = pika.spec.FRAME_BODY
_END: Final = pika.spec.FRAME_END

# The properties that most messages have and that are passed over, beside the id. Those that stand
# before the id have to be known by their length.
_CONTENT_TYPE: Final = pika.BasicProperties.FLAG_CONTENT_TYPE
_CONTENT_ENCODING: Final = pika.BasicProperties.FLAG_CONTENT_ENCODING
_DELIVERY_MODE: Final = pika.BasicProperties.FLAG_DELIVERY_MODE
_MESSAGE_ID: Final = pika.BasicProperties.FLAG_MESSAGE_ID
_APP_ID: Final = pika.BasicProperties.FLAG_APP_ID
_OTHERS: Final = 0xFFFF & ~(
    _CONTENT_TYPE | _CONTENT_ENCODING | _DELIVERY_MODE | _MESSAGE_ID | _APP_ID
)


class Connection(pika.SelectConnection):  # type: ignore[misc]  # pika has no types for mypy
    """pika connection with the fast path; used in the loop's thread only."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._plain: dict[int, Plain] = {}
        # Most deliveries of a queue have the same exchange and key: these bytes were the last.
        self._last_way = b""
        self._way = "", ""
        super().__init__(*args, **options)

    def read_plain(self, channel: int, received: Plain) -> None:
        """Pass plain deliveries of this channel to ``received``, which must not raise.

        The others go to the channel's consumer; order is kept.
        """
        self._plain[channel] = received

    def read_all(self, channel: int) -> None:
        """Leave deliveries of this channel to pika again."""
        self._plain.pop(channel, None)

    def _proto_connection_made(self, transport: Any) -> None:
        transport._MAX_RECV_BYTES = _READ_BYTES
        super()._proto_connection_made(transport)

    def _on_data_available(self, data_in: bytes) -> None:
        if not self._plain:
            super()._on_data_available(data_in)
            return
        self._frame_buffer += data_in
        while self._frame_buffer:
            if self._read_deliveries():
                return
            size, frame = self._read_frame()
            if not frame:
                return
            self._trim_frame_buffer(size)
            self._process_frame(frame)

    def _read_deliveries(self) -> bool:
        """Decode complete deliveries; return whether the rest is the start of one."""
        data, plain = self._frame_buffer, self._plain
        last = len(data)
        at, waits = 0, False
        while at + _METHOD.size <= last:
            kind, number, size, method = _METHOD.unpack_from(data, at)
            if kind != _OF_METHOD or method != _DELIVER or number not in plain:
                break
            header = at + _HEAD_BYTES + size + 1
            if waits := header + _HEADER.size > last:
                break
            kind, same, size, _, _, length, flags = _HEADER.unpack_from(data, header)
            if kind != _OF_HEADER or same != number:
                break
            body = end = header + _HEAD_BYTES + size + 1
            if length:
                if waits := body + _HEAD_BYTES > last:
                    break
                kind, same, size = _BODY.unpack_from(data, body)
                if kind != _OF_BODY or same != number or size != length:
                    break
                end += _HEAD_BYTES + size + 1
            if waits := end > last:
                break
            if not data[header - 1] == data[body - 1] == data[end - 1] == _END:
                break
            try:
                read = self._read(data, at, header, body, end, flags)
            except Exception:  # noqa: BLE001 - pika reads it, or says what is wrong with it
                break
            plain[number](*read)
            at = end
        if at:
            self._trim_frame_buffer(at)
        return waits

    def _read(
        self, data: bytes, at: int, header: int, body: int, end: int, flags: int
    ) -> tuple[int, bool, str, str, pika.BasicProperties | None, str, bytes]:
        """Return the arguments of ``Plain`` and the end of the last frame."""
        at += _METHOD.size
        at += 1 + data[at]  # the consumer's tag: these channels have one consumer
        tag, bits = _TAG.unpack_from(data, at)
        way = data[at + _TAG.size : header - 1]
        if way != self._last_way:
            middle = 1 + way[0]
            key = way[middle + 1 : middle + 1 + way[middle]]
            self._way = way[1:middle].decode(), key.decode()
            self._last_way = way
        properties = None
        message_id = ""
        if flags & _OTHERS:
            properties = pika.BasicProperties()
            properties.decode(data[header + _HEADER.size - 2 : body - 1])
            message_id = properties.message_id or ""
        elif flags & _MESSAGE_ID:
            at = header + _HEADER.size
            if flags & _CONTENT_TYPE:
                at += 1 + data[at]
            if flags & _CONTENT_ENCODING:
                at += 1 + data[at]
            if flags & _DELIVERY_MODE:
                at += 1
            message_id = data[at + 1 : at + 1 + data[at]].decode()
        content = data[body + _HEAD_BYTES : end - 1] if end > body else b""
        return tag, bool(bits & 1), *self._way, properties, message_id, content
